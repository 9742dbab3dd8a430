#include "server/control_loop.h"

#include <algorithm>

#include "storage/base/check.h"

namespace ckptd {
namespace {

// A deadline may lie so far away that the wait for it would overflow, and end at once.
constexpr absl::Duration kWaitMax = absl::Hours(1);

}  // namespace

ControlLoop::ControlLoop(const Clock& clock) : clock_(clock), thread_([this] { Run(); }) {}

ControlLoop::~ControlLoop() { Stop(); }

void ControlLoop::Post(Task task) {
  std::lock_guard lock(mutex_);
  if (stopping_) return;
  tasks_.push_back(std::move(task));
  wake_.notify_one();
}

ControlLoop::TimerId ControlLoop::After(absl::Duration delay, Task task) {
  CKPT_CHECK(std::this_thread::get_id() == thread_.get_id(), "timers belong to the loop");
  absl::Duration deadline = clock_.Monotonic() + delay;
  uint64_t id = next_timer_++;
  timers_.emplace(std::make_pair(deadline, id), std::move(task));
  deadlines_[id] = deadline;
  return TimerId{id};
}

void ControlLoop::Cancel(TimerId timer) {
  auto found = deadlines_.find(static_cast<uint64_t>(timer));
  if (found == deadlines_.end()) return;
  timers_.erase({found->second, found->first});
  deadlines_.erase(found);
}

void ControlLoop::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  tasks_.clear();
  timers_.clear();
}

void ControlLoop::Run() {
  while (true) {
    // Due timers first: a stream of tasks must not starve them.
    while (!timers_.empty() && timers_.begin()->first.first <= clock_.Monotonic()) {
      auto first = timers_.begin();
      Task due = std::move(first->second);
      deadlines_.erase(first->first.second);
      timers_.erase(first);
      std::move(due)();
    }
    Task task;
    {
      std::unique_lock lock(mutex_);
      if (!stopping_ && tasks_.empty()) {
        if (timers_.empty()) {
          wake_.wait(lock);
        } else {
          absl::Duration left = timers_.begin()->first.first - clock_.Monotonic();
          wake_.wait_for(lock, absl::ToChronoNanoseconds(std::min(left, kWaitMax)));
        }
      }
      if (stopping_) return;
      if (tasks_.empty()) continue;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    std::move(task)();
  }
}

}  // namespace ckptd
