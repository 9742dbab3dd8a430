#include "storage/disk/disk.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

// One transfer's result, waited for by the thread that started it.
class Outcome {
 public:
  TransferDone Receiver() {
    return [this](absl::StatusOr<size_t> result) {
      // Notified under the lock: the waiter may destroy this object as soon as it can take the
      // lock.
      std::lock_guard<std::mutex> lock(mutex_);
      result_ = std::move(result);
      arrived_.notify_one();
    };
  }

  absl::StatusOr<size_t> Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    arrived_.wait(lock, [this] { return result_.has_value(); });
    return *std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<absl::StatusOr<size_t>> result_;
};

}  // namespace

absl::Status WriteAll(File& file, uint64_t offset, std::span<const std::byte> data) {
  while (!data.empty()) {
    Outcome outcome;
    file.Write(offset, data, outcome.Receiver());
    ASSIGN_OR_RETURN(size_t moved, outcome.Wait());
    if (moved == 0) return absl::InternalError("write: no bytes were taken");
    offset += moved;
    data = data.subspan(moved);
  }
  return absl::OkStatus();
}

absl::Status ReadAll(File& file, uint64_t offset, std::span<std::byte> data) {
  while (!data.empty()) {
    Outcome outcome;
    file.Read(offset, data, outcome.Receiver());
    ASSIGN_OR_RETURN(size_t moved, outcome.Wait());
    if (moved == 0) {
      return absl::OutOfRangeError(absl::StrCat("read: the file ends at ", offset, ", ",
                                                data.size(),
                                                " bytes before the end of what was asked for"));
    }
    offset += moved;
    data = data.subspan(moved);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(Disk& disk, absl::string_view path,
                                          uint64_t limit_bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, disk.OpenForRead(path));
  ASSIGN_OR_RETURN(uint64_t size_bytes, file->Size());
  if (size_bytes > limit_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("read ", path, ": the file has ", size_bytes,
                                                     " bytes, at most ", limit_bytes,
                                                     " are expected"));
  }
  std::string content(size_bytes, '\0');
  RETURN_IF_ERROR(WithContext(ReadAll(*file, 0, std::as_writable_bytes(std::span(content))), path));
  return content;
}

}  // namespace ckptd
