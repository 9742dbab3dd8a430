#include "client/cpp/worker_pool.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

TEST(WorkerPool, DoesEveryPartOnce) {
  for (uint32_t threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (size_t count : {0, 1, 2, 3, 1000}) {
      std::vector<std::atomic<int>> done(count);
      pool.Run(count, [&](size_t i) { ++done[i]; });
      for (const std::atomic<int>& n : done) ASSERT_EQ(n, 1);
    }
  }
}

TEST(WorkerPool, RunsJobsOfSeveralCallers) {
  WorkerPool pool(3);
  std::atomic<int> parts = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int job = 0; job < 100; ++job) pool.Run(7, [&](size_t) { ++parts; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(parts, 4 * 100 * 7);
}

}  // namespace
}  // namespace ckptd
