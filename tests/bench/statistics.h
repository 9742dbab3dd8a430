// Statistics of the benchmark: medians, the ratio of two of them with its bootstrap interval, and
// the rule by which a goal is met. Pure functions; the same samples give the same figures.
#ifndef CKPTD_TESTS_BENCH_STATISTICS_H_
#define CKPTD_TESTS_BENCH_STATISTICS_H_

#include <span>
#include <vector>

namespace ckptd::bench {

// Of at least one value; between two values it is interpolated. 0 <= part <= 1.
double Quantile(std::vector<double> values, double part);
double Median(std::span<const double> values);

// How far the values lie apart: the 90th percentile minus the 10th, as a part of the median.
double Spread(std::span<const double> values);

// How a pair of medians becomes a figure, and what the figure should be.
struct Goal {
  enum class Kind {
    kAtMost,   // (ours - allowance) / yardstick: a ratio of times.
    kAtLeast,  // yardstick / ours: a ratio of rates.
  };
  Kind kind = Kind::kAtMost;
  double figure = 1;
  double allowance = 0;  // Of ours, in the unit of the samples; for kAtMost only.
};

// The figure, and the ends of its 90 % interval.
struct Figure {
  double ratio = 0;
  double low = 0;
  double high = 0;
};

// Sample i of both sides was taken in the same round, which is what the bootstrap draws. As many
// of one as of the other, at least one.
Figure Compare(std::span<const double> ours, std::span<const double> yardstick, const Goal& goal);

// The interval's better end reaches the goal, and the figure itself is within 0.05 of it.
bool Meets(const Figure& figure, const Goal& goal);

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_STATISTICS_H_
