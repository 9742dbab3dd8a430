#include "storage/disk/uring_disk.h"

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/unique_fd.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr unsigned kSlotCount = 4096;  // Registered ranges of all attached memory.
constexpr size_t kRangeMax = kGiB;     // Of one registered range; a larger one is EFAULT.
constexpr uint64_t kWakeUp =
    0;  // user_data of the eventfd's read; others are a Transfer's address.

// The table of ranges that are registered with a ring. Thread-safe.
class RegisteredRanges {
 public:
  explicit RegisteredRanges(io_uring& ring) : ring_(ring) {}

  // Makes the (empty) table in the kernel, and tries it with one page.
  absl::Status Init() {
    int result = io_uring_register_buffers_sparse(&ring_, kSlotCount);
    if (result < 0) return ErrnoStatus(-result, "io_uring_register_buffers_sparse");
    for (unsigned slot = kSlotCount; slot > 0; --slot) free_slots_.push_back(slot - 1);
    alignas(4096) static std::byte page[4096];
    RETURN_IF_ERROR(Add(page));
    Remove(page);
    return absl::OkStatus();
  }

  // Registers all of `memory` or nothing.
  absl::Status Add(std::span<std::byte> memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t begin = 0; begin < memory.size(); begin += kRangeMax) {
      absl::Status added =
          AddRange(memory.subspan(begin, std::min(kRangeMax, memory.size() - begin)));
      if (!added.ok()) {
        RemoveRanges(memory.first(begin));
        return added;
      }
    }
    return absl::OkStatus();
  }

  void Remove(std::span<std::byte> memory) {
    std::lock_guard<std::mutex> lock(mutex_);
    RemoveRanges(memory);
  }

  // The slot of the range that holds all of these bytes, or -1.
  int Find(const std::byte* data, size_t length) const {
    std::lock_guard<std::mutex> lock(mutex_);
    auto next = ranges_.upper_bound(data);
    if (next == ranges_.begin()) return -1;
    const auto& [begin, range] = *std::prev(next);
    return data + length <= begin + range.length ? static_cast<int>(range.slot) : -1;
  }

  bool empty() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return ranges_.empty();
  }

 private:
  struct Range {
    size_t length;
    unsigned slot;
  };

  absl::Status AddRange(std::span<std::byte> memory) {
    if (free_slots_.empty()) return absl::ResourceExhaustedError("every slot is in use");
    iovec range = {.iov_base = memory.data(), .iov_len = memory.size()};
    __u64 tag = 0;
    int result = io_uring_register_buffers_update_tag(&ring_, free_slots_.back(), &range, &tag, 1);
    if (result < 0) {
      return ErrnoStatus(-result, absl::StrCat("register ", HumanSize(memory.size())));
    }
    ranges_[memory.data()] = {.length = memory.size(), .slot = free_slots_.back()};
    free_slots_.pop_back();
    return absl::OkStatus();
  }

  void RemoveRanges(std::span<std::byte> memory) {
    for (size_t begin = 0; begin < memory.size(); begin += kRangeMax) {
      auto found = ranges_.find(memory.data() + begin);
      if (found == ranges_.end()) continue;
      iovec nothing = {.iov_base = nullptr, .iov_len = 0};
      __u64 tag = 0;
      io_uring_register_buffers_update_tag(&ring_, found->second.slot, &nothing, &tag, 1);
      free_slots_.push_back(found->second.slot);
      ranges_.erase(found);
    }
  }

  io_uring& ring_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, Range> ranges_;  // By address.
  std::vector<unsigned> free_slots_;
};

class UringEngine final : public TransferEngine {
 public:
  UringEngine(std::string reason, FixedBuffers fixed_buffers)
      : reason_(std::move(reason)), fixed_buffers_(fixed_buffers) {}

