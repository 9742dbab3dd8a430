#include "server/attempts.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/server/save_rig.h"

namespace ckptd {
namespace {

using Ranks = std::vector<std::shared_ptr<FakeRank>>;

void Hold(FakeRank& rank) { rank.seal_max = 1; }

void GoOn(SaveRig& rig, const Ranks& ranks) {
  rig.OnLoop([&] {
    for (const auto& rank : ranks) {
      rank->seal_max = UINT32_MAX;
      rank->Pump();
    }
  });
}

bool Says(const Failure& failure, const std::string& part) {
  return failure.status.message().find(part) != std::string::npos;
}

// A save that says something else than usual.
std::shared_ptr<FakeRank> With(SaveRig& rig, const std::shared_ptr<FakeRank>& rank,
                               const std::function<void(SaveOptions&)>& change) {
  SaveOptions options = rank->options;
  change(options);
  return std::make_shared<FakeRank>(rig, rank->session, options, rank->plan);
}

// Until the attempt of this id is beyond its admission.
bool AwaitAdmitted(SaveRig& rig, const Ranks& ranks) {
  return rig.Await([&] { return ranks[0]->attempt.sequence != 0; });
}

TEST(Attempts, TwoSavesAreInFlightAtOnceAndAThirdWaits) {
  SaveRig rig;
  Ranks a = rig.SaveAll(2, "a", Hold);
  Ranks b = rig.SaveAll(2, "b", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, a) && AwaitAdmitted(rig, b));
  Ranks c = rig.SaveAll(2, "c");
  rig.OnLoop([&] {
    EXPECT_EQ(c[0]->told, "");
    EXPECT_STREQ(rig.attempts().FindInFlight("job", "c")->StateName(), "waiting");
  });
  rig.Advance(absl::Seconds(100));
  GoOn(rig, b);
  ASSERT_TRUE(rig.AwaitCommitted(b));
  ASSERT_TRUE(rig.AwaitCommitted(c));
  rig.Advance(absl::Seconds(100));  // The time-out of its admission is no more.
  GoOn(rig, a);
  ASSERT_TRUE(rig.AwaitCommitted(a));
  for (const char* id : {"a", "b", "c"}) rig.ExpectStored(id, a);
  rig.ExpectQuiet();
  EXPECT_LT(a[0]->attempt.sequence, b[0]->attempt.sequence);
  EXPECT_LT(b[0]->attempt.sequence, c[0]->attempt.sequence);
}

TEST(Attempts, TheLimitIsPerJob) {
  SaveRig rig({.max_inflight_attempts = 1});
  Ranks a = rig.SaveAll(1, "a", Hold);
  auto original = rig.Rank(0, 1, "b");
  Session session = original->session;
  session.info.job = "another job";
  auto other = std::make_shared<FakeRank>(rig, session, original->options, original->plan);
  rig.Save(other);
  ASSERT_TRUE(rig.AwaitCommitted({other}));
  GoOn(rig, a);
  ASSERT_TRUE(rig.AwaitCommitted(a));
}

TEST(Attempts, AWaitingSaveFailsAfterAdmitTimeoutOnceForAllItsRanks) {
  SaveRig rig({.max_inflight_attempts = 1});
  Ranks a = rig.SaveAll(1, "a", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, a));
  Ranks b = {rig.Rank(0, 3, "b"), rig.Rank(2, 3, "b")};
  for (const auto& rank : b) rig.Save(rank);
  rig.Advance(absl::Seconds(119));
  rig.OnLoop([&] { EXPECT_FALSE(b[0]->ended()); });
  rig.Advance(absl::Seconds(1));
  ASSERT_TRUE(rig.AwaitFailed(b));
  EXPECT_EQ(b[0]->failure.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(b[0]->failure.phase, "admit");
  EXPECT_TRUE(Says(b[0]->failure, "(a)") && Says(b[0]->failure, "waited 2m"))
      << b[0]->failure.status;
  auto late = rig.Rank(1, 3, "b");
  rig.Save(late);
  ASSERT_TRUE(rig.AwaitFailed({late}));
  EXPECT_EQ(late->failure.status, b[0]->failure.status);
  // All have been told: the next one of that id is a new attempt.
  GoOn(rig, a);
  ASSERT_TRUE(rig.AwaitCommitted(a));
  EXPECT_TRUE(rig.AwaitCommitted(rig.SaveAll(2, "b")));
}

TEST(Attempts, RejectRefusesOnceForAllRanks) {
  SaveRig rig({.max_inflight_attempts = 1});
  Ranks a = rig.SaveAll(1, "a", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, a));
  auto reject = [&](uint32_t rank, const std::string& request) {
    return With(rig, rig.Rank(rank, 3, "b"), [&](SaveOptions& options) {
      options.reject_overlap = true;
      options.request_id = request;
    });
  };
  auto first = reject(1, "one");
  rig.Save(first);
  ASSERT_TRUE(rig.AwaitFailed({first}));
  EXPECT_TRUE(Says(first->failure, "on_overlap=reject")) << first->failure.status;
  GoOn(rig, a);
  ASSERT_TRUE(rig.AwaitCommitted(a));
  // There is room now, but the save as a whole was refused.
  auto second = reject(0, "one");
  rig.Save(second);
  ASSERT_TRUE(rig.AwaitFailed({second}));
  // The first one tries again: from now on it is a new attempt, of the third too.
  Ranks again = {reject(1, "two"), reject(2, "two"), reject(0, "two")};
  for (const auto& rank : again) rig.Save(rank);
  ASSERT_TRUE(rig.AwaitCommitted(again));
  rig.ExpectStored("b", again);
}

