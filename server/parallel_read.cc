#include "server/parallel_read.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr uint64_t kTransferBytes = 4 * kMiB;

// The transfers of one call.
struct Gather {
  std::mutex mutex;
  std::condition_variable changed;
  int left = 0;
  absl::Status status;
};

// `needed` of `data` must come; the rest may lie beyond the end of the file.
void Read(Gather& gather, File& file, uint64_t offset, std::span<std::byte> data, uint64_t needed) {
  file.Read(offset, data, [&gather, &file, offset, data, needed](absl::StatusOr<size_t> count) {
    if (count.ok() && *count > 0 && *count < needed) {
      return Read(gather, file, offset + *count, data.subspan(*count), needed - *count);
    }
    if (count.ok() && *count < needed) {
      count = absl::OutOfRangeError(absl::StrCat("the file ends ", needed - *count,
                                                 " bytes before offset ", offset + needed));
    }
    std::lock_guard lock(gather.mutex);
    if (!count.ok() && gather.status.ok()) gather.status = count.status();
    if (--gather.left == 0) gather.changed.notify_one();
  });
}

}  // namespace

absl::Status ReadInParallel(File& file, uint64_t offset, uint64_t bytes,
                            std::span<std::byte> memory) {
  uint64_t total = RoundUp(bytes, Disk::kDirectAlignment);
  CKPT_CHECK(memory.size() >= total, "room for whole direct transfers");
  Gather gather;
  gather.left = static_cast<int>((total + kTransferBytes - 1) / kTransferBytes);
  for (uint64_t begin = 0; begin < total; begin += kTransferBytes) {
    uint64_t length = std::min(kTransferBytes, total - begin);
    Read(gather, file, offset + begin, memory.subspan(begin, length),
         std::min(length, bytes - begin));
  }
  std::unique_lock lock(gather.mutex);
  gather.changed.wait(lock, [&] { return gather.left == 0; });
  return gather.status;
}

}  // namespace ckptd
