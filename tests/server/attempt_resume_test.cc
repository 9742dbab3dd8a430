// How ranks come back to their save (server/attempt_resume.cc): the daemon is restarted, they are
// not.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/save_rig.h"

namespace ckptd {
namespace {

using Ranks = std::vector<std::shared_ptr<FakeRank>>;

// The same client, with a new stream to the daemon that has started.
std::shared_ptr<FakeRank> Returned(SaveRig& rig, const FakeRank& rank) {
  Session session = rig.NewSession(rank.session.info.rank, rank.session.info.world_size);
  return std::make_shared<FakeRank>(rig, session, rank.options, rank.plan);
}

// All come back with their arenas.
Ranks ComeBack(SaveRig& rig, const Ranks& ranks) {
  Ranks back;
  for (const auto& rank : ranks) {
    if (rank->arena != nullptr) rig.OfferArena(*rank);
    back.push_back(Returned(rig, *rank));
    rig.Save(back.back(), rank->resume());
  }
  return back;
}

TEST(AttemptResume, AStagedSaveCommitsAsTheSameAttempt) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged() && ranks[1]->staged(); }));
  AttemptName attempt = ranks[0]->attempt;
  rig.Crash();
  rig.Start();
  rig.OnLoop([&] { ASSERT_EQ(rig.attempts().in_flight().size(), 1u); });
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitCommitted(back));
  EXPECT_EQ(back[0]->checkpoint.manifest.attempt, attempt);
  EXPECT_TRUE(back[0]->sealed.empty()) << "nothing is copied twice";
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
  EXPECT_TRUE(rig.List("attempts").empty());
}

TEST(AttemptResume, AHalfStagedSaveGoesOnWhereItWas) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(2, "a", [](FakeRank& rank) { rank.seal_max = 1; });
  ASSERT_TRUE(
      rig.Await([&] { return ranks[0]->sealed.size() == 1 && ranks[1]->sealed.size() == 1; }));
  rig.Crash();
  rig.Start();
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitCommitted(back));
  EXPECT_EQ(back[0]->sealed.size(), 2u) << "what it had not sealed";
  EXPECT_EQ(back[0]->checkpoint.manifest.attempt, ranks[0]->attempt);
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
}

TEST(AttemptResume, RanksThatWereNeverPlannedComeBackToo) {
  SaveRig rig;
  auto first = rig.Rank(0, 2);
  rig.Save(first);
  ASSERT_TRUE(rig.Await([&] { return first->attempt.sequence != 0; }));
  rig.Crash();
  rig.Start();
  Ranks back = ComeBack(rig, {first});
  auto second = rig.Rank(1, 2);
  rig.Save(second);  // It joins for the first time.
  ASSERT_TRUE(rig.AwaitCommitted({back[0], second}));
  EXPECT_EQ(back[0]->checkpoint.manifest.attempt, first->attempt);
  rig.ExpectStored("a", Ranks{first, second});
}

TEST(AttemptResume, RanksThatDoNotComeBackInTimeFailItByName) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks ranks = rig.SaveAll(3);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged(); }));
  rig.Crash();
  rig.Start();
  Ranks back = ComeBack(rig, {ranks[0]});
  rig.Advance(absl::Seconds(9));
  rig.OnLoop([&] { EXPECT_FALSE(back[0]->ended()); });
  rig.Advance(absl::Seconds(1));
  ASSERT_TRUE(rig.AwaitFailed(back));
  EXPECT_EQ(back[0]->failure.phase, "settle");
  EXPECT_TRUE(absl::StrContains(back[0]->failure.status.message(),
                                "ranks 1, 2 did not come back within 10s"))
      << back[0]->failure.status;
  EXPECT_TRUE(rig.List("attempts").empty());
  rig.ExpectQuiet();
  // Whoever comes now hears the same.
  Ranks late = ComeBack(rig, {ranks[1]});
  ASSERT_TRUE(rig.AwaitFailed(late));
  EXPECT_EQ(late[0]->failure.status, back[0]->failure.status);
}

TEST(AttemptResume, AStagedRankWithoutItsArenaHasLostItsBytes) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged(); }));
  rig.Crash();
  rig.Start();
  auto back = Returned(rig, *ranks[0]);
  rig.Save(back, ranks[0]->resume());
  ASSERT_TRUE(rig.AwaitFailed({back}));
  EXPECT_TRUE(absl::StrContains(back->failure.status.message(), "the bytes are gone"))
      << back->failure.status;
  EXPECT_EQ(back->failure.rank, std::optional<uint32_t>(0));
}

TEST(AttemptResume, AStagedImageThatStreamedThroughASmallArenaIsGone) {
  SaveRig rig({.arena_limit_bytes = 2 << 20, .faults = "fsync:shard=delay:500ms"});
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged(); }));
  rig.Crash();
  rig.Start();
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitEnd(back));
  // Or it was complete: then the restart has committed it.
  if (back[0]->failed) {
    EXPECT_TRUE(absl::StrContains(back[0]->failure.status.message(),
                                  "of its 3 staged blocks: the bytes are gone"))
        << back[0]->failure.status;
  }
  rig.ExpectQuiet();
}

TEST(AttemptResume, ABlockThatWasChangedMeanwhileIsNoticed) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged(); }));
  rig.Crash();
  ranks[0]->arena->Block(ranks[0]->sealed.at(1).arena_block)[77] ^= std::byte{1};
  rig.Start();
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitFailed(back));
  EXPECT_EQ(back[0]->failure.status.code(), absl::StatusCode::kDataLoss);
}

