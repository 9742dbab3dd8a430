// How an attempt of server/attempt_end.cc ends: sessions that end, cancels, disks that fail.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/failed_cleanup.h"
#include "tests/server/save_rig.h"

namespace ckptd {
namespace {

using Ranks = std::vector<std::shared_ptr<FakeRank>>;

void Hold(FakeRank& rank) { rank.seal_max = 1; }

void HoldRank1(FakeRank& rank) {
  if (rank.session.info.rank == 1) Hold(rank);
}

void GoOn(SaveRig& rig, const std::shared_ptr<FakeRank>& rank) {
  rig.OnLoop([&] {
    rank->seal_max = UINT32_MAX;
    rank->Pump();
  });
}

bool Says(const Failure& failure, const std::string& part) {
  return absl::StrContains(failure.status.message(), part);
}

// Rank 0 is staged, rank 1 has sealed one block of its three and was granted all.
Ranks HalfStaged(SaveRig& rig) {
  Ranks ranks = rig.SaveAll(2, "a", HoldRank1);
  EXPECT_TRUE(rig.Await([&] {
    return ranks[0]->staged() && ranks[1]->sealed.size() == 1 && ranks[1]->granted.size() == 2;
  }));
  return ranks;
}

// What every failed attempt leaves.
void ExpectFailedOnDisk(SaveRig& rig, const Ranks& ranks) {
  EXPECT_TRUE(rig.List("attempts").empty());
  EXPECT_TRUE(rig.List("checkpoints").empty());
  auto failed = ListFailed(rig.root().disk(), SaveRig::kJob);
  ASSERT_TRUE(failed.ok());
  ASSERT_EQ(failed->size(), 1u);
  EXPECT_EQ((*failed)[0].failure, ranks[0]->failure);
  EXPECT_EQ((*failed)[0].record.attempt, ranks[0]->attempt);
  std::string folder = absl::StrCat("failed/", ToString(ranks[0]->attempt));
  rig.Await([&] { return rig.List(folder).size() <= 2; });
  for (const std::string& name : rig.List(folder))
    EXPECT_FALSE(absl::StrContains(name, "shard")) << name;
}

TEST(AttemptEnd, ARankThatDiesBeforeItIsStagedFailsIt) {
  SaveRig rig;
  Ranks ranks = HalfStaged(rig);
  rig.EndSession(ranks[1]->session, SessionEnd::kDead);
  ASSERT_TRUE(rig.AwaitFailed({ranks[0]}));
  EXPECT_EQ(ranks[0]->failure.rank, std::optional<uint32_t>(1));
  EXPECT_EQ(ranks[0]->failure.node, SaveRig::kNode);
  EXPECT_EQ(ranks[0]->failure.phase, "stage");
  EXPECT_TRUE(Says(ranks[0]->failure, "rank 1 (process 1001) died before it was staged"));
  ExpectFailedOnDisk(rig, ranks);
  auto failed = ListFailed(rig.root().disk(), SaveRig::kJob);
  EXPECT_EQ((*failed)[0].ranks[0].state, "staged");
  EXPECT_EQ((*failed)[0].ranks[1].state, "lost");
  EXPECT_EQ((*failed)[0].ranks[1].staged_bytes, 1u << 20);
  rig.ExpectQuiet();
  // Its arena waits for its successor, with all of its blocks.
  std::shared_ptr<Arena> arena = ranks[1]->arena;
  Ranks next = rig.SaveAll(2, "b");
  ASSERT_TRUE(rig.AwaitCommitted(next));
  EXPECT_EQ(next[1]->arena, arena);
}

TEST(AttemptEnd, RanksThatDieAfterTheyAreStagedDoNotMatter) {
  SaveRig rig({.faults = "write:shard=delay:50ms"});
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged() && ranks[1]->staged(); }));
  for (const auto& rank : ranks) rig.EndSession(rank->session, SessionEnd::kDead);
  ASSERT_TRUE(rig.Await([&] { return rig.attempts().in_flight().empty(); }));
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
}

TEST(AttemptEnd, ASessionThatIsLostBeforeItIsStagedFailsItAndItsArenaIsNeverUsedAgain) {
  SaveRig rig;
  Ranks ranks = HalfStaged(rig);
  std::shared_ptr<Arena> arena = ranks[1]->arena;
  uint32_t block = ranks[1]->granted[0].arena_block;
  rig.EndSession(ranks[1]->session, SessionEnd::kLost);
  ASSERT_TRUE(rig.AwaitFailed({ranks[0]}));
  EXPECT_TRUE(Says(ranks[0]->failure, "did not come back before it was staged"));
  rig.OnLoop([&] {
    EXPECT_EQ(arena->state(block), Arena::BlockState::kGranted) << "it may still be written to";
    EXPECT_FALSE(rig.attempts().FindEnded("job", "a")->HoldsBlocks()) << "but it holds no memory";
  });
  Ranks next = rig.SaveAll(2, "b");
  ASSERT_TRUE(rig.AwaitCommitted(next));
  EXPECT_NE(next[1]->arena, arena);
}

