#include "client/cpp/outbox.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ckptd {
namespace {

TEST(Outbox, GivesOutInOrder) {
  Outbox<int> outbox;
  outbox.Open();
  outbox.Push(1);
  outbox.Push(2);
  EXPECT_EQ(outbox.Pop(), 1);
  EXPECT_EQ(outbox.Pop(), 2);
}

TEST(Outbox, TakesAndGivesNothingWhileItIsClosed) {
  Outbox<int> outbox;
  outbox.Push(1);
  EXPECT_EQ(outbox.Pop(), std::nullopt);
  outbox.Open();
  outbox.Push(2);
  outbox.Close();
  EXPECT_EQ(outbox.Pop(), std::nullopt);
  outbox.Open();
  outbox.Push(3);
  EXPECT_EQ(outbox.Pop(), 3) << "what was left over is not sent on another stream";
}

TEST(Outbox, AWaiterHearsOfAMessageAndOfTheEnd) {
  Outbox<int> outbox;
  outbox.Open();
  std::thread waiter([&] {
    EXPECT_EQ(outbox.Pop(), 1);
    EXPECT_EQ(outbox.Pop(), std::nullopt);
  });
  outbox.Push(1);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  outbox.Close();
  waiter.join();
}

}  // namespace
}  // namespace ckptd
