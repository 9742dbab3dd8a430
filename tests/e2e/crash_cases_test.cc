// Reports of lost and mixed checkpoints, played with real processes: kills, stragglers, overlaps.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint64_t kSeed = 41700;

Json Attempt(const TestSite& site, const std::string& id) {
  const Json status = Ckptctl(site, {"status"}).json;
  for (const Json& attempt : status["attempts"]) {
    if (attempt["id"] == id) return attempt;
  }
  return Json();
}

uint64_t ArenaBytes(const TestSite& site) {
  return Ckptctl(site, {"status"}).json["memory"]["arena_bytes"];
}

TEST(RankKilledInStaging, FailsTheAttemptAndItsRetryHoldsNothingOfIt) {
  TestSite site;
  TestDaemon daemon(site,
                    {.faulty = true, .flags = {"--arena-limit", "8MiB", "--block-size", "1MiB"}});
  const std::vector<std::string> flags = {"--tensor", "w:uint8:16000x1000", "--deferred"};
  TestTrainer first(site, RankFlags(0, 2, flags));
  std::optional<TestTrainer> second;
  second.emplace(site, RankFlags(1, 2, flags));
  site.SetFaults("write:shard=rate:4MiB");
  BeginSave(first, "10", 1);
  BeginSave(*second, "10", 1);
  ASSERT_TRUE(Eventually([&] {
    const Json attempt = Attempt(site, "10");
    return attempt.is_object() && attempt["ranks"].size() == 2 &&
           attempt["ranks"][1]["staged_bytes"] > 0;
  }));
  second.reset();  // SIGKILL.
  const Json end = first.AwaitOutcome("10");
  EXPECT_EQ(end["event"], "failed");
  EXPECT_THAT(end["message"].get<std::string>(), HasSubstr("rank 1"));
  const CommandResult shown = Ckptctl(site, {"show", "10"});
  EXPECT_EQ(shown.json["state"], "failed") << shown.out << shown.err;
  EXPECT_EQ(shown.json["error"]["rank"], 1);
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  site.SetFaults("");
  second.emplace(site, RankFlags(1, 2, flags));
  BeginSave(first, "10", 2);
  BeginSave(*second, "10", 2);
  EXPECT_EQ(first.AwaitOutcome("10")["event"], "failed");  // Heard before.
  EXPECT_EQ(second->AwaitOutcome("10")["event"], "committed");
  ASSERT_TRUE(Eventually([&] { return ListedIds(site) == std::vector<std::string>{"10"}; }));
  ExpectLoads(first, "10", 2);
  ExpectLoads(*second, "10", 2);
  EXPECT_EQ(
      std::distance(std::filesystem::directory_iterator(site.root() + "/job/checkpoints/10"), {}),
      5);
}

// Both ranks are staged: the daemon has all bytes, and always commits.
TEST(RanksKilledAfterStaging, DoNotKeepTheSaveFromCommitting) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true, .flags = {"--block-size", "1MiB"}});
  for (int round = 1; round <= 5; ++round) {
    const std::string id = absl::StrCat("step-", round);
    site.SetFaults("write:shard=rate:1MiB");
    const std::vector<std::string> flags = {"--tensor", "w:float32:20000x10", "--incarnation",
                                            absl::StrCat(round)};
    {
      TestTrainer first(site, RankFlags(0, 2, flags));
      TestTrainer second(site, RankFlags(1, 2, flags));
      BeginSave(first, id, round);
      BeginSave(second, id, round);
      first.Answer("save");
      second.Answer("save");
    }
    EXPECT_EQ(Ckptctl(site, {"wait", id, "--for", "committed"}).json["state"], "committed");
    site.SetFaults("");
    EXPECT_EQ(Ckptctl(site, {"verify", id}).exit_code, 0);
  }
  EXPECT_LE(ArenaBytes(site), 2u << 20) << "one block for each rank's successor";
}

