#include "server/retention.h"

#include "gtest/gtest.h"

namespace ckptd {
namespace {

std::vector<std::string> Ids(const std::vector<Published>& published) {
  std::vector<std::string> ids;
  for (const Published& one : published) ids.push_back(one.id);
  return ids;
}

TEST(BeyondNewest, AreTheOldestBySequenceAndThenByAttempt) {
  std::vector<Published> all = {{"c", {3, 1}}, {"a", {1, 9}}, {"b2", {2, 2}}, {"b1", {2, 1}}};
  EXPECT_EQ(Ids(BeyondNewest(all, 2)), (std::vector<std::string>{"a", "b1"}));
  EXPECT_EQ(Ids(BeyondNewest(all, 1)), (std::vector<std::string>{"a", "b1", "b2"}));
}

TEST(BeyondNewest, IsNothingIfThereAreNoMoreOrAllAreKept) {
  std::vector<Published> all = {{"a", {1, 1}}, {"b", {2, 1}}};
  EXPECT_TRUE(BeyondNewest(all, 2).empty());
  EXPECT_TRUE(BeyondNewest(all, 3).empty());
  EXPECT_TRUE(BeyondNewest(all, 0).empty());
  EXPECT_TRUE(BeyondNewest({}, 1).empty());
}

TEST(KeepLast, OfARankWinsOverTheDaemonsAndOfTwoRanksTheOneThatDeletesLess) {
  EXPECT_EQ(KeepLastOf(3, 10), 3u);
  EXPECT_EQ(KeepLastOf(3, 0), 3u);
  EXPECT_EQ(KeepLastOf(0, 10), 10u);
  EXPECT_EQ(KeepLastOf(0, 0), 0u);
  EXPECT_EQ(KeepMore(2, 5), 5u);
  EXPECT_EQ(KeepMore(5, 2), 5u);
  EXPECT_EQ(KeepMore(0, 2), 0u) << "0 keeps all";
  EXPECT_EQ(KeepMore(2, 0), 0u);
}

TEST(RunningFull, IsLessThanTwoCheckpointsFree) {
  EXPECT_TRUE(IsRunningFull(199, 100));
  EXPECT_FALSE(IsRunningFull(200, 100));
  EXPECT_FALSE(IsRunningFull(0, 0));
  EXPECT_TRUE(IsRunningFull(UINT64_MAX, UINT64_MAX));
}

}  // namespace
}  // namespace ckptd
