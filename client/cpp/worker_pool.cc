#include "client/cpp/worker_pool.h"

#include <utility>

#include "client/cpp/start_thread.h"

namespace ckptd::inline client {

WorkerPool::WorkerPool(uint32_t threads) {
  for (uint32_t i = 1; i < threads; ++i) {
    absl::StatusOr<std::thread> thread = StartThread([this] { Work(); });
    if (!thread.ok()) return;
    threads_.push_back(*std::move(thread));
  }
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::DoParts(Job& job) {
  for (;;) {
    const size_t index = job.next.fetch_add(1, std::memory_order_relaxed);
    if (index >= job.count) return;
    job.part(index);
  }
}

void WorkerPool::Run(size_t count, absl::FunctionRef<void(size_t)> part) {
  std::lock_guard run_lock(run_mutex_);
  Job job{part, count};
  if (count > 1 && !threads_.empty()) {
    std::lock_guard lock(mutex_);
    job_ = &job;
    ++job_number_;
    wake_.notify_all();
  }
  DoParts(job);
  std::unique_lock lock(mutex_);
  job_ = nullptr;  // A thread that wakes up now has nothing to do.
  idle_.wait(lock, [this] { return working_ == 0; });
}

void WorkerPool::Work() {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || (job_ != nullptr && job_number_ != seen); });
    if (stopping_) return;
    seen = job_number_;
    Job* job = job_;
    ++working_;
    lock.unlock();
    DoParts(*job);
    lock.lock();
    if (--working_ == 0) idle_.notify_all();
  }
}

}  // namespace ckptd::inline client
