// Row: one figure of the benchmark, with all its samples.
#ifndef CKPTD_TESTS_BENCH_ROW_H_
#define CKPTD_TESTS_BENCH_ROW_H_

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/fio.h"
#include "tests/bench/statistics.h"

namespace ckptd::bench {

enum class Unit { kSeconds, kBytes };

struct Row {
  std::string name;
  std::string yardstick = {};  // What ours is compared with, for people.
  Unit unit = Unit::kSeconds;
  Goal goal = {};
  std::vector<double> ours = {};
  std::vector<double> measure = {};  // The yardstick's samples; as many.

  Figure figure() const { return Compare(ours, measure, goal); }
  bool met() const { return Meets(figure(), goal); }
};

// What every row is measured with.
struct Setting {
  std::string folder;  // On the disk under test; ours.
  int rounds = 0;
  double scale = 1;
  std::string daemon;  // The binary; empty: the one that was built with this.
  std::mt19937& random;
  const Fio& fio;
};

// A thing to measure, once a round.
struct Side {
  std::function<absl::StatusOr<double>()> measure;
  std::vector<double>& samples;
};

// Measures every side once a round, in drawn order.
absl::Status RunRounds(const Setting& setting, const std::vector<Side>& sides);

// A row and how to measure it.
struct RowMaker {
  std::string name;
  std::function<absl::StatusOr<Row>(const Setting& setting, const std::string& name)> make;
};

std::vector<RowMaker> MemoryRows();  // block, first
std::vector<RowMaker> DiskRows();    // durable, load
std::vector<RowMaker> DaemonRows();  // cpu, rss

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_ROW_H_
