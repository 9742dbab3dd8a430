#include "storage/disk/open_disk.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/disk/posix_disk.h"
#include "storage/disk/root_disk.h"
#include "storage/disk/root_folder.h"
#include "storage/disk/uring_disk.h"

namespace ckptd {
namespace {

using Engine = DiskOptions::Engine;
using Switch = DiskOptions::Switch;

FixedBuffers ToFixedBuffers(Switch fixed_buffers) {
  switch (fixed_buffers) {
    case Switch::kAuto:
      return FixedBuffers::kTry;
    case Switch::kOn:
      return FixedBuffers::kNeed;
    case Switch::kOff:
      return FixedBuffers::kOff;
  }
  return FixedBuffers::kOff;
}

absl::StatusOr<std::unique_ptr<TransferEngine>> ChooseEngine(const DiskOptions& options) {
  std::string posix_reason = "asked for";
  if (options.engine != Engine::kPosix) {
    absl::StatusOr<std::unique_ptr<TransferEngine>> uring =
        MakeUringEngine(options.engine == Engine::kUring ? "asked for" : "io_uring works",
                        ToFixedBuffers(options.fixed_buffers));
    if (uring.ok()) return uring;
    if (options.engine == Engine::kUring || options.fixed_buffers == Switch::kOn) {
      return absl::FailedPreconditionError(
          absl::StrCat("io_uring was asked for: ", uring.status().message()));
    }
    posix_reason = std::string(uring.status().message());
  } else if (options.fixed_buffers == Switch::kOn) {
    return absl::FailedPreconditionError(
        "registered buffers were asked for: the posix engine has none");
  }
  bool off = options.fixed_buffers == Switch::kOff;
  return MakePosixEngine(std::move(posix_reason), off ? "turned off" : "the posix engine has none");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Disk>> OpenDisk(const std::string& root_path,
                                               const DiskOptions& options) {
  ASSIGN_OR_RETURN(RootFolder root, RootFolder::Open(root_path));
  bool direct = false;
  std::string direct_reason = "turned off";
  if (options.direct != Switch::kOff) {
    absl::Status probe = root.ProbeDirect();
    if (!probe.ok() && options.direct == Switch::kOn) {
      return WithContext(probe, absl::StrCat("direct I/O was asked for: ", root_path));
    }
    direct = probe.ok();
    direct_reason = probe.ok() ? "O_DIRECT works" : std::string(probe.message());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<TransferEngine> engine, ChooseEngine(options));
  return MakeRootDisk(std::move(root), direct, std::move(direct_reason), std::move(engine));
}

}  // namespace ckptd
