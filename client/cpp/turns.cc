#include "client/cpp/turns.h"

namespace ckptd::inline client {

Turns::Turn Turns::Queue() {
  std::lock_guard lock(mutex_);
  open_.insert(next_);
  return static_cast<Turn>(next_++);
}

void Turns::Await(Turn turn) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock,
                [&] { return open_.empty() || *open_.begin() >= static_cast<uint64_t>(turn); });
}

void Turns::End(Turn turn) {
  std::lock_guard lock(mutex_);
  open_.erase(static_cast<uint64_t>(turn));
  changed_.notify_all();
}

}  // namespace ckptd::inline client