TEST(Attempts, ARefusalIsForgottenWithItsRanks) {
  SaveRig rig({.max_inflight_attempts = 1});
  Ranks a = rig.SaveAll(1, "a", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, a));
  auto refused =
      With(rig, rig.Rank(1, 2, "b"), [](SaveOptions& options) { options.reject_overlap = true; });
  rig.Save(refused);
  ASSERT_TRUE(rig.AwaitFailed({refused}));
  GoOn(rig, a);
  ASSERT_TRUE(rig.AwaitCommitted(a));
  rig.EndSession(refused->session, SessionEnd::kDead);
  EXPECT_TRUE(rig.AwaitCommitted(rig.SaveAll(2, "b"))) << "of the next life of the job";
}

// Another call of save by the same process.
std::shared_ptr<FakeRank> Again(SaveRig& rig, const std::shared_ptr<FakeRank>& rank,
                                const std::string& request = "again") {
  return With(rig, rank, [&](SaveOptions& options) { options.request_id = request; });
}

constexpr char kNoFolder[] = "mkdir:job/attempts/@1=error:EIO";

TEST(Attempts, ARankThatComesAfterTheFailureFailsTheSame) {
  SaveRig rig({.faults = kNoFolder});
  Ranks ranks = {rig.Rank(0, 3), rig.Rank(1, 3), rig.Rank(2, 3)};
  for (const auto& rank : ranks) {
    rig.Save(rank);
    ASSERT_TRUE(rig.AwaitFailed({rank}));
    EXPECT_EQ(rank->failure, ranks[0]->failure);
  }
  EXPECT_TRUE(Says(ranks[0]->failure, "Input/output error")) << ranks[0]->failure.status;
  EXPECT_EQ(rig.OnLoop([&] { return rig.attempts().failures().at("job").size(); }), 1u);
  // All have been told, and all try again, in any order.
  Ranks again = {Again(rig, ranks[2]), Again(rig, ranks[0]), Again(rig, ranks[1])};
  for (const auto& rank : again) rig.Save(rank);
  ASSERT_TRUE(rig.AwaitCommitted(again));
  rig.ExpectStored("a", again);
  rig.ExpectQuiet();
}

TEST(Attempts, ARankThatTriesAgainBeginsANewAttemptForThoseTooThatWereNotTold) {
  SaveRig rig({.faults = kNoFolder});
  auto first = rig.Rank(0, 2);
  rig.Save(first);
  ASSERT_TRUE(rig.AwaitFailed({first}));
  Ranks ranks = {Again(rig, first), rig.Rank(1, 2)};
  for (const auto& rank : ranks) rig.Save(rank);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
}

TEST(Attempts, ARankThatComesWhileTheSaveIsAbortedFailsTheSame) {
  SaveRig rig({.faults = "rename:failed/=delay:300ms"});
  Ranks ranks = rig.SaveAll(1, "b");  // The folders of the job are there.
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  ranks = {rig.Rank(0, 2), rig.Rank(1, 2)};
  rig.Save(ranks[0]);
  ASSERT_TRUE(AwaitAdmitted(rig, ranks));
  rig.OnLoop([&] {
    ranks[0]->ticket->attempt->Fail(Failure{absl::CancelledError("enough"), 0, "node", "stage"});
    EXPECT_EQ(ranks[0]->ticket->attempt->state(), Attempt::State::kAborting);
  });
  rig.Save(ranks[1]);
  EXPECT_TRUE(rig.OnLoop([&] { return ranks[1]->failed; }));
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[1]->failure.status, absl::CancelledError("enough"));
  // It was told, and is not told twice.
  Ranks again = {Again(rig, ranks[1]), Again(rig, ranks[0])};
  for (const auto& rank : again) rig.Save(rank);
  EXPECT_TRUE(rig.AwaitCommitted(again));
}

