#include "tests/rounds/round_plan.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptd {
namespace {

// Uniform in [low, high]. Not std::uniform_int_distribution, which may differ between libraries.
int Draw(std::mt19937_64& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
}

template <size_t kSize>
const char* OneOf(std::mt19937_64& random, const char* const (&choices)[kSize]) {
  return choices[Draw(random, 0, kSize - 1)];
}

constexpr const char* kOperations[] = {"create", "write",  "fsync",    "fsyncdir", "rename",
                                       "mkdir",  "unlink", "truncate", "stat",     "list",
                                       "open",   "read",   "op",       "op"};
constexpr const char* kPoints[] = {"admitted",         "minted",           "record-synced",
                                   "joined",           "planned",          "first-seal",
                                   "rank-staged",      "all-staged",       "first-write",
                                   "shard-complete",   "shard-synced",     "fragment-synced",
                                   "folder-synced",    "durable-sent",     "all-durable",
                                   "manifest-written", "manifest-renamed", "commit-before",
                                   "commit-renamed",   "commit-synced",    "told",
                                   "abort-before",     "abort-renamed",    "abort-synced"};

std::string DrawFaults(std::mt19937_64& random) {
  switch (Draw(random, 0, 6)) {
    case 0:
      return absl::StrCat("op@", Draw(random, 1, 60), "=", OneOf(random, {"kill", "kill-after"}));
    case 1:
      return absl::StrCat(OneOf(random, kPoints), "=", OneOf(random, {"kill", "delay:300ms"}));
    case 2:
      return absl::StrCat("write@", Draw(random, 1, 4), "=short:", Draw(random, 0, 9) * 512);
    case 3:
      return absl::StrCat("write=rate:", Draw(random, 4, 40), "MiB");
    case 4:
      return absl::StrCat("op=delay:", Draw(random, 1, 20), "ms");
    default:
      return absl::StrCat(OneOf(random, kOperations), "@", Draw(random, 1, 12),
                          OneOf(random, {"", "", "+"}),
                          "=error:", OneOf(random, {"EIO", "ENOSPC", "EROFS", "EMFILE"}));
  }
}

const char* Name(RoundPlan::Kind kind) {
  switch (kind) {
    case RoundPlan::Kind::kNothing:
      return "nothing";
    case RoundPlan::Kind::kKillDaemon:
      return "kill the daemon";
    case RoundPlan::Kind::kKillRank:
      return "kill a rank";
    case RoundPlan::Kind::kKillBoth:
      return "kill the daemon and a rank";
    case RoundPlan::Kind::kPauseDaemon:
      return "pause the daemon";
    case RoundPlan::Kind::kPauseRank:
      return "pause a rank";
    case RoundPlan::Kind::kFaultPlan:
      return "fault plan";
    case RoundPlan::Kind::kFullDisk:
      return "full disk";
    case RoundPlan::Kind::kShortMemory:
      return "short memory";
    case RoundPlan::Kind::kSmallArena:
      return "small arena";
  }
  return "";
}

}  // namespace

RoundPlan DrawRound(std::mt19937_64& random) {
  using Kind = RoundPlan::Kind;
  // As often as they stand here.
  constexpr Kind kKinds[] = {
      Kind::kNothing,   Kind::kKillDaemon,  Kind::kKillDaemon,  Kind::kKillRank,
      Kind::kKillBoth,  Kind::kPauseDaemon, Kind::kPauseRank,   Kind::kFullDisk,
      Kind::kFaultPlan, Kind::kFaultPlan,   Kind::kFaultPlan,   Kind::kFaultPlan,
      Kind::kFaultPlan, Kind::kFaultPlan,   Kind::kShortMemory, Kind::kSmallArena};
  RoundPlan plan;
  plan.kind = kKinds[Draw(random, 0, std::size(kKinds) - 1)];
  plan.saves = Draw(random, 1, 2);
  plan.delay = absl::Milliseconds(Draw(random, 0, 60));
  plan.pause = absl::Milliseconds(Draw(random, 20, 1500));
  plan.victim = Draw(random, 0, 5);
  plan.free_mib = Draw(random, 0, 12);
  plan.faults = DrawFaults(random);
  return plan;
}

std::string Describe(const RoundPlan& plan) {
  std::string text = absl::StrFormat("%s, %d saves", Name(plan.kind), plan.saves);
  if (plan.kind == RoundPlan::Kind::kFaultPlan) return absl::StrCat(text, ", ", plan.faults);
  return absl::StrCat(text, ", after ", absl::FormatDuration(plan.delay));
}

}  // namespace ckptd
