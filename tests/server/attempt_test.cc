#include "server/attempt.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/save_rig.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using Ranks = std::vector<std::shared_ptr<FakeRank>>;

bool Says(const Failure& failure, const std::string& part) {
  return failure.status.message().find(part) != std::string::npos;
}

TEST(Attempt, OneRankCommits) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  // Blocks are granted as they are touched.
  EXPECT_EQ(ranks[0]->told.rfind("admitted assigned granted:", 0), 0u) << ranks[0]->told;
  EXPECT_NE(ranks[0]->told.find(" staged durable committed "), std::string::npos);
  EXPECT_EQ(ranks[0]->checkpoint.id, "a");
  EXPECT_EQ(ranks[0]->checkpoint.manifest.step, 7);
  EXPECT_EQ(ranks[0]->checkpoint.manifest.attempt, ranks[0]->attempt);
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
  EXPECT_TRUE(rig.List("attempts").empty());
}

TEST(Attempt, FourRanksCommitAndReplicasAreStoredOnce) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(4);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
  // Bytes of "w", of "bias", four of "rng" and one vocabulary.
  EXPECT_EQ(ranks[0]->checkpoint.manifest.bytes, 4u * 650 * 4000 + 4000 + 4 * 16 + 70000);
  EXPECT_EQ(ranks[0]->checkpoint.manifest.tensors, 3u + 4);
  EXPECT_EQ(ranks[0]->checkpoint.manifest.items, 2u + 4);
  EXPECT_EQ(rig.Passed("commit-renamed"), 1);
  EXPECT_EQ(rig.Passed("rank-staged"), 4);
  for (const char* point : {"admitted", "minted", "record-synced", "planned", "all-staged",
                            "durable-sent", "all-durable", "told"}) {
    EXPECT_EQ(rig.Passed(point), 1) << point;
  }
}

TEST(Attempt, RanksWithNothingToWriteTakePart) {
  SaveRig rig;
  auto nothing = std::make_shared<const RankPlan>();
  auto only_empty = std::make_shared<RankPlan>();
  only_empty->tensors.push_back(Whole("none", DType::kFloat32, {0}));
  Ranks ranks = {rig.Rank(0, 3, "a", nothing), rig.Rank(1, 3, "a", only_empty),
                 rig.Rank(2, 3, "a", nothing)};
  for (const auto& rank : ranks) rig.Save(rank);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  rig.ExpectStored("a", ranks);
  EXPECT_EQ(ranks[0]->told, "admitted assigned staged durable committed ");
}

TEST(Attempt, WritesFromTheFirstSealedBlock) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(1, "a", [](FakeRank& rank) { rank.seal_max = 1; });
  ASSERT_TRUE(rig.Await([&] {
    const auto& in_flight = rig.attempts().in_flight();
    return in_flight.size() == 1 && in_flight[0]->ranks().size() == 1 &&
           in_flight[0]->ranks().at(0).written_bytes >= 1 << 20;
  }));
  rig.OnLoop([&] {
    EXPECT_FALSE(ranks[0]->staged());
    EXPECT_STREQ(rig.attempts().in_flight()[0]->StateName(), "staging");
    ranks[0]->seal_max = UINT32_MAX;
    ranks[0]->Pump();
  });
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  rig.ExpectStored("a", ranks);
}

TEST(Attempt, AnotherWorldSizeIsRefusedNamingBoth) {
  SaveRig rig;
  auto first = rig.Rank(0, 2);
  auto other = rig.Rank(1, 3);
  rig.Save(first);
  rig.Save(other);
  ASSERT_TRUE(rig.AwaitFailed({other}));
  EXPECT_TRUE(Says(other->failure, "2 ranks") && Says(other->failure, "world size of 3"))
      << other->failure.status;
  EXPECT_EQ(other->failure.phase, "join");
  // The attempt goes on.
  auto second = rig.Rank(1, 2);
  rig.Save(second);
  EXPECT_TRUE(rig.AwaitCommitted({first, second}));
}

TEST(Attempt, AnotherStepOrModeIsRefused) {
  SaveRig rig;
  auto first = rig.Rank(0, 2);
  rig.Save(first);
  auto rank = rig.Rank(1, 2);
  SaveOptions options = rank->options;
  options.step = 8;
  auto other_step = std::make_shared<FakeRank>(rig, rank->session, options, rank->plan);
  rig.Save(other_step);
  options.step = 7;
  options.replace = true;
  auto other_mode = std::make_shared<FakeRank>(rig, rank->session, options, rank->plan);
  rig.Save(other_mode);
  ASSERT_TRUE(rig.AwaitFailed({other_step, other_mode}));
  EXPECT_TRUE(Says(other_step->failure, "step 7") && Says(other_step->failure, "step 8"));
  EXPECT_TRUE(Says(other_mode->failure, "on_existing"));
  rig.Save(rank);
  EXPECT_TRUE(rig.AwaitCommitted({first, rank}));
}