TEST(AttemptEnd, ASessionThatIsClosedBeforeItIsStagedFailsIt) {
  SaveRig rig;
  Ranks ranks = HalfStaged(rig);
  rig.EndSession(ranks[1]->session, SessionEnd::kClosed);
  ASSERT_TRUE(rig.AwaitFailed({ranks[0]}));
  EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Says(ranks[0]->failure, "rank 1 closed its session"));
  rig.ExpectQuiet();
}

TEST(AttemptEnd, AnotherSessionOfTheRankThatEndsDoesNotMatter) {
  SaveRig rig;
  Ranks ranks = HalfStaged(rig);
  rig.EndSession(rig.NewSession(1, 2), SessionEnd::kClosed);
  GoOn(rig, ranks[1]);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
}

TEST(AttemptEnd, ACancelledSaveFailsForAllRanks) {
  SaveRig rig;
  Ranks ranks = HalfStaged(rig);
  rig.OnLoop([&] {
    ranks[1]->ticket->attempt->Fail(
        Failure{absl::CancelledError("rank 1 cancelled the save"), 1, "node", "stage"});
  });
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure, ranks[1]->failure);
  ExpectFailedOnDisk(rig, ranks);
  // The living rank may be filling its blocks: they are free when it says so.
  rig.OnLoop([&] {
    EXPECT_TRUE(rig.attempts().FindEnded("job", "a")->HoldsBlocks());
    EXPECT_EQ(ranks[1]->arena->busy_count(), 2u);
  });
  auto next = std::make_shared<FakeRank>(rig, ranks[1]->session, rig.Rank(1, 2, "b")->options,
                                         ranks[1]->plan);
  rig.Save(next);  // By beginning another save.
  rig.OnLoop([&] { EXPECT_FALSE(rig.attempts().FindEnded("job", "a")->HoldsBlocks()); });
  auto other = rig.Rank(0, 2, "b");
  rig.Save(other);
  ASSERT_TRUE(rig.AwaitCommitted({other, next}));
  rig.ExpectQuiet();
}

TEST(AttemptEnd, ARankThatDiesAfterAFailureGivesItsBlocksBack) {
  SaveRig rig;
  Ranks ranks = HalfStaged(rig);
  rig.OnLoop([&] {
    ranks[0]->ticket->attempt->Fail(Failure{absl::CancelledError("no"), 0, "node", "stage"});
  });
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  rig.OnLoop([&] { EXPECT_EQ(ranks[1]->arena->busy_count(), 2u); });
  rig.EndSession(ranks[1]->session, SessionEnd::kDead);
  rig.ExpectQuiet();
}

TEST(AttemptEnd, ItCanBeCancelledInEveryState) {
  for (const char* state : {"waiting", "beginning", "joining", "staging"}) {
    SCOPED_TRACE(state);
    SaveRig rig({.max_inflight_attempts = 1});
    Ranks blocking = {rig.Rank(0, 1, "z")};
    if (std::string(state) == "waiting") {
      Hold(*blocking[0]);
      rig.Save(blocking[0]);
    }
    Ranks ranks = {rig.Rank(0, 2)};
    Hold(*ranks[0]);
    rig.Save(ranks[0]);
    if (std::string(state) == "joining" || std::string(state) == "staging") {
      ASSERT_TRUE(rig.Await([&] { return ranks[0]->attempt.sequence != 0; }));
    }
    if (std::string(state) == "staging") {
      rig.Advance(Attempt::kPlanPatience);
      ASSERT_TRUE(rig.Await([&] { return ranks[0]->sealed.size() == 1; }));
    }
    rig.OnLoop([&] {
      ranks[0]->ticket->attempt->Fail(Failure{absl::CancelledError("no"), 0, "node", "stage"});
    });
    ASSERT_TRUE(rig.AwaitFailed(ranks));
    EXPECT_EQ(ranks[0]->failure.status, absl::CancelledError("no"));
    EXPECT_TRUE(rig.List("checkpoints").empty() || std::string(state) == "waiting");
    if (std::string(state) != "waiting") {
      EXPECT_TRUE(rig.List("attempts").empty());
    }
    rig.EndSession(ranks[0]->session, SessionEnd::kDead);
    if (std::string(state) == "waiting") {
      GoOn(rig, blocking[0]);
      ASSERT_TRUE(rig.AwaitCommitted(blocking));
    }
    rig.ExpectQuiet();
  }
}

