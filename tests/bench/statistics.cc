#include "tests/bench/statistics.h"

#include <algorithm>
#include <cstddef>
#include <random>

#include "storage/base/check.h"

namespace ckptd::bench {
namespace {

constexpr int kResamples = 2000;
constexpr unsigned kSeed = 1;
constexpr double kTolerance = 0.05;

double FigureOf(double ours, double yardstick, const Goal& goal) {
  if (goal.kind == Goal::Kind::kAtLeast) return yardstick / ours;
  return (ours - goal.allowance) / yardstick;
}

}  // namespace

double Quantile(std::vector<double> values, double part) {
  CKPT_CHECK(!values.empty(), "there is a sample");
  std::sort(values.begin(), values.end());
  const double place = part * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double Median(std::span<const double> values) {
  return Quantile({values.begin(), values.end()}, 0.5);
}

double Spread(std::span<const double> values) {
  const std::vector<double> copy(values.begin(), values.end());
  return (Quantile(copy, 0.9) - Quantile(copy, 0.1)) / Median(values);
}

Figure Compare(std::span<const double> ours, std::span<const double> yardstick, const Goal& goal) {
  CKPT_CHECK(ours.size() == yardstick.size(), "every round measured both sides");
  std::mt19937 random(kSeed);
  std::uniform_int_distribution<size_t> round(0, ours.size() - 1);
  std::vector<double> figures, drawn_ours(ours.size()), drawn_yardstick(ours.size());
  for (int i = 0; i < kResamples; ++i) {
    for (size_t k = 0; k < ours.size(); ++k) {
      const size_t drawn = round(random);
      drawn_ours[k] = ours[drawn];
      drawn_yardstick[k] = yardstick[drawn];
    }
    figures.push_back(FigureOf(Median(drawn_ours), Median(drawn_yardstick), goal));
  }
  return {.ratio = FigureOf(Median(ours), Median(yardstick), goal),
          .low = Quantile(figures, 0.05),
          .high = Quantile(figures, 0.95)};
}

bool Meets(const Figure& figure, const Goal& goal) {
  if (goal.kind == Goal::Kind::kAtLeast) {
    return figure.high >= goal.figure && figure.ratio >= goal.figure - kTolerance;
  }
  return figure.low <= goal.figure && figure.ratio <= goal.figure + kTolerance;
}

}  // namespace ckptd::bench
