#include "tests/bench/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"
#include "storage/base/unique_fd.h"

namespace ckptd::bench {
namespace {

constexpr absl::Duration kQuiet = absl::Milliseconds(100);
constexpr absl::Duration kSettleMax = absl::Seconds(5);

// How much the device has discarded; empty if the kernel does not say.
std::string DiscardsOf(const std::string& folder) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return "";
  std::ifstream file(
      absl::StrCat("/sys/dev/block/", major(info.st_dev), ":", minor(info.st_dev), "/stat"));
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
  return fields.size() > 13 ? fields[11] + " " + fields[13] : "";
}

}  // namespace

std::string FileSystemOf(const std::string& folder) {
  struct statfs info;
  if (statfs(folder.c_str(), &info) != 0) return "unknown";
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0xEF53:
      return "ext4";
    case 0x58465342:
      return "xfs";
    case 0x9123683E:
      return "btrfs";
    case 0x01021994:
      return "tmpfs";
    case 0x794C7630:
      return "overlayfs";
    case 0x6969:
      return "nfs";
    default:
      return absl::StrCat(absl::Hex(static_cast<uint32_t>(info.f_type)));
  }
}

absl::Status Settle(const std::string& folder) {
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || syncfs(fd.get()) != 0) return ErrnoStatus(errno, "sync " + folder);
  const absl::Duration begin = SystemClock().Monotonic();
  std::string before = DiscardsOf(folder);
  while (SystemClock().Monotonic() - begin < kSettleMax) {
    absl::SleepFor(kQuiet);
    if (std::string now = DiscardsOf(folder); now != before) {
      before = std::move(now);
    } else {
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status DropCaches(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const UniqueFd fd(open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoStatus(errno, "open " + file);
    if (const int error = posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED)) {
      return ErrnoStatus(error, "drop the cache of " + file);
    }
  }
  return absl::OkStatus();
}

}  // namespace ckptd::bench
