#include "tests/sim/commit_sim.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>

namespace ckptd {
namespace {

void ExpectNoViolation(const char* what, const CommitSim& sim) {
  std::printf("%s: %llu states, %llu schedules\n", what,
              static_cast<unsigned long long>(sim.states()),
              static_cast<unsigned long long>(sim.schedules()));
  for (const std::string& violation : sim.violations()) ADD_FAILURE() << what << ": " << violation;
}

void RunLife(const char* what, const CommitSim::Options& options) {
  CommitSim sim(options);
  sim.RunLife();
  ExpectNoViolation(what, sim);
}

void RunPair(const char* what, const CommitSim::Options& options, CommitSim::Pair pair) {
  CommitSim sim(options);
  sim.RunPair(pair);
  ExpectNoViolation(what, sim);
}

TEST(CommitSim, OneRankOnAFreshRootCommitsThroughEveryTwoCrashes) {
  RunLife("one rank, fresh root", {});
}

TEST(CommitSim, TwoRanksAmongForeignFilesCommitThroughEveryTwoCrashes) {
  RunLife("two ranks, foreign files", {.ranks_per_node = 2, .foreign = true});
}

TEST(CommitSim, TwoNodesCommitThroughEveryTwoCrashes) { RunLife("two nodes", {.nodes = 2}); }

TEST(CommitSim, AnAbortHoldsThroughEveryTwoCrashes) { RunLife("abort", {.abort = true}); }

TEST(CommitSim, AReplacedCheckpointIsReadableThroughEveryTwoCrashes) {
  RunLife("replace", {.replace = true, .foreign = true});
}

TEST(CommitSim, AnAbortedReplacementLeavesTheOldOneThroughEveryTwoCrashes) {
  RunLife("replace, abort", {.replace = true, .abort = true});
}

TEST(CommitSim, CommitAndAbortAtOnceHaveOneOutcome) {
  RunPair("commit and abort", {.nodes = 2}, CommitSim::Pair::kCommitAndAbort);
}

TEST(CommitSim, TwoCoordinatorsAtOnceHaveOneOutcome) {
  RunPair("commit and commit", {.nodes = 2}, CommitSim::Pair::kCommitAndCommit);
}

TEST(CommitSim, ACommitBesideARecoveryHasOneOutcome) {
  RunPair("commit and recover", {.nodes = 2}, CommitSim::Pair::kCommitAndRecover);
}

TEST(CommitSim, AnAbortBesideARecoveryHasOneOutcome) {
  RunPair("abort and recover", {.nodes = 2}, CommitSim::Pair::kAbortAndRecover);
}

TEST(CommitSim, ANodeThatFinishesLateChangesNoOutcome) {
  RunPair("abort and finish", {.nodes = 2}, CommitSim::Pair::kAbortAndFinish);
  RunPair("commit and finish", {.nodes = 2}, CommitSim::Pair::kCommitAndFinish);
}

TEST(CommitSim, AReplacementByTwoAtOnceHasOneOutcome) {
  CommitSim::Options options{.nodes = 2, .replace = true};
  RunPair("replace, commit and abort", options, CommitSim::Pair::kCommitAndAbort);
  RunPair("replace, commit and commit", options, CommitSim::Pair::kCommitAndCommit);
  RunPair("replace, commit and recover", options, CommitSim::Pair::kCommitAndRecover);
}

TEST(CommitSim, AFaultAtEveryActionLeavesFailedOrUnknownAndNothingWrong) {
  for (bool replace : {false, true}) {
    for (int error : {EIO, ENOSPC}) {
      for (bool executed : {false, true}) {
        for (bool lasting : {false, true}) {
          CommitSim sim({.nodes = 2, .replace = replace});
          int actions = sim.RunFaults({.error = error, .executed = executed, .lasting = lasting});
          std::printf("%d actions, each with errno %d%s%s: ", actions, error,
                      executed ? ", executed" : "", lasting ? ", lasting" : "");
          ExpectNoViolation(replace ? "replace" : "save", sim);
          EXPECT_GT(actions, 40);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ckptd
