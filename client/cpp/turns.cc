#include "client/cpp/turns.h"

namespace ckptd::inline client {

Turns::Turn Turns::Queue() {
  std::lock_guard lock(mutex_);
  open_.insert(next_);
  return static_cast<Turn>(next_++);
}

bool Turns::Await(Turn turn) {
  const auto number = static_cast<uint64_t>(turn);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !open_.contains(number) || *open_.begin() == number; });
  return open_.contains(number);
}

void Turns::EndUnlessFirst(Turn turn) {
  const auto number = static_cast<uint64_t>(turn);
  std::lock_guard lock(mutex_);
  if (open_.empty() || *open_.begin() == number) return;
  open_.erase(number);
  changed_.notify_all();
}

void Turns::End(Turn turn) {
  std::lock_guard lock(mutex_);
  open_.erase(static_cast<uint64_t>(turn));
  changed_.notify_all();
}

}  // namespace ckptd::inline client
