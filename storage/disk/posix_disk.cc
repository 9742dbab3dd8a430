#include "storage/disk/posix_disk.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

absl::StatusOr<size_t> Move(const Transfer& transfer) {
  bool write = transfer.kind == Transfer::Kind::kWrite;
  off_t offset = static_cast<off_t>(transfer.offset);
  while (true) {
    ssize_t moved = write ? ::pwrite(transfer.fd, transfer.data, transfer.length, offset)
                          : ::pread(transfer.fd, transfer.data, transfer.length, offset);
    if (moved >= 0) return static_cast<size_t>(moved);
    if (errno == EINTR) continue;
    return ErrnoStatus(errno, absl::StrCat(write ? "write " : "read ", transfer.path));
  }
}

class PosixEngine final : public TransferEngine {
 public:
  PosixEngine(std::string reason, std::string fixed_buffers_reason)
      : reason_(std::move(reason)), fixed_buffers_reason_(std::move(fixed_buffers_reason)) {
    for (int i = 0; i < kPosixThreads; ++i) {
      threads_.emplace_back([this] { Run(); });
      ::pthread_setname_np(threads_.back().native_handle(), "ckptd-disk");
    }
  }

  ~PosixEngine() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void Start(Transfer transfer) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::move(transfer));
    }
    changed_.notify_one();
  }

  void AttachMemory(std::span<std::byte>) override {}
  void DetachMemory(std::span<std::byte>) override {}

  void Describe(DiskFacts& facts) const override {
    facts.engine = "posix";
    facts.engine_reason = reason_;
    facts.fixed_buffers = false;
    facts.fixed_buffers_reason = fixed_buffers_reason_;
  }

 private:
  void Run() {
    while (true) {
      Transfer transfer;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        transfer = std::move(queue_.front());
        queue_.pop_front();
      }
      // The path of `transfer` may be gone once `done` runs: the result is complete before.
      absl::StatusOr<size_t> result = Move(transfer);
      std::move(transfer.done)(std::move(result));
    }
  }

  const std::string reason_;
  const std::string fixed_buffers_reason_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Transfer> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<TransferEngine> MakePosixEngine(std::string reason,
                                                std::string fixed_buffers_reason) {
  return std::make_unique<PosixEngine>(std::move(reason), std::move(fixed_buffers_reason));
}

}  // namespace ckptd
