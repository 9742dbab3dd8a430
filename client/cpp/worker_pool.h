// WorkerPool: a few threads that do the parts of one job together with its caller.
#ifndef CKPTD_CLIENT_CPP_WORKER_POOL_H_
#define CKPTD_CLIENT_CPP_WORKER_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace ckptd::inline client {

// Thread-safe: jobs of several callers run one after the other.
class WorkerPool {
 public:
  // `threads` includes the caller of Run(); at least 1. Fewer if the system gives no more.
  explicit WorkerPool(uint32_t threads);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  // Calls part(0) … part(count - 1), each once, on the caller and the pool's threads, and returns
  // when all have returned. Parts start in ascending order.
  void Run(size_t count, absl::FunctionRef<void(size_t)> part);

 private:
  struct Job {
    absl::FunctionRef<void(size_t)> part;
    size_t count;
    std::atomic<size_t> next{0};
  };

  void Work();
  static void DoParts(Job& job);

  std::mutex run_mutex_;  // Held by the caller whose job runs.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  Job* job_ = nullptr;  // Guarded by mutex_, as all below.
  uint64_t job_number_ = 0;
  uint32_t working_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_WORKER_POOL_H_
