#include "server/workers.h"

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "gtest/gtest.h"

namespace ckptd {
namespace {

TEST(Workers, OneThreadRunsJobsInOrder) {
  Workers workers(1);
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) workers.Post([&, i] { order.push_back(i); });
  workers.Post([&] { done.set_value(); });
  done.get_future().wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(Workers, SeveralThreadsRunJobsAtOnce) {
  Workers workers(3);
  std::promise<void> all_there;
  std::shared_future<void> meet = all_there.get_future().share();
  std::atomic<int> there = 0, done = 0;
  std::promise<void> all_done;
  for (int i = 0; i < 3; ++i) {
    workers.Post([&, meet] {
      if (++there == 3) all_there.set_value();
      meet.wait();  // For ever, if they came one after the other.
      if (++done == 3) all_done.set_value();
    });
  }
  EXPECT_EQ(all_done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Workers, StopWaitsForRunningJobsAndDropsTheOthers) {
  auto token = std::make_shared<int>(0);
  Workers workers(1);
  std::promise<void> started, go;
  std::atomic<bool> finished = false, ran = false;
  workers.Post([&] {
    started.set_value();
    go.get_future().wait();
    finished = true;
  });
  workers.Post([&ran, token] { ran = true; });
  started.get_future().wait();
  std::thread stopper([&] { workers.Stop(); });
  // Posted after Stop() has begun, or just before: dropped both ways.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  workers.Post([&ran, token] { ran = true; });
  go.set_value();
  stopper.join();
  EXPECT_TRUE(finished);
  EXPECT_FALSE(ran);
  EXPECT_EQ(token.use_count(), 1);
  workers.Post([&ran, token] { ran = true; });
  EXPECT_EQ(token.use_count(), 1);
  workers.Stop();
}

TEST(Workers, AJobMayPostAnother) {
  Workers workers(1);
  std::promise<void> done;
  workers.Post([&] { workers.Post([&] { done.set_value(); }); });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace ckptd
