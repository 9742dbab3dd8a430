#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "tests/bench/disk.h"
#include "tests/bench/ranks.h"
#include "tests/bench/row.h"
#include "tests/bench/saver.h"

namespace ckptd::bench {
namespace {

// How long a rank is blocked, next to a plain copy of the same bytes by as many processes and
// threads, a call for each tensor.
absl::StatusOr<Row> Block(const Setting& setting, const std::string& name,
                          const std::string& workload, double allowance_per_tensor_s) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start(workload, setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
  Row row = {.name = name, .yardstick = "memcpy"};
  row.goal.figure = __builtin_cpu_supports("avx2") ? 0.9 : 1.25;
  row.goal.allowance =
      0.005 + allowance_per_tensor_s * static_cast<double>(ranks.workload().tensors.size());
  // Both sides are warm.
  RETURN_IF_ERROR(saver->Save().status());
  RETURN_IF_ERROR(ranks.Copy(ranks.count()).status());
  const auto ours = [&]() -> absl::StatusOr<double> {
    ASSIGN_OR_RETURN(const Saver::Result result, saver->Save());
    return result.blocked_s;
  };
  const auto copy = [&]() -> absl::StatusOr<double> {
    RETURN_IF_ERROR(Settle(setting.folder));
    return ranks.Copy(ranks.count());
  };
  RETURN_IF_ERROR(RunRounds(setting, {{ours, row.ours}, {copy, row.measure}}));
  return row;
}

// The first save after Prewarm() next to the second, with a new daemon each round.
absl::StatusOr<Row> First(const Setting& setting, const std::string& name,
                          const std::string& workload) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start(workload, setting.scale));
  Row row = {.name = name, .yardstick = "a later save", .goal = {.figure = 1.2}};
  for (int round = 0; round < setting.rounds; ++round) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
    ASSIGN_OR_RETURN(const Saver::Result first, saver->Save());
    ASSIGN_OR_RETURN(const Saver::Result later, saver->Save());
    row.ours.push_back(first.blocked_s);
    row.measure.push_back(later.blocked_s);
  }
  return row;
}

}  // namespace

std::vector<RowMaker> MemoryRows() {
  const auto block = [](const std::string& workload, double per_tensor_s) {
    return [=](const Setting& setting, const std::string& name) {
      return Block(setting, name, workload, per_tensor_s);
    };
  };
  return {{"block.W1", block("W1", 0)},
          {"block.W2", block("W2", 1e-6)},
          {"block.model", block("model", 0)},
          {"first.W1", [](const Setting& setting, const std::string& name) {
             return First(setting, name, "W1");
           }}};
}

}  // namespace ckptd::bench