TEST(Attempts, AVerdictIsForOneSaveOnly) {
  SaveRig rig({.faults = "mkdir:job/attempts/@1=error:EIO;mkdir:job/attempts/@2=error:EIO"});
  auto of_step = [&](uint32_t rank, int64_t step) {
    return With(rig, rig.Rank(rank, 2), [&](SaveOptions& options) {
      options.step = step;
      options.request_id = absl::StrCat(step);
    });
  };
  auto first = of_step(0, 1);
  rig.Save(first);
  ASSERT_TRUE(rig.AwaitFailed({first}));
  auto other = of_step(1, 2);  // The second error.
  rig.Save(other);
  ASSERT_TRUE(rig.AwaitFailed({other}));
  EXPECT_NE(other->failure, first->failure) << "of an attempt of its own";
  rig.Advance(absl::Seconds(600));  // Nobody else came within join_timeout.
  Ranks ranks = {of_step(0, 2), of_step(1, 2)};
  for (const auto& rank : ranks) rig.Save(rank);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
}

TEST(Attempts, AVerdictIsForOneLifeOfTheJobOnly) {
  SaveRig rig;
  auto old = rig.Rank(1, 2);  // Its session is older than the death.
  auto dead = rig.Rank(0, 2);
  rig.Save(dead);
  ASSERT_TRUE(AwaitAdmitted(rig, {dead}));
  rig.OnLoop([&] { dead->seal_max = 0; });
  rig.OnLoop([&] {
    dead->ticket->attempt->Fail(Failure{absl::CancelledError("enough"), 0, "node", "stage"});
  });
  ASSERT_TRUE(rig.AwaitFailed({dead}));
  rig.EndSession(dead->session, SessionEnd::kClosed);
  rig.Save(old);
  ASSERT_TRUE(rig.AwaitFailed({old})) << "it belongs to that life";

  auto next = rig.Rank(0, 2, "b");
  rig.Save(next);
  ASSERT_TRUE(AwaitAdmitted(rig, {next}));
  rig.EndSession(next->session, SessionEnd::kDead);
  ASSERT_TRUE(rig.Await([&] { return rig.attempts().in_flight().empty(); }));
  // The new life's rank 1 is first, and was never told of the old failure: it is none of its own.
  Ranks ranks = {rig.Rank(1, 2, "b"), rig.Rank(0, 2, "b")};
  for (const auto& rank : ranks) rig.Save(rank);
  EXPECT_TRUE(rig.AwaitCommitted(ranks));
}

TEST(Attempts, ARepeatedRequestGetsTheSameAnswer) {
  SaveRig rig;
  Ranks ranks = rig.SaveAll(2, "a", Hold);
  ASSERT_TRUE(
      rig.Await([&] { return ranks[0]->sealed.size() == 1 && ranks[0]->granted.size() == 2; }));
  // In flight: the reply was lost, the stream is new, the save goes on. What the client has sealed
  // meanwhile is taken from it.
  auto again =
      std::make_shared<FakeRank>(rig, ranks[0]->session, ranks[0]->options, ranks[0]->plan);
  rig.OnLoop([&] {
    rig.attempts().in_flight()[0]->StreamGone(0, ranks[0].get());
    ranks[0]->ticket->attempt = nullptr;  // What it says does not arrive.
    ranks[0]->seal_max = 2;
    ranks[0]->Pump();
  });
  rig.Save(again, ranks[0]->resume());
  GoOn(rig, {ranks[1]});
  ASSERT_TRUE(rig.AwaitCommitted({again, ranks[1]}));
  EXPECT_EQ(again->sealed.size(), 1u) << "the block that was left";
  EXPECT_FALSE(ranks[0]->ended());
  rig.ExpectStored("a", ranks);
  // Ended: the answer is remembered.
  auto once_more =
      std::make_shared<FakeRank>(rig, ranks[0]->session, ranks[0]->options, ranks[0]->plan);
  rig.Save(once_more);
  ASSERT_TRUE(rig.AwaitCommitted({once_more}));
  EXPECT_EQ(once_more->told, "committed ");
  EXPECT_EQ(once_more->checkpoint.manifest, again->checkpoint.manifest);
  rig.ExpectQuiet();
}

TEST(Attempts, ARepeatedRequestOfAFailedSaveFailsTheSame) {
  SaveRig rig({.faults = "fsync:shard=error:EIO"});
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  auto again =
      std::make_shared<FakeRank>(rig, ranks[0]->session, ranks[0]->options, ranks[0]->plan);
  rig.Save(again);
  ASSERT_TRUE(rig.AwaitFailed({again}));
  EXPECT_EQ(again->failure, ranks[0]->failure);
  EXPECT_EQ(rig.OnLoop([&] { return rig.attempts().failures().at("job").size(); }), 1u);
}