TEST(DaemonKilledAtARandomMoment, NeverListsWhatDoesNotLoad) {
  constexpr int kRounds = 30;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 random(kSeed);
  TestSite site;
  std::optional<TestDaemon> daemon;
  const TestDaemon::Options options = {.faulty = true, .flags = {"--reattach-timeout", "5s"}};
  daemon.emplace(site, options);
  site.SetFaults("write:shard=rate:64MiB");  // The kills fall into the write and behind it.
  TestTrainer rank(site, RankFlags(0, 1, {"--tensor", "w:uint8:32000x1000"}));
  std::vector<std::string> listed;
  int committed = 0;
  for (int round = 1; round <= kRounds; ++round) {
    SCOPED_TRACE(round);
    const std::string id = absl::StrCat("step-", round);
    BeginSave(rank, id, round);
    EXPECT_EQ(rank.Answer("save")["ok"], true);
    absl::SleepFor(absl::Milliseconds(random() % 500));
    daemon->Kill();
    daemon.emplace(site, options);
    ASSERT_TRUE(daemon->ready()) << daemon->Log();
    const std::string outcome = rank.AwaitOutcome(id)["event"];
    committed += outcome == "committed";
    std::vector<std::string> now = ListedIds(site);
    if (outcome == "committed") listed.push_back(id);
    EXPECT_EQ(now, listed) << "the list never shrinks";
    const std::string any = now.empty() ? id : now[random() % now.size()];
    ExpectLoads(rank, any, std::stoi(any.substr(5)));
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0);
  for (const auto& [path, content] : ReadTree(site.root())) {
    EXPECT_FALSE(absl::StartsWith(path, "job/attempts/") || absl::EndsWith(path, ".tmp")) << path;
  }
  EXPECT_EQ(committed, kRounds) << "the rank has come back each time";
}

TEST(OnlyAnUnfinishedCheckpoint, IsNotTheSameAsNone) {
  TestSite site;
  std::optional<TestDaemon> daemon;
  daemon.emplace(site, TestDaemon::Options{.faulty = true});
  TestTrainer asker(site, RankFlags(0, 1, {"--tensor", "w:float32:8", "--job", "other"}));
  EXPECT_EQ(asker.Do("load latest 0s")["code"], "NOT_FOUND");
  EXPECT_EQ(asker.Do("latest")["code"], "NOT_FOUND");
  EXPECT_EQ(Ckptctl(site, {"latest"}).exit_code, 3);
  site.SetFaults("write:shard=kill");
  {
    TestTrainer rank(site, RankFlags(0, 1, {"--tensor", "w:float32:8x8"}));
    rank.Send("save step-9 9");
    EXPECT_EQ(daemon->process().AwaitEnd(), -SIGKILL);
  }
  site.SetFaults("");
  daemon.emplace(site, TestDaemon::Options{.flags = {"--reattach-timeout", "60s"}});
  const auto before = ReadTree(site.root() + "/job");
  TestTrainer rank(site, RankFlags(0, 1, {"--tensor", "w:float32:8x8", "--incarnation", "2"}));
  for (const char* command : {"load latest 0s", "latest", "load step-9 0s"}) {
    const Json answer = rank.Do(command);
    EXPECT_EQ(answer["code"], "FAILED_PRECONDITION") << answer.dump();
    EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr("step-9"));
  }
  for (const auto& run : {Ckptctl, OfflineCkptctl}) {
    const CommandResult latest = run(site, {"--job", "job", "latest"});
    EXPECT_EQ(latest.exit_code, 7) << latest.out;
    EXPECT_THAT(latest.err, HasSubstr("step-9"));
  }
  EXPECT_EQ(ReadTree(site.root() + "/job"), before) << "asking deletes nothing";
  EXPECT_EQ(Ckptctl(site, {"--job", "none", "latest"}).exit_code, 3);
}

TEST(OneRankAlone, FailsAfterTheJoinTimeOutNamingTheOther) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--join-timeout", "4s"}});
  TestTrainer first(site, RankFlags(0, 2, {"--tensor", "w:float32:100x3"}));
  TestTrainer second(site, RankFlags(1, 2, {"--tensor", "w:float32:100x3"}));
  first.Ok("fill 5");
  const Json saved = first.Do("save 5 5");
  EXPECT_EQ(saved["ok"], true) << "returns after staging: " << saved.dump();
  EXPECT_LT(saved["seconds"], 3.5);
  EXPECT_EQ(first.Do("wait 5 committed 500ms")["code"], "DEADLINE_EXCEEDED");
  const Json waiting = Attempt(site, "5");
  EXPECT_EQ(waiting["ranks_missing"], Json({1})) << waiting.dump();
  const Json end = first.AwaitOutcome("5");
  EXPECT_EQ(end["event"], "failed");
  EXPECT_EQ(end["code"], "DEADLINE_EXCEEDED");
  EXPECT_THAT(end["message"].get<std::string>(), HasSubstr("rank 1 did not join"));
  EXPECT_EQ(Ckptctl(site, {"wait", "5", "--for", "committed"}).exit_code, 7);
  BeginSave(first, "6", 6);
  BeginSave(second, "6", 6);
  EXPECT_EQ(first.AwaitOutcome("6")["event"], "committed");
  EXPECT_EQ(second.AwaitOutcome("6")["event"], "committed");
  ExpectLoads(second, "6", 6);
}

