// Workers: a few threads that run what must not run on the control loop: file calls, checksums,
// plans. A job is complete in itself (it owns or pins what it reads) and posts its result to the
// loop as its last act.
#ifndef CKPTD_SERVER_WORKERS_H_
#define CKPTD_SERVER_WORKERS_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace ckptd {

class Workers {
 public:
  using Job = absl::AnyInvocable<void() &&>;

  explicit Workers(int threads);
  ~Workers();  // Stop().

  // From any thread; jobs start in order. Dropped unrun once Stop() was called.
  void Post(Job job);

  // Waits for the running jobs, drops the others.
  void Stop();

 private:
  void Run();

  std::mutex mutex_;  // Guards the next three.
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_WORKERS_H_
