// Opens a root on a real file system with the engine that works there.
#ifndef CKPTD_STORAGE_DISK_OPEN_DISK_H_
#define CKPTD_STORAGE_DISK_OPEN_DISK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "storage/disk/disk.h"

namespace ckptd {

struct DiskOptions {
  enum class Engine {
    kAuto,   // io_uring; posix, with the reason in DiskFacts, where io_uring cannot run.
    kUring,  // FailedPrecondition where it cannot run.
    kPosix,
  };
  enum class Switch {
    kAuto,  // Where it works; the reason is in DiskFacts where it does not.
    kOn,    // FailedPrecondition where it cannot be had.
    kOff,
  };

  Engine engine = Engine::kAuto;
  Switch direct = Switch::kAuto;
  // kOn needs io_uring. It asks for a kernel that registers memory at all; whether there is enough
  // locked memory for a range shows when it is attached (DiskFacts).
  Switch fixed_buffers = Switch::kAuto;
};

// `root_path` is an existing folder. The disk outlives the files that it opened. May block: it
// tries O_DIRECT by writing a block to a file without a name. Errors: NotFound, PermissionDenied …
// of the folder; FailedPrecondition for what was asked for and cannot be.
absl::StatusOr<std::unique_ptr<Disk>> OpenDisk(const std::string& root_path,
                                               const DiskOptions& options);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_OPEN_DISK_H_