TEST(AttemptResume, WhatAnEarlierLifeLeftIsReplaced) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged() && ranks[1]->staged(); }));
  rig.Crash();
  // It died while it wrote its fragment.
  std::filesystem::path folder =
      absl::StrCat(rig.path(), "/job/attempts/", ToString(ranks[0]->attempt));
  std::ofstream(folder / "fragment-node.pb") << "torn";
  rig.Start();
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitCommitted(back));
  rig.ExpectStored("a", ranks);
}

TEST(AttemptResume, TwoSavesInFlightComeBackInAnyOrder) {
  SaveRig rig({.arena_limit_bytes = 4 << 20, .faults = "write:shard=delay:200ms"});
  // Three of the arena's four blocks hold the first one's image when the second one begins.
  Ranks a = rig.SaveAll(1, "a");
  ASSERT_TRUE(rig.Await([&] { return a[0]->staged(); }));
  auto b = std::make_shared<FakeRank>(rig, a[0]->session, rig.Rank(0, 1, "b")->options, a[0]->plan);
  b->seal_max = 0;
  rig.Save(b);
  ASSERT_TRUE(rig.Await([&] { return b->layout != nullptr; }));
  rig.Crash();
  rig.Start();
  rig.OfferArena(*a[0]);
  auto b_back = Returned(rig, *b);
  auto a_back = std::make_shared<FakeRank>(rig, b_back->session, a[0]->options, a[0]->plan);
  rig.Save(b_back, b->resume());  // The one that needs blocks comes first …
  rig.Await([&] { return b_back->layout != nullptr; });
  rig.OnLoop([&] { EXPECT_TRUE(b_back->sealed.empty()) << "they hold the other's image"; });
  rig.Save(a_back, a[0]->resume());  // … and finds those of the other untouched.
  ASSERT_TRUE(rig.AwaitCommitted({a_back, b_back}));
  EXPECT_EQ(a_back->checkpoint.manifest.attempt, a[0]->attempt);
  rig.ExpectStored("a", Ranks{a[0]});
  rig.ExpectStored("b", Ranks{b});
  rig.ExpectQuiet();
}

TEST(AttemptResume, ASaveWaitsNoLongerThanForThoseThatMayComeBack) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks a = rig.SaveAll(1, "a");
  ASSERT_TRUE(rig.Await([&] { return a[0]->staged(); }));
  rig.Crash();
  rig.Start();
  rig.OfferArena(*a[0]);
  auto b = std::make_shared<FakeRank>(rig, rig.NewSession(0, 1), rig.Rank(0, 1, "b")->options,
                                      a[0]->plan);
  rig.Save(b);
  ASSERT_TRUE(rig.Await([&] { return b->layout != nullptr; }));
  rig.OnLoop([&] { EXPECT_TRUE(b->sealed.empty()); });
  rig.Advance(absl::Seconds(10));  // Nobody comes for "a".
  ASSERT_TRUE(rig.AwaitCommitted({b}));
  rig.ExpectQuiet();
}

TEST(AttemptResume, WhatIsCommittedIsAnsweredFromTheDisk) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  rig.Crash();
  rig.Start();
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitCommitted(back));
  EXPECT_EQ(back[1]->told, "committed ");
  EXPECT_EQ(back[1]->checkpoint.manifest, ranks[0]->checkpoint.manifest);
}

TEST(AttemptResume, WhatHasFailedIsAnsweredFromTheDisk) {
  SaveRig rig({.faults = "fsync:shard=error:EIO"});
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  rig.Crash();
  rig.Start();
  Ranks back = ComeBack(rig, ranks);
  ASSERT_TRUE(rig.AwaitFailed(back));
  EXPECT_EQ(back[0]->failure.status.message(), ranks[0]->failure.status.message());
  EXPECT_EQ(back[0]->failure.phase, "sync");
}

TEST(AttemptResume, AnAttemptThatNobodyKnowsIsNotFound) {
  SaveRig rig;
  auto rank = rig.Rank(0, 1);
  ResumeState resume;
  resume.attempt = {5, 5};
  rig.Save(rank, resume);
  ASSERT_TRUE(rig.AwaitFailed({rank}));
  EXPECT_EQ(rank->failure.status.code(), absl::StatusCode::kNotFound);
  // An attempt that has no name yet is nobody's to resume.
  auto waiting = rig.Rank(0, 2, "b");
  rig.Save(waiting);
  auto wrong = rig.Rank(1, 2, "b");
  resume.attempt = {};
  rig.Save(wrong, resume);
  ASSERT_TRUE(rig.AwaitFailed({wrong}));
}

TEST(AttemptResume, OrdinalsThatAreNoneAreRefused) {
  SaveRig rig({.faults = "write:shard=delay:200ms"});
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.Await([&] { return ranks[0]->staged(); }));
  rig.Crash();
  rig.Start();
  for (std::vector<uint32_t> ordinals : {std::vector<uint32_t>{0, 99}, {2, 1}, {1, 1}}) {
    ResumeState resume = ranks[0]->resume();
    resume.ordinals = ordinals;
    auto back = Returned(rig, *ranks[0]);
    rig.Save(back, resume);
    ASSERT_TRUE(rig.AwaitFailed({back}));
    EXPECT_EQ(back->failure.status.code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(rig.AwaitCommitted(ComeBack(rig, ranks))) << "the attempt is none the worse";
}

}  // namespace
}  // namespace ckptd
