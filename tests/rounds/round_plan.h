// What goes wrong in one round of random saves.
#ifndef CKPTD_TESTS_ROUNDS_ROUND_PLAN_H_
#define CKPTD_TESTS_ROUNDS_ROUND_PLAN_H_

#include <random>
#include <string>

#include "absl/time/time.h"

namespace ckptd {

struct RoundPlan {
  enum class Kind {
    kNothing,
    kKillDaemon,
    kKillRank,
    kKillBoth,
    kPauseDaemon,
    kPauseRank,
    kFaultPlan,    // Of the daemon's disk and protocol.
    kFullDisk,     // Somebody else takes the space.
    kShortMemory,  // The daemon's cgroup is too small for another job.
    kSmallArena,   // A daemon with a limit that makes states stream.
  };

  Kind kind = Kind::kNothing;
  int saves = 1;                                // 1 or 2, the second without waiting for the first.
  absl::Duration delay;                         // From the saves to what goes wrong.
  absl::Duration pause = absl::ZeroDuration();  // How long the stopped one stays so.
  int victim = 0;                               // Which rank, modulo the world.
  std::string faults = {};                      // Of kFaultPlan, in the words of ckptd_faulty.
  int free_mib = 0;                             // Of kFullDisk: what is left.

  bool KillsRank() const { return kind == Kind::kKillRank || kind == Kind::kKillBoth; }
};

// The next of a sequence that `random` decides alone.
RoundPlan DrawRound(std::mt19937_64& random);

std::string Describe(const RoundPlan& plan);

}  // namespace ckptd

#endif  // CKPTD_TESTS_ROUNDS_ROUND_PLAN_H_
