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
  RunPair("abort and recover", {}, CommitSim::Pair::kAbortAndRecover);
}

TEST(CommitSim, ANodeThatFinishesLateChangesNoOutcome) {
  RunPair("abort and finish", {.nodes = 2}, CommitSim::Pair::kAbortAndFinish);
  RunPair("commit and finish", {.nodes = 2}, CommitSim::Pair::kCommitAndFinish);
}

TEST(CommitSim, AReplacementByTwoAtOnceHasOneOutcome) {
  CommitSim::Options options{.nodes = 2, .replace = true};
  RunPair("replace, commit and abort", options, CommitSim::Pair::kCommitAndAbort);
  RunPair("replace, commit and commit", options, CommitSim::Pair::kCommitAndCommit);
  RunPair("replace, commit and recover", {.replace = true}, CommitSim::Pair::kCommitAndRecover);
}

TEST(CommitSim, OlderCheckpointsAreDeletedAfterACommitThroughEveryTwoCrashes) {
  RunLife("delete the older", {.foreign = true, .older = 2, .crashes = 1});
  RunLife("delete the older, two crashes", {.older = 1});
}

TEST(CommitSim, ADeletionBesideACommitNeverTakesTheNewest) {
  RunPair("commit and delete", {.older = 1}, CommitSim::Pair::kCommitAndDelete);
  RunPair("replace and delete", {.replace = true, .older = 1}, CommitSim::Pair::kReplaceAndDelete);
}

TEST(CommitSim, ADeletionBesideANewerDamagedOneNeverTakesTheNewestWholeOne) {
  CommitSim sim({.older = 1});
  sim.RunDeleteBesideDamaged();
  ExpectNoViolation("delete beside a damaged one", sim);
}

void RunFaults(const char* what, const CommitSim::Options& options, const CommitSim::Fault& fault) {
  CommitSim sim(options);
  int actions = sim.RunFaults(fault);
  std::printf("%d actions, each with errno %d%s%s: ", actions, fault.error,
              fault.executed ? ", executed" : "", fault.lasting ? ", lasting" : "");
  ExpectNoViolation(what, sim);
  EXPECT_GT(actions, 40);
}

TEST(CommitSim, AFaultAtEveryActionLeavesFailedOrUnknownAndNothingWrong) {
  for (bool replace : {false, true}) {
    CommitSim::Options options{.nodes = 2, .replace = replace};
    const char* what = replace ? "replace" : "save";
    RunFaults(what, options, {.error = EIO});
    RunFaults(what, options, {.error = EIO, .lasting = true});
    RunFaults(what, options, {.error = EIO, .executed = true});
    RunFaults(what, options, {.error = EIO, .executed = true, .lasting = true});
    RunFaults(what, options, {.error = ENOENT, .executed = true});  // A call that was sent twice.
    RunFaults(what, options, {.error = ENOSPC});
    RunFaults(what, options, {.error = ENOSPC, .lasting = true});
  }
}

}  // namespace
}  // namespace ckptd
