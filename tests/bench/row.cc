#include "tests/bench/row.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "storage/base/status.h"

namespace ckptd::bench {

absl::Status RunRounds(const Setting& setting, const std::vector<Side>& sides) {
  std::vector<size_t> order(sides.size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = 0; round < setting.rounds; ++round) {
    std::shuffle(order.begin(), order.end(), setting.random);
    for (const size_t i : order) {
      ASSIGN_OR_RETURN(const double sample, sides[i].measure());
      sides[i].samples.push_back(sample);
    }
  }
  return absl::OkStatus();
}

}  // namespace ckptd::bench