// A disk error at each call of a save: told with its phase, nothing is committed, no block is lost.
TEST(AttemptEnd, ADiskErrorFailsItWithItsPhase) {
  struct Case {
    const char* faults;
    const char* phase;
  };
  for (const Case& one : std::vector<Case>{{"mkdir:attempts/=error:ENOSPC", "admit"},
                                           {"create:ATTEMPT=error:EIO", "admit"},
                                           {"fsync:ATTEMPT=error:EIO", "admit"},
                                           {"create:shard=error:ENOSPC", "write"},
                                           {"allocate:shard=error:ENOSPC", "write"},
                                           {"write:shard=error:EIO", "write"},
                                           {"write:shard@4=error:ENOSPC", "write"},
                                           {"truncate:shard=error:EIO", "write"},
                                           {"fsync:shard=error:EIO", "sync"},
                                           {"create:fragment=error:EIO", "sync"},
                                           {"fsync:fragment=error:EIO", "sync"},
                                           {"fsyncdir:attempts/@2=error:EIO", "sync"},
                                           {"create:MANIFEST=error:EIO", "commit"},
                                           {"fsync:MANIFEST=error:EIO", "sync"},
                                           {"rename:MANIFEST=error:EIO", "commit"}}) {
    SCOPED_TRACE(one.faults);
    SaveRig rig({.faults = one.faults});
    Ranks ranks = rig.SaveAll(2);
    ASSERT_TRUE(rig.AwaitFailed(ranks));
    EXPECT_EQ(ranks[0]->failure.phase, one.phase) << ranks[0]->failure.status;
    EXPECT_EQ(ranks[0]->failure, ranks[1]->failure);
    EXPECT_TRUE(rig.List("checkpoints").empty());
    for (const auto& rank : ranks) rig.EndSession(rank->session, SessionEnd::kDead);
    rig.ExpectQuiet();
    rig.OnLoop([&] { EXPECT_TRUE(rig.root().healthy()) << rig.root().unhealthy_reason(); });
    // The disk is well again: so is everything.
    rig.Crash();
    rig.Start();
    Ranks next = rig.SaveAll(2, "b");
    ASSERT_TRUE(rig.AwaitCommitted(next));
    rig.ExpectStored("b", next);
  }
}

TEST(AttemptEnd, ACommitThatCannotBeSyncedIsUnknownUntilTheNextStart) {
  SaveRig rig({.faults = "fsyncdir:checkpoints=error:EIO"});
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  rig.OnLoop([&] {
    EXPECT_STREQ(rig.attempts().FindEnded("job", "a")->StateName(), "unknown");
    EXPECT_FALSE(rig.root().healthy());
    EXPECT_TRUE(absl::StrContains(rig.root().unhealthy_reason(), ToString(ranks[0]->attempt)));
  });
  Ranks refused = rig.SaveAll(1, "b");
  ASSERT_TRUE(rig.AwaitFailed(refused));
  EXPECT_EQ(refused[0]->failure.status.code(), absl::StatusCode::kUnavailable);
  rig.Crash();
  rig.Start();
  rig.ExpectStored("a", ranks);
  ASSERT_TRUE(rig.AwaitCommitted(rig.SaveAll(2, "b")));
}

// The sync that failed for one is not tried once more for another: it might succeed for nothing.
TEST(AttemptEnd, AfterASyncThatFailedNothingElseIsCommittedNorDeleted) {
  SaveRig rig({.keep_last = 1});
  ASSERT_TRUE(rig.AwaitCommitted(rig.SaveAll(1, "old")));
  rig.Crash();
  rig.Start("fsyncdir:job/checkpoints@2=error:EIO");  // The first is that of the start.
  Ranks later = rig.SaveAll(1, "later", Hold);
  ASSERT_TRUE(rig.Await([&] { return later[0]->sealed.size() == 1; }));
  ASSERT_TRUE(rig.AwaitFailed(rig.SaveAll(1, "unsynced")));
  GoOn(rig, later[0]);
  ASSERT_TRUE(rig.AwaitFailed(later));
  EXPECT_EQ(later[0]->failure.status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(rig.List("checkpoints"), std::vector<std::string>({"old", "unsynced"}));
  rig.OnLoop(
      [&] { EXPECT_STREQ(rig.attempts().FindEnded("job", "later")->StateName(), "unknown"); });
  rig.Crash();
  rig.Start();
  EXPECT_EQ(rig.List("checkpoints"), std::vector<std::string>({"later", "old", "unsynced"}));
}

TEST(AttemptEnd, WhatCannotBeCleanedUpIsSaidAndTriedAgain) {
  SaveRig rig({.faults = "unlink:failed@1=error:EIO"});
  Ranks ranks = HalfStaged(rig);
  rig.EndSession(ranks[1]->session, SessionEnd::kDead);
  ASSERT_TRUE(rig.AwaitFailed({ranks[0]}));
  ASSERT_TRUE(rig.Await([&] { return rig.left == 1; }));
  rig.Advance(FailedCleanUp::kFirstPause);
  ExpectFailedOnDisk(rig, ranks);
}

}  // namespace
}  // namespace ckptd
