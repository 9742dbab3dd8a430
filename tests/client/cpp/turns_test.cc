#include "client/cpp/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace ckptd {
namespace {

TEST(Turns, ComeInTheOrderOfTheQueue) {
  Turns turns;
  std::vector<Turns::Turn> queued;
  for (int i = 0; i < 5; ++i) queued.push_back(turns.Queue());
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 4; i >= 0; --i) {
    threads.emplace_back([&, i] {
      turns.Await(queued[i]);
      order.push_back(i);
      turns.End(queued[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Turns, OneThatGivesUpHoldsNobody) {
  Turns turns;
  const Turns::Turn first = turns.Queue();
  const Turns::Turn second = turns.Queue();
  turns.End(first);
  turns.End(first);
  turns.Await(second);
}

TEST(Turns, OneThatIsEndedBeforeItComesIsNotAwaited) {
  Turns turns;
  const Turns::Turn first = turns.Queue();
  const Turns::Turn second = turns.Queue();
  turns.EndUnlessFirst(first);
  EXPECT_TRUE(turns.Await(first)) << "it had come";
  std::thread waiter([&] { EXPECT_FALSE(turns.Await(second)); });
  turns.EndUnlessFirst(second);
  waiter.join();
  turns.End(first);
  EXPECT_FALSE(turns.Await(second));
}

}  // namespace
}  // namespace ckptd