  // Called once, before everything else.
  absl::Status Init() {
    wake_up_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!wake_up_.valid()) return ErrnoStatus(errno, "eventfd");
    // One entry more than transfers in flight: the eventfd's read.
    int result = io_uring_queue_init(2 * kUringDepth, &ring_, 0);
    if (result < 0) return ErrnoStatus(-result, "io_uring_setup");
    ring_valid_ = true;
    RETURN_IF_ERROR(CheckOperations());
    if (fixed_buffers_ == FixedBuffers::kOff) {
      registering_ = absl::FailedPreconditionError("turned off");
    } else {
      registering_ = ranges_.Init();
      if (fixed_buffers_ == FixedBuffers::kNeed) RETURN_IF_ERROR(registering_);
    }
    can_register_ = registering_.ok();
    thread_ = std::thread([this] { Run(); });
    ::pthread_setname_np(thread_.native_handle(), "ckptd-uring");
    return absl::OkStatus();
  }

  ~UringEngine() override {
    if (thread_.joinable()) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        stopping_ = true;
      }
      Signal();
      thread_.join();
    }
    if (ring_valid_) io_uring_queue_exit(&ring_);
  }

  void Start(Transfer transfer) override {
    bool signal;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_back(std::make_unique<Transfer>(std::move(transfer)));
      signal = !std::exchange(signalled_, true);
    }
    if (signal) Signal();
  }

  void AttachMemory(std::span<std::byte> memory) override {
    if (!can_register_) return;
    absl::Status added = ranges_.Add(memory);
    std::lock_guard<std::mutex> lock(mutex_);
    registering_ = added;
  }

  void DetachMemory(std::span<std::byte> memory) override {
    if (can_register_) ranges_.Remove(memory);
  }

  void Describe(DiskFacts& facts) const override {
    facts.engine = "uring";
    facts.engine_reason = reason_;
    facts.fixed_buffers = !ranges_.empty();
    std::lock_guard<std::mutex> lock(mutex_);
    if (facts.fixed_buffers) {
      facts.fixed_buffers_reason = "registered";
    } else if (registering_.ok()) {
      facts.fixed_buffers_reason = "no memory is attached";
    } else {
      facts.fixed_buffers_reason = std::string(registering_.message());
    }
  }

 private:
  absl::Status CheckOperations() {
    io_uring_probe* probe = io_uring_get_probe_ring(&ring_);
    if (probe == nullptr) return ErrnoStatus(ENOSYS, "io_uring_register_probe");
    bool enough = io_uring_opcode_supported(probe, IORING_OP_READ) &&
                  io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    return enough ? absl::OkStatus() : ErrnoStatus(ENOSYS, "io_uring without read and write");
  }

  void Signal() {
    uint64_t one = 1;
    while (::write(wake_up_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

  // The ring's thread, from here on.

  void Run() {
    WatchWakeUp();
    while (true) {
      bool stopping = SubmitQueued();
      if (stopping && in_flight_ == 0) return;
      int result = io_uring_submit_and_wait(&ring_, 1);
      // EAGAIN, EBUSY: the kernel is short of memory or behind with completions; reaping helps.
      CKPT_CHECK(result >= 0 || result == -EINTR || result == -EAGAIN || result == -EBUSY,
                 "the ring is usable");
      Reap();
    }
  }

  void WatchWakeUp() {
    io_uring_sqe* entry = NextEntry();
    io_uring_prep_read(entry, wake_up_.get(), &wake_up_count_, sizeof(wake_up_count_), 0);
    io_uring_sqe_set_data64(entry, kWakeUp);
  }

  // Never null: the queue has room for everything that may be in flight.
  io_uring_sqe* NextEntry() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    CKPT_CHECK(entry != nullptr, "the submission queue holds all transfers in flight");
    return entry;
  }

  // Fills the ring from the queue. True if the engine is stopping and the queue is empty.
  bool SubmitQueued() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (in_flight_ < kUringDepth && !queue_.empty()) {
      std::unique_ptr<Transfer> transfer = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      Submit(std::move(transfer));
      lock.lock();
    }
    return stopping_ && queue_.empty();
  }

  void Submit(std::unique_ptr<Transfer> transfer) {
    io_uring_sqe* entry = NextEntry();
    const Transfer& t = *transfer;
    unsigned length = static_cast<unsigned>(t.length);
    int slot = can_register_ ? ranges_.Find(t.data, t.length) : -1;
    if (t.kind == Transfer::Kind::kWrite) {
      if (slot >= 0) {
        io_uring_prep_write_fixed(entry, t.fd, t.data, length, t.offset, slot);
      } else {
        io_uring_prep_write(entry, t.fd, t.data, length, t.offset);
      }
    } else if (slot >= 0) {
      io_uring_prep_read_fixed(entry, t.fd, t.data, length, t.offset, slot);
    } else {
      io_uring_prep_read(entry, t.fd, t.data, length, t.offset);
    }
    io_uring_sqe_set_data(entry, transfer.release());
    ++in_flight_;
  }

  void Reap() {
    io_uring_cqe* completion = nullptr;
    while (io_uring_peek_cqe(&ring_, &completion) == 0) {
      uint64_t data = io_uring_cqe_get_data64(completion);
      int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      if (data == kWakeUp) {
        {
          std::lock_guard<std::mutex> lock(mutex_);
          signalled_ = false;
        }
        WatchWakeUp();
        continue;
      }
      --in_flight_;
      Finish(std::unique_ptr<Transfer>(reinterpret_cast<Transfer*>(data)), result);
    }
  }

  void Finish(std::unique_ptr<Transfer> transfer, int result) {
    if (result == -EINTR || result == -EAGAIN) {
      std::lock_guard<std::mutex> lock(mutex_);
      queue_.push_front(std::move(transfer));
      return;
    }
    if (result >= 0) {
      std::move(transfer->done)(static_cast<size_t>(result));
      return;
    }
    bool write = transfer->kind == Transfer::Kind::kWrite;
    std::move(transfer->done)(
        ErrnoStatus(-result, absl::StrCat(write ? "write " : "read ", transfer->path)));
  }

  const std::string reason_;
  const FixedBuffers fixed_buffers_;
  UniqueFd wake_up_;
  io_uring ring_ = {};
  bool ring_valid_ = false;
  bool can_register_ = false;  // Constant once the thread runs.
  RegisteredRanges ranges_{ring_};
  std::thread thread_;

  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<Transfer>> queue_;
  bool signalled_ = false;  // The eventfd was written since the ring's thread last read it.
  bool stopping_ = false;
  absl::Status registering_;  // What became of the last attempt to register memory.

  // Of the ring's thread alone.
  unsigned in_flight_ = 0;
  uint64_t wake_up_count_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TransferEngine>> MakeUringEngine(std::string reason,
                                                                FixedBuffers fixed_buffers) {
  auto engine = std::make_unique<UringEngine>(std::move(reason), fixed_buffers);
  RETURN_IF_ERROR(engine->Init());
  return engine;
}

}  // namespace ckptd
