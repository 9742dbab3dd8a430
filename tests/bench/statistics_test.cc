#include "tests/bench/statistics.h"

#include "gtest/gtest.h"

namespace ckptd::bench {
namespace {

using Kind = Goal::Kind;

TEST(Statistics, AQuantileLiesBetweenItsNeighbours) {
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(Median(std::vector<double>{4, 1, 2, 3}), 2.5);
  EXPECT_DOUBLE_EQ(Quantile({10, 20}, 0.25), 12.5);
  EXPECT_DOUBLE_EQ(Quantile({7}, 0.9), 7);
  EXPECT_DOUBLE_EQ(Quantile({3, 1, 2}, 1), 3);
}

TEST(Statistics, SpreadIsAPartOfTheMedian) {
  EXPECT_DOUBLE_EQ(Spread(std::vector<double>{5, 5, 5}), 0);
  EXPECT_DOUBLE_EQ(Spread(std::vector<double>{0, 10, 20}), 1.6);
}

TEST(Compare, OneOutlierMovesTheIntervalAndNotTheFigure) {
  const std::vector<double> ours = {2, 2, 2, 2, 40}, yardstick = {4, 4, 4, 4, 4};
  const Figure figure = Compare(ours, yardstick, {});
  EXPECT_DOUBLE_EQ(figure.ratio, 0.5);
  EXPECT_DOUBLE_EQ(figure.low, 0.5);
  EXPECT_GE(figure.high, 0.5);
}

TEST(Compare, TheIntervalHoldsTheFigureAndIsTheSameEachTime) {
  const std::vector<double> ours = {1.0, 1.2, 0.9, 1.4, 1.1}, yardstick = {1.1, 1.0, 1.3, 0.9, 1.2};
  const Figure figure = Compare(ours, yardstick, {});
  EXPECT_LT(figure.low, figure.ratio);
  EXPECT_GT(figure.high, figure.ratio);
  const Figure again = Compare(ours, yardstick, {});
  EXPECT_EQ(figure.low, again.low);
  EXPECT_EQ(figure.high, again.high);
}

TEST(Compare, AnAllowanceIsTakenFromOurTime) {
  const Figure figure = Compare(std::vector<double>{1.5}, std::vector<double>{2},
                                {.kind = Kind::kAtMost, .figure = 1, .allowance = 0.5});
  EXPECT_DOUBLE_EQ(figure.ratio, 0.5);
}

TEST(Compare, ARatioOfRatesIsThatOfTheTimesTurnedOver) {
  const Figure figure = Compare(std::vector<double>{2}, std::vector<double>{1},
                                {.kind = Kind::kAtLeast, .figure = 0.95});
  EXPECT_DOUBLE_EQ(figure.ratio, 0.5);
}

TEST(Meets, NeedsTheBetterEndAtTheGoalAndTheFigureNearIt) {
  const Goal most = {.kind = Kind::kAtMost, .figure = 0.9};
  EXPECT_TRUE(Meets({.ratio = 0.8, .low = 0.7, .high = 1.2}, most));
  EXPECT_TRUE(Meets({.ratio = 0.94, .low = 0.89, .high = 1.2}, most));
  EXPECT_FALSE(Meets({.ratio = 0.94, .low = 0.91, .high = 0.97}, most));
  EXPECT_FALSE(Meets({.ratio = 0.96, .low = 0.5, .high = 1.5}, most));
  const Goal least = {.kind = Kind::kAtLeast, .figure = 0.95};
  EXPECT_TRUE(Meets({.ratio = 0.97, .low = 0.5, .high = 1}, least));
  EXPECT_TRUE(Meets({.ratio = 0.91, .low = 0.5, .high = 0.96}, least));
  EXPECT_FALSE(Meets({.ratio = 0.91, .low = 0.9, .high = 0.94}, least));
  EXPECT_FALSE(Meets({.ratio = 0.89, .low = 0.5, .high = 1.5}, least));
}

}  // namespace
}  // namespace ckptd::bench