TEST(TwoRanks, ThatSaveDifferentIdsAreNeverMixed) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--join-timeout", "3s"}});
  TestTrainer first(site, RankFlags(0, 2, {"--tensor", "w:float32:100x3"}));
  TestTrainer second(site, RankFlags(1, 2, {"--tensor", "w:float32:100x3"}));
  BeginSave(first, "5", 5);
  BeginSave(second, "6", 6);
  EXPECT_THAT(first.AwaitOutcome("5")["message"].get<std::string>(), HasSubstr("rank 1"));
  EXPECT_THAT(second.AwaitOutcome("6")["message"].get<std::string>(), HasSubstr("rank 0"));
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  // The same id, another step: whoever comes second is told both.
  const std::vector<std::string> patient = {"--job",           "other",          "--tensor",
                                            "w:float32:100x3", "--join-timeout", "60s"};
  TestTrainer third(site, RankFlags(0, 2, patient));
  TestTrainer fourth(site, RankFlags(1, 2, patient));
  BeginSave(third, "7", 7);
  EXPECT_FALSE(third.FindEvent({"staged"}, "7", kPatience).is_null());
  BeginSave(fourth, "7", 8);
  const Json end = fourth.AwaitOutcome("7");
  EXPECT_EQ(end["event"], "failed");
  EXPECT_THAT(end["message"].get<std::string>(), AllOf(HasSubstr("7"), HasSubstr("8")));
}

TEST(SavesThatOverlap, EachHaveTheirOwnBytes) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true, .flags = {"--block-size", "1MiB"}});
  site.SetFaults("write:shard=rate:4MiB");
  const std::vector<std::string> flags = {"--tensor", "w:uint8:4000x1000"};
  TestTrainer first(site, RankFlags(0, 2, flags));
  TestTrainer second(site, RankFlags(1, 2, flags));
  for (int step = 1; step <= 3; ++step) {
    BeginSave(first, absl::StrCat("step-", step), step);
    BeginSave(second, absl::StrCat("step-", step), step);
    EXPECT_EQ(first.Answer("save")["ok"], true);
    EXPECT_EQ(second.Answer("save")["ok"], true);
  }
  for (int step = 1; step <= 3; ++step) {
    const std::string id = absl::StrCat("step-", step);
    EXPECT_EQ(first.AwaitOutcome(id)["event"], "committed");
    EXPECT_EQ(second.AwaitOutcome(id)["event"], "committed");
  }
  site.SetFaults("");
  for (int step = 1; step <= 3; ++step) {
    ExpectLoads(first, absl::StrCat("step-", step), step);
    ExpectLoads(second, absl::StrCat("step-", step), step);
  }
}

TEST(SavesThatOverlap, AreRefusedForAllRanksAlikeIfAskedFor) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true, .flags = {"--max-inflight-attempts", "1"}});
  site.SetFaults("write:shard=rate:512KiB");
  const std::vector<std::string> flags = {"--tensor", "w:uint8:1000x1000", "--on-overlap",
                                          "reject"};
  TestTrainer first(site, RankFlags(0, 2, flags));
  TestTrainer second(site, RankFlags(1, 2, flags));
  BeginSave(first, "1", 1);
  BeginSave(second, "1", 1);
  first.Answer("save");
  second.Answer("save");
  for (TestTrainer* rank : {&first, &second}) {
    const Json answer = rank->Do("save 2 2");
    EXPECT_EQ(answer["code"], "RESOURCE_EXHAUSTED") << answer.dump();
  }
  EXPECT_EQ(first.AwaitOutcome("1")["event"], "committed");
  site.SetFaults("");
  BeginSave(first, "3", 3);
  BeginSave(second, "3", 3);
  EXPECT_EQ(first.AwaitOutcome("3")["event"], "committed");
  ExpectLoads(second, "1", 1);
}

TEST(TheSameIdAgain, IsRefusedByDefaultAndTheOldOneIsIntact) {
  TestSite site;
  TestDaemon daemon(site);
  const std::vector<std::string> flags = {"--tensor", "w:float32:100x3"};
  {
    TestTrainer first(site, RankFlags(0, 2, flags));
    TestTrainer second(site, RankFlags(1, 2, flags));
    BeginSave(first, "5", 1);
    BeginSave(second, "5", 1);
    EXPECT_EQ(first.AwaitOutcome("5")["event"], "committed");
    EXPECT_EQ(second.AwaitOutcome("5")["event"], "committed");
  }
  TestTrainer rank(site, RankFlags(0, 1, {"--tensor", "w:float32:100x3", "--incarnation", "2"}));
  const auto before = ReadTree(site.root() + "/job/checkpoints");
  BeginSave(rank, "5", 2);
  EXPECT_EQ(rank.AwaitOutcome("5")["code"], "ALREADY_EXISTS");
  EXPECT_EQ(ReadTree(site.root() + "/job/checkpoints"), before);
}

