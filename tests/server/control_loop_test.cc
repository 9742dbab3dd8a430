#include "server/control_loop.h"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "storage/base/clock.h"
#include "tests/support/fake_clock.h"

namespace ckptd {
namespace {

// Waits until everything that was posted before has run.
void Settle(ControlLoop& loop) {
  std::promise<void> done;
  loop.Post([&done] { done.set_value(); });
  done.get_future().wait();
}

TEST(ControlLoop, RunsTasksInTheOrderOfTheirPostingOnOneThread) {
  ControlLoop loop(SystemClock());
  std::vector<int> order;
  std::vector<std::thread::id> threads;
  for (int i = 0; i < 1000; ++i) {
    loop.Post([&, i] {
      order.push_back(i);
      threads.push_back(std::this_thread::get_id());
    });
  }
  Settle(loop);
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(order[i], i);
    EXPECT_EQ(threads[i], threads[0]);
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
}

TEST(ControlLoop, KeepsTheOrderOfEachOfSeveralThreads) {
  ControlLoop loop(SystemClock());
  std::vector<int> last(4, -1);
  bool ordered = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        loop.Post([&, t, i] {
          ordered = ordered && last[t] == i - 1;
          last[t] = i;
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Settle(loop);
  EXPECT_TRUE(ordered);
  EXPECT_EQ(last, std::vector<int>(4, 499));
}

TEST(ControlLoop, RunsTimersByTheirDeadlineAndNotBefore) {
  FakeClock clock;
  ControlLoop loop(clock);
  std::string fired;
  loop.Post([&] {
    loop.After(absl::Seconds(2), [&] { fired += 'b'; });
    loop.After(absl::Seconds(1), [&] { fired += 'a'; });
    loop.After(absl::Seconds(2), [&] { fired += 'c'; });  // The same deadline: in order.
    loop.After(absl::Seconds(3), [&] { fired += 'd'; });
  });
  Settle(loop);
  EXPECT_EQ(fired, "");
  clock.Advance(absl::Seconds(1));
  Settle(loop);
  Settle(loop);
  EXPECT_EQ(fired, "a");
  clock.Advance(absl::Seconds(1));
  Settle(loop);
  Settle(loop);
  EXPECT_EQ(fired, "abc");
  clock.Advance(absl::Hours(1));
  Settle(loop);
  Settle(loop);
  EXPECT_EQ(fired, "abcd");
}

TEST(ControlLoop, WakesForATimerWithNoTaskComing) {
  ControlLoop loop(SystemClock());
  std::promise<void> fired;
  loop.Post([&] { loop.After(absl::Milliseconds(5), [&] { fired.set_value(); }); });
  EXPECT_EQ(fired.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(ControlLoop, WakesForATimerThatComesBeforeTheOneItWaitsFor) {
  ControlLoop loop(SystemClock());
  loop.Post([&] { loop.After(absl::Hours(5), [] {}); });
  Settle(loop);
  std::promise<void> fired;
  loop.Post([&] { loop.After(absl::Milliseconds(5), [&] { fired.set_value(); }); });
  EXPECT_EQ(fired.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(ControlLoop, SleepsThoughATimerLiesFurtherAwayThanAClockCanCount) {
  std::atomic<int> looks = 0;
  class CountingClock : public FakeClock {
   public:
    explicit CountingClock(std::atomic<int>& looks) : looks_(looks) {}
    absl::Duration Monotonic() const override {
      ++looks_;
      return FakeClock::Monotonic();
    }
    std::atomic<int>& looks_;
  } clock(looks);
  ControlLoop loop(clock);
  loop.Post([&] { loop.After(absl::InfiniteDuration(), [] {}); });
  Settle(loop);
  int before = looks;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(looks - before, 10) << "it spins";
}

TEST(ControlLoop, CancelledTimersDoNotRun) {
  FakeClock clock;
  ControlLoop loop(clock);
  std::string fired;
  loop.Post([&] {
    ControlLoop::TimerId first = loop.After(absl::Seconds(1), [&] { fired += 'a'; });
    loop.After(absl::Seconds(1), [&] { fired += 'b'; });
    loop.Cancel(first);
    loop.Cancel(first);  // Twice, and none: nothing happens.
    loop.Cancel(ControlLoop::TimerId::kNone);
  });
  Settle(loop);
  clock.Advance(absl::Seconds(2));
  Settle(loop);
  Settle(loop);
  EXPECT_EQ(fired, "b");
}

TEST(ControlLoop, ATimerCancelsAnotherOneOfTheSameDeadline) {
  FakeClock clock;
  ControlLoop loop(clock);
  std::string fired;
  ControlLoop::TimerId second{};
  loop.Post([&] {
    loop.After(absl::Seconds(1), [&] {
      fired += 'a';
      loop.Cancel(second);
    });
    second = loop.After(absl::Seconds(1), [&] { fired += 'b'; });
  });
  Settle(loop);
  clock.Advance(absl::Seconds(2));
  Settle(loop);
  Settle(loop);
  EXPECT_EQ(fired, "a");
}

TEST(ControlLoop, AStreamOfTasksDoesNotStarveTimers) {
  ControlLoop loop(SystemClock());
  std::atomic<bool> fired = false;
  std::atomic<int> ran = 0;
  std::function<void()> again = [&] {
    ++ran;
    if (!fired) loop.Post([&] { again(); });  // There is always another one.
  };
  loop.Post([&] {
    loop.After(absl::Milliseconds(20), [&] { fired = true; });
    loop.Post([&] { again(); });
  });
  for (int i = 0; i < 2000 && !fired; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(fired);
  EXPECT_GT(ran, 10);
  Settle(loop);
  Settle(loop);
}

TEST(ControlLoop, StopWaitsForTheRunningTaskAndDropsTheRest) {
  auto dropped = std::make_shared<int>(0);
  std::atomic<bool> finished = false, ran = false;
  std::promise<void> started;
  {
    ControlLoop loop(SystemClock());
    loop.Post([&] {
      loop.After(absl::ZeroDuration(), [&, dropped] { ran = true; });
      started.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      loop.Post([&, dropped] { ran = true; });
      // Nothing of these two runs: Stop() has been called by now.
      while (!finished) {
        loop.Post([&, dropped] { ran = true; });
        finished = true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    });
    started.get_future().wait();
    loop.Stop();
    EXPECT_TRUE(finished);
    loop.Post([&, dropped] { ran = true; });
    loop.Stop();  // Again, and by the destructor: nothing.
  }
  EXPECT_EQ(dropped.use_count(), 1) << "what was dropped is destroyed";
}

}  // namespace
}  // namespace ckptd