TEST(Attempt, ARankJoinsOnce) {
  SaveRig rig;
  auto first = rig.Rank(0, 2);
  rig.Save(first);
  SaveOptions options = first->options;
  options.request_id = "another";
  auto again = std::make_shared<FakeRank>(rig, first->session, options, first->plan);
  rig.Save(again);
  ASSERT_TRUE(rig.AwaitFailed({again}));
  EXPECT_EQ(again->failure.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(Says(again->failure, "rank 0"));
  auto second = rig.Rank(1, 2);
  rig.Save(second);
  EXPECT_TRUE(rig.AwaitCommitted({first, second}));
}

TEST(Attempt, RanksThatDoNotJoinInTimeAreNamed) {
  SaveRig rig;
  Ranks ranks = {rig.Rank(0, 4), rig.Rank(2, 4)};
  for (const auto& rank : ranks) rig.Save(rank);
  ASSERT_TRUE(rig.Await([&] { return ranks[1]->attempt.sequence != 0; }));
  rig.Advance(absl::Seconds(599));
  rig.OnLoop([&] { EXPECT_FALSE(ranks[0]->ended()); });
  rig.Advance(absl::Seconds(1));
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Says(ranks[0]->failure, "ranks 1, 3 did not join")) << ranks[0]->failure.status;
  EXPECT_EQ(ranks[0]->failure.phase, "join");
  EXPECT_EQ(ranks[0]->failure.rank, std::optional<uint32_t>(1));
  rig.OnLoop([&] {
    for (const auto& rank : ranks)
      rig.attempts().FindEnded("job", "a")->ReleaseGranted(rank->session);
  });
  rig.ExpectQuiet();
}

TEST(Attempt, ASaveOfAnotherLifeDoesNotFreeWhatALivingRankMayStillFill) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(1, "a", [](FakeRank& rank) { rank.seal_max = 0; });
  ASSERT_TRUE(rig.Await([&] { return !ranks[0]->granted.empty(); }));
  uint32_t block = ranks[0]->granted[0].arena_block;
  rig.OnLoop([&] {
    ranks[0]->ticket->attempt->Fail(
        Failure{absl::CancelledError("cancelled"), 0, SaveRig::kNode, "stage"});
  });
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  // The same rank of a new incarnation, beside the old one.
  auto original = rig.Rank(0, 1, "b");
  Session session = original->session;
  session.info.incarnation = "2";
  auto other = std::make_shared<FakeRank>(rig, session, original->options, original->plan);
  rig.Save(other);
  rig.OnLoop([&] {
    EXPECT_EQ(ranks[0]->arena->state(block), Arena::BlockState::kGranted);
    rig.attempts().FindEnded("job", "a")->ReleaseGranted(ranks[0]->session);
    EXPECT_NE(ranks[0]->arena->state(block), Arena::BlockState::kSealed);
  });
  ASSERT_TRUE(rig.AwaitCommitted({other}));
  rig.ExpectQuiet();
}

TEST(Attempt, ARankIsNotHeldUpByOnesThatComeLate) {
  SaveRig rig;
  auto first = rig.Rank(0, 2);
  rig.Save(first);
  ASSERT_TRUE(rig.Await([&] { return first->attempt.sequence != 0; }));
  rig.OnLoop([&] { EXPECT_EQ(first->told, "admitted "); });
  rig.Advance(Attempt::kPlanPatience);
  ASSERT_TRUE(rig.Await([&] { return first->staged(); }));
  EXPECT_EQ(first->ordinals.size(), 7u) << "everything it holds";
  auto late = rig.Rank(1, 2);
  rig.Save(late);
  ASSERT_TRUE(rig.AwaitCommitted({first, late}));
  EXPECT_EQ(late->ordinals.size(), 3u) << "what is written already is left out";
  rig.ExpectStored("a", Ranks{first, late});
  rig.ExpectQuiet();
}

TEST(Attempt, UnderLowestRankEveryRankWaitsForAll) {
  SaveRig rig;
  auto make = [&](uint32_t rank) {
    auto original = rig.Rank(rank, 2);
    SaveOptions options = original->options;
    options.replicas = ReplicaPolicy::kLowestRank;
    return std::make_shared<FakeRank>(rig, original->session, options, original->plan);
  };
  auto first = make(1), second = make(0);
  rig.Save(first);
  ASSERT_TRUE(rig.Await([&] { return first->attempt.sequence != 0; }));
  rig.Advance(absl::Seconds(100));
  rig.OnLoop([&] { EXPECT_EQ(first->told, "admitted "); });
  rig.Save(second);
  EXPECT_TRUE(rig.AwaitCommitted({first, second}));
}

TEST(Attempt, ReplicasThatDifferFailItNamingThem) {
  SaveRig rig;
  Ranks ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    auto plan = std::make_shared<RankPlan>(*TestPlan(rank, 2));
    plan->items[0] = Item("step", rank == 0 ? "7" : "8", ItemKind::kJson);
    ranks.push_back(rig.Rank(rank, 2, "a", plan));
    rig.Save(ranks.back());
  }
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.phase, "plan");
  EXPECT_TRUE(Says(ranks[0]->failure, "\"step\"") &&
              Says(ranks[0]->failure, "replicas=lowest_rank"))
      << ranks[0]->failure.status;
  rig.ExpectQuiet();
}