// A reader sees all of the old or all of the new, and a kill in between leaves one of them.
TEST(TheSameIdAgain, IsReplacedAtOnceForWhoReadsAllTheTime) {
  TestSite site;
  std::optional<TestDaemon> daemon;
  daemon.emplace(site,
                 TestDaemon::Options{.faulty = true,
                                     .flags = {"--reattach-timeout", "5s", "--trash-grace", "0s"}});
  const std::vector<std::string> flags = {"--tensor", "w:uint8:200x1000", "--on-existing",
                                          "replace"};
  TestTrainer writer(site, RankFlags(0, 1, flags));
  TestTrainer reader(site, RankFlags(0, 1, {"--tensor", "w:uint8:200x1000", "--incarnation", "r"}));
  BeginSave(writer, "5", 1);
  EXPECT_EQ(writer.AwaitOutcome("5")["event"], "committed");
  writer.Answer("save");
  int loads = 0;
  for (int step = 2; step <= 12; ++step) {
    const std::string id = "5";
    if (step == 7) site.SetFaults("commit-renamed=kill");
    if (step == 8) site.SetFaults("rename:to job/retired/=kill-after");
    BeginSave(writer, id, step);
    bool committed = false;
    while (!committed) {
      if (!daemon->process().Running()) {
        site.SetFaults("");
        daemon.emplace(site, TestDaemon::Options{.faulty = true, .flags = {"--trash-grace", "0s"}});
        ASSERT_TRUE(daemon->ready()) << daemon->Log();
      }
      const Json answer = reader.Do("load 5 0s");
      if (answer["code"] == "UNAVAILABLE") continue;  // It is being restarted.
      ASSERT_EQ(answer["ok"], true) << answer.dump();
      const int loaded = answer["step"];
      ASSERT_TRUE(loaded == step || loaded == step - 1) << loaded << " at step " << step;
      ASSERT_EQ(reader.Do(absl::StrCat("check ", loaded))["equal"], true) << "a mixture";
      ++loads;
      committed = loaded == step;
    }
    EXPECT_EQ(writer.Answer("save")["ok"], true);
  }
  std::printf("%d loads, each wholly old or wholly new\n", loads);
  EXPECT_TRUE(Eventually([&] {
    for (const auto& [path, content] : ReadTree(site.root())) {
      if (absl::StartsWith(path, "job/retired/") || absl::StartsWith(path, "job/trash/")) {
        return false;
      }
    }
    return true;
  })) << "files of the old one";
}

TEST(LoadOfASaveInFlight, WaitsOrSaysSoAndLatestIsTheCommittedOne) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, RankFlags(0, 1, {"--tensor", "w:uint8:4000x1000"}));
  TestTrainer reader(site,
                     RankFlags(0, 1, {"--tensor", "w:uint8:4000x1000", "--incarnation", "r"}));
  BeginSave(rank, "6", 6);
  EXPECT_EQ(rank.AwaitOutcome("6")["event"], "committed");
  rank.Answer("save");
  site.SetFaults("write:shard=rate:1MiB");
  BeginSave(rank, "7", 7);
  rank.Answer("save");
  rank.Ok("fill 0");  // The trainer zeroes its weights at once.
  const Json refused = reader.Do("load 7 0s");
  EXPECT_EQ(refused["code"], "FAILED_PRECONDITION");
  EXPECT_THAT(refused["message"].get<std::string>(), HasSubstr("not committed yet"));
  const Json latest = reader.Do("load latest 0s");
  EXPECT_EQ(latest["id"], "6") << latest.dump();
  EXPECT_EQ(reader.Do("check 6")["equal"], true);
  rank.Send("load 7 30s");
  int loads = 0;
  while (Attempt(site, "7").is_object() && loads < 100) {
    ASSERT_EQ(reader.Do("load 6 0s")["ok"], true);
    ASSERT_EQ(reader.Do("check 6")["equal"], true);
    ++loads;
  }
  std::printf("%d loads of the former one meanwhile\n", loads);
  EXPECT_EQ(rank.Answer("load")["ok"], true);
  EXPECT_EQ(rank.Do("check 7")["equal"], true);
}

}  // namespace
}  // namespace ckptd
