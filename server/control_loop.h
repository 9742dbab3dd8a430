// ControlLoop is the one thread that owns all mutable state of the daemon: sessions, arenas,
// attempts, loads.
//
// Everything else (RPC threads, workers, the side socket) posts closures to it and holds no state
// of ours. What runs on it never waits: no file, no lock that is held for long, no plan of a
// hundred thousand tensors; such work goes to Workers and its result is posted back.
#ifndef CKPTD_SERVER_CONTROL_LOOP_H_
#define CKPTD_SERVER_CONTROL_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "storage/base/clock.h"

namespace ckptd {

class ControlLoop {
 public:
  using Task = absl::AnyInvocable<void() &&>;
  enum class TimerId : uint64_t { kNone = 0 };

  // Starts the thread. `clock` outlives the loop.
  explicit ControlLoop(const Clock& clock);
  ~ControlLoop();  // Stop().

  // From any thread. Tasks run in the order of their posting. Dropped unrun once Stop() was called.
  void Post(Task task);

  // From the loop only. Runs `task` after `delay` unless cancelled; kNone may be cancelled too.
  TimerId After(absl::Duration delay, Task task);
  void Cancel(TimerId timer);

  // From any other thread: waits for the task that is running, ends the thread and drops the rest.
  void Stop();

  const Clock& clock() const { return clock_; }

 private:
  void Run();

  const Clock& clock_;

  std::mutex mutex_;  // Guards the next three.
  std::condition_variable wake_;
  std::deque<Task> tasks_;
  bool stopping_ = false;

  // The loop's own.
  std::map<std::pair<absl::Duration, uint64_t>, Task> timers_;  // By deadline.
  std::map<uint64_t, absl::Duration> deadlines_;
  uint64_t next_timer_ = 1;

  std::thread thread_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_CONTROL_LOOP_H_