TEST(Attempts, AnIdThatExistsIsRefusedOrReplaced) {
  SaveRig rig;
  ASSERT_TRUE(rig.AwaitCommitted(rig.SaveAll(2)));
  Ranks again = rig.SaveAll(2);
  ASSERT_TRUE(rig.AwaitFailed(again));
  EXPECT_EQ(again[0]->failure.status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(again[0]->failure.phase, "admit");
  Ranks replace;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    replace.push_back(With(rig, rig.Rank(rank, 2), [](SaveOptions& options) {
      options.replace = true;
      options.step = 8;
    }));
    rig.Save(replace.back());
  }
  ASSERT_TRUE(rig.AwaitCommitted(replace));
  rig.ExpectStored("a", replace);
  EXPECT_EQ(FindCheckpoint(rig.root().disk(), "job", "a")->manifest.step, 8);
  rig.ExpectQuiet();
}

TEST(Attempts, AnUnhealthyRootTakesNoSaves) {
  SaveRig rig;
  rig.OnLoop([&] { rig.root().SetUnhealthy("it smells"); });
  Ranks ranks = rig.SaveAll(1);
  ASSERT_TRUE(rig.AwaitFailed(ranks));
  EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Says(ranks[0]->failure, "it smells"));
}

TEST(Attempts, DrainTakesNoNewSavesAndWaitsForThoseInFlight) {
  SaveRig rig;
  Ranks a = rig.SaveAll(2, "a", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, a));
  bool drained = false;
  rig.OnLoop([&] { rig.attempts().Drain([&] { drained = true; }); });
  Ranks b = rig.SaveAll(1, "b");
  ASSERT_TRUE(rig.AwaitFailed(b));
  EXPECT_EQ(b[0]->failure.status.code(), absl::StatusCode::kUnavailable);
  rig.OnLoop([&] { EXPECT_FALSE(drained); });
  GoOn(rig, a);
  ASSERT_TRUE(rig.AwaitCommitted(a));
  EXPECT_TRUE(rig.Await([&] { return drained; }));
}

TEST(Attempts, FailAllFailsWhatIsInFlight) {
  SaveRig rig({.max_inflight_attempts = 1});
  Ranks a = rig.SaveAll(2, "a", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, a));
  Ranks b = rig.SaveAll(2, "b", Hold);  // It waits.
  rig.OnLoop([&] { rig.attempts().FailAll(absl::UnavailableError("stopped")); });
  ASSERT_TRUE(rig.AwaitFailed(a));
  ASSERT_TRUE(rig.AwaitFailed(b));
  EXPECT_TRUE(Says(a[0]->failure, "stopped"));
}

TEST(Attempts, RemembersAHundredEndedAndFailedOnes) {
  SaveRig rig;
  auto nothing = std::make_shared<const RankPlan>();
  std::vector<std::shared_ptr<FakeRank>> last;
  for (int i = 0; i < 103; ++i) {
    auto rank = rig.Rank(0, 1, absl::StrCat("id", i), nothing);
    rig.Save(rank);
    rig.OnLoop([&] { rank->ticket->attempt->Fail(Failure{absl::AbortedError("no"), 0, "", ""}); });
    ASSERT_TRUE(rig.AwaitFailed({rank}));
  }
  rig.OnLoop([&] {
    EXPECT_EQ(rig.attempts().failures().at("job").size(), 100u);
    EXPECT_EQ(rig.attempts().FindEnded("job", "id2"), nullptr);
    EXPECT_NE(rig.attempts().FindEnded("job", "id3"), nullptr);
  });
  EXPECT_LE(rig.List("failed").size(), 101u) << "the last one's are pruned in the background";
}

TEST(Attempts, WatchersAreCalledUntilTheyAreContent) {
  SaveRig rig;
  int calls = 0;
  Ranks ranks = rig.SaveAll(1, "a", Hold);
  ASSERT_TRUE(AwaitAdmitted(rig, ranks));
  rig.OnLoop([&] {
    rig.attempts().Watch([&] {
      ++calls;
      return rig.attempts().FindInFlight("job", "a") == nullptr;
    });
    rig.attempts().Watch([] { return true; });
  });
  GoOn(rig, ranks);
  ASSERT_TRUE(rig.AwaitCommitted(ranks));
  int after = rig.OnLoop([&] { return calls; });
  EXPECT_GE(after, 4) << "at once, staged, durable, ended";
  ASSERT_TRUE(rig.AwaitCommitted(rig.SaveAll(1, "b")));
  EXPECT_EQ(rig.OnLoop([&] { return calls; }), after);
}

}  // namespace
}  // namespace ckptd
