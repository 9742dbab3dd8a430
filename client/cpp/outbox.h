// Outbox holds what is to be sent on a stream, so that only the thread that sends ever waits for a
// daemon which does not read.
#ifndef CKPTD_CLIENT_CPP_OUTBOX_H_
#define CKPTD_CLIENT_CPP_OUTBOX_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace ckptd::inline client {

// Thread-safe. Closed at first.
template <typename Message>
class Outbox {
 public:
  // For a new stream: empty.
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    queue_.clear();
  }

  // From now on nothing is taken and nothing given out.
  void Close() {
    {
      std::lock_guard lock(mutex_);
      open_ = false;
    }
    changed_.notify_all();
  }

  // Never waits. A message for a closed outbox is dropped.
  void Push(Message message) {
    {
      std::lock_guard lock(mutex_);
      if (!open_) return;
      queue_.push_back(std::move(message));
    }
    changed_.notify_one();
  }

  // Waits for the next message; none once closed.
  std::optional<Message> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !open_ || !queue_.empty(); });
    if (!open_) return std::nullopt;
    Message message = std::move(queue_.front());
    queue_.pop_front();
    return message;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Message> queue_;  // Guarded by mutex_, as the next.
  bool open_ = false;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_OUTBOX_H_