TEST(Attempt, AHoleInATensorFailsItNamingTheTensor) {
  SaveRig rig;
  auto plan = std::make_shared<RankPlan>(*TestPlan(1, 2));
  plan->tensors[0].chunks[0].sizes[0] -= 1;
  Ranks ranks = {rig.Rank(0, 2), rig.Rank(1, 2, "a", plan)};
  for (const auto& rank : ranks) rig.Save(rank);
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.phase, "plan");
  EXPECT_TRUE(Says(ranks[0]->failure, "\"w\"")) << ranks[0]->failure.status;
}

TEST(Attempt, StreamsThroughAnArenaSmallerThanTheImage) {
  SaveRig rig({.arena_limit_bytes = 2 << 20});
  Ranks ranks = rig.SaveAll(2);  // One block each for images of three.
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  EXPECT_EQ(ranks[0]->arena->block_count(), 1u);
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
}

TEST(Attempt, NoArenaAtAllFailsItWithBothNumbers) {
  SaveRig rig({.arena_limit_bytes = 1 << 20});
  Ranks ranks = rig.SaveAll(2);
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ranks[0]->failure.phase, "stage");
  EXPECT_TRUE(Says(ranks[0]->failure, "1048576")) << ranks[0]->failure.status;
}

TEST(Attempt, AWrongSealFailsIt) {
  auto failure = [](const std::function<void(SaveRig&, FakeRank&)>& act) {
    SaveRig rig;
    Ranks ranks = rig.SaveAll(1, "a", [](FakeRank& rank) { rank.seal_max = 1; });
    EXPECT_TRUE(
        rig.Await([&] { return ranks[0]->sealed.size() == 1 && ranks[0]->granted.size() == 2; }));
    rig.OnLoop([&] { act(rig, *ranks[0]); });
    EXPECT_TRUE(rig.AwaitFailed(ranks));
    EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ranks[0]->failure.rank, std::optional<uint32_t>(0));
    EXPECT_EQ(ranks[0]->failure.phase, "stage");
    rig.EndSession(ranks[0]->session, SessionEnd::kDead);
    rig.ExpectQuiet();
    return std::string(ranks[0]->failure.status.message());
  };
  auto seal = [](FakeRank& rank, uint32_t image_block, uint32_t arena_block, size_t checksums) {
    rank.ticket->attempt->Sealed(0, image_block, arena_block, std::vector<uint32_t>(checksums, 1));
  };
  std::string granted = "which it was not granted";
  EXPECT_NE(failure([&](SaveRig&, FakeRank& rank) { seal(rank, 9, 0, 1); }).find(granted),
            std::string::npos);
  EXPECT_NE(failure([&](SaveRig&, FakeRank& rank) {
              const ResumedBlock& twice = rank.sealed.begin()->second;
              seal(rank, twice.image_block, twice.arena_block, 1);
            }).find(granted),
            std::string::npos);
  EXPECT_NE(failure([&](SaveRig&, FakeRank& rank) {
              seal(rank, rank.granted[0].image_block, 77, 1);
            }).find(granted),
            std::string::npos);
  EXPECT_NE(failure([&](SaveRig&, FakeRank& rank) {
              seal(rank, rank.granted[0].image_block, rank.granted[0].arena_block, 5);
            }).find("with 5 checksums"),
            std::string::npos);
}

TEST(Attempt, AChecksumThatDoesNotFitFailsItNamingTheRank) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(2, "a", [](FakeRank& rank) {
    if (rank.session.info.rank == 1) {
      rank.before_seal = [](std::vector<uint32_t>& checksums) { checksums[0] ^= 1; };
    }
  });
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ranks[0]->failure.rank, std::optional<uint32_t>(1));
  EXPECT_EQ(ranks[0]->failure.phase, "write");
  EXPECT_TRUE(Says(ranks[0]->failure, "rank 1 changed a sealed block"));
  for (const auto& rank : ranks) rig.EndSession(rank->session, SessionEnd::kDead);
  rig.ExpectQuiet();
}

TEST(Attempt, WithoutProgressItFails) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(1, "a", [](FakeRank& rank) { rank.seal_max = 1; });
  auto is_written = [&](size_t block) {
    const std::vector<ImageBlock>& blocks = rig.attempts().in_flight()[0]->ranks().at(0).blocks;
    return block < blocks.size() && blocks[block].state == ImageBlock::State::kWritten;
  };
  ASSERT_TRUE(rig.Await([&] { return is_written(0); }));
  rig.Advance(absl::Seconds(500));
  rig.OnLoop([&] {
    EXPECT_FALSE(ranks[0]->ended());
    ranks[0]->seal_max = 2;
    ranks[0]->Pump();
  });
  ASSERT_TRUE(rig.Await([&] { return is_written(1); }));
  rig.Advance(absl::Seconds(599));
  rig.OnLoop([&] { EXPECT_FALSE(ranks[0]->ended()) << "progress counts, not time"; });
  rig.Advance(absl::Seconds(2));
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Says(ranks[0]->failure, "no progress"));
}

}  // namespace
}  // namespace ckptd
