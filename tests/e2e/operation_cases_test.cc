// What people who run it see and do: a failed disk, a killed rank, questions while saves are under
// way, a daemon that is stopped in the middle of one.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
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
using testing::AnyOf;
using testing::HasSubstr;

// Attempts and failures of a status by id.
std::map<std::string, Json> Attempts(const Json& status) {
  std::map<std::string, Json> attempts;
  for (const char* list : {"failures", "attempts"}) {
    for (const Json& attempt : status[list]) attempts[attempt["id"]] = attempt;
  }
  return attempts;
}

std::map<std::string, Json> Attempts(const TestSite& site) {
  return Attempts(Ckptctl(site, {"status"}).json);
}

TEST(OneWriterThatFails, IsToldToEveryRankWithRankNodeAndErrno) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  const std::vector<std::string> flags = {"--tensor", "w:float32:100000x3", "--deferred"};
  TestTrainer first(site, RankFlags(0, 2, flags));
  TestTrainer second(site, RankFlags(1, 2, flags));
  // The first write of data, behind that of the header.
  site.SetFaults("write:shard-00001@2=error:EIO");
  BeginSave(first, "5", 5);
  BeginSave(second, "5", 5);
  for (TestTrainer* rank : {&first, &second}) {
    rank->Answer("save");
    const Json answer = rank->Do("wait 5 committed 10s");
    EXPECT_EQ(answer["code"], "INTERNAL") << answer;
    EXPECT_LT(answer["seconds"], 10);
    EXPECT_THAT(answer["message"].get<std::string>(),
                AllOf(HasSubstr("rank 1"), HasSubstr("node-a"), HasSubstr("shard-00001"),
                      HasSubstr("Input/output error")));
  }
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  EXPECT_TRUE(daemon.process().Running());
  site.SetFaults("");
  BeginSave(first, "6", 6);
  BeginSave(second, "6", 6);
  for (TestTrainer* rank : {&first, &second}) {
    rank->Answer("save");
    rank->Ok("wait 6 committed 60s");
    ExpectLoads(*rank, "6", 6);
  }
}

// Both ranks hear of a daemon that is gone, and save with its successor.
TEST(ADaemonThatDies, IsToldToEveryRankAndItsSuccessorSaves) {
  TestSite site;
  std::optional<TestDaemon> daemon;
  const TestDaemon::Options options = {.faulty = true, .flags = {"--reattach-timeout", "1s"}};
  daemon.emplace(site, options);
  const std::vector<std::string> flags = {"--tensor", "w:float32:100000x3", "--deferred"};
  TestTrainer first(site, RankFlags(0, 2, flags));
  TestTrainer second(site, RankFlags(1, 2, flags));
  site.SetFaults("write:shard-00001=kill");
  BeginSave(first, "5", 5);
  BeginSave(second, "5", 5);
  EXPECT_EQ(daemon->process().AwaitEnd(), -SIGKILL);
  for (TestTrainer* rank : {&first, &second}) {
    rank->Answer("save");
    EXPECT_EQ(rank->Do("wait 5 committed 500ms")["code"], "DEADLINE_EXCEEDED");
    const Json answer = rank->Do("latest");
    EXPECT_EQ(answer["code"], "UNAVAILABLE") << answer;
    EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr(site.socket()));
  }
  site.SetFaults("");
  daemon.emplace(site, options);
  std::vector<std::string> outcomes;
  for (TestTrainer* rank : {&first, &second}) {
    outcomes.push_back(rank->AwaitOutcome("5")["event"]);
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
  BeginSave(first, "6", 6);
  BeginSave(second, "6", 6);
  for (TestTrainer* rank : {&first, &second}) {
    EXPECT_EQ(rank->AwaitOutcome("6")["event"], "committed");
    rank->Answer("save");
    ExpectLoads(*rank, "6", 6);
  }
}

// What a dead rank was filling is free again; what it had finished is written.
TEST(ARankThatIsKilledWhileItCopies, LeavesTheSaveBeforeAndABufferForItsSuccessor) {
  TestSite site;
  TestDaemon daemon(site,
                    {.faulty = true, .flags = {"--block-size", "1MiB", "--arena-limit", "24MiB"}});
  const std::vector<std::string> flags = {"--tensor", "w:uint8:8000x1000", "--deferred"};
  TestTrainer first(site, RankFlags(0, 2, flags));
  std::optional<TestTrainer> second;
  second.emplace(site, RankFlags(1, 2, flags));
  site.SetFaults("write:shard=rate:2MiB");
  BeginSave(first, "5", 5);
  BeginSave(*second, "5", 5);
  for (TestTrainer* rank : {&first, &*second}) {
    EXPECT_EQ(rank->Answer("save")["ok"], true);
    rank->Ok("wait 5 staged 60s");
  }
  BeginSave(first, "6", 6);
  BeginSave(*second, "6", 6);
  ASSERT_TRUE(Eventually([&] {
    const auto attempts = Attempts(site);
    if (!attempts.contains("6") || attempts.at("6")["ranks"].size() < 2) return false;
    const Json& rank = attempts.at("6")["ranks"][1];
    return rank["staged_bytes"] > 0 && rank["staged_bytes"] < rank["planned_bytes"];
  })) << "rank 1 copies step 6 while step 5 is written";
  EXPECT_TRUE(Attempts(site).contains("5"));
  second.reset();  // SIGKILL.
  second.emplace(site, RankFlags(1, 2, flags));
  const Json failed = first.AwaitOutcome("6");
  EXPECT_EQ(failed["event"], "failed");
  EXPECT_THAT(failed["message"].get<std::string>(), HasSubstr("rank 1"));
  EXPECT_EQ(first.AwaitOutcome("5")["event"], "committed");
  // The relaunched rank does not wait for anybody's lock.
  BeginSave(first, "7", 7);
  const absl::Time before = absl::Now();
  BeginSave(*second, "7", 7);
  EXPECT_TRUE(Eventually([&] {
    const auto attempts = Attempts(site);
    return attempts.contains("7") && attempts.at("7")["ranks"].size() == 2 &&
           attempts.at("7")["ranks"][1]["staged_bytes"] > 0;
  }));
  EXPECT_LT(absl::Now() - before, absl::Seconds(10));
  site.SetFaults("");
  EXPECT_EQ(first.AwaitOutcome("7")["event"], "committed");
  EXPECT_EQ(second->AwaitOutcome("7")["event"], "committed");
  EXPECT_EQ(ListedIds(site), (std::vector<std::string>{"5", "7"}));
  for (int step : {5, 7}) {
    ExpectLoads(first, absl::StrCat(step), step);
    ExpectLoads(*second, absl::StrCat(step), step);
  }
  EXPECT_TRUE(daemon.process().Running());
}

// --- Who asks

// One checkpoint in each state, by its id: of one job, so that one list shows them.
class ManyStates : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.emplace(site_, Options());
    ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
    const std::vector<std::string> flags = {"--tensor", "w:uint8:8000x1000"};
    for (int rank = 0; rank < 2; ++rank) ranks_[rank].emplace(site_, RankFlags(rank, 2, flags));
    for (auto& rank : ranks_) BeginSave(*rank, "committed", 1);
    for (auto& rank : ranks_) EXPECT_EQ(rank->AwaitOutcome("committed")["event"], "committed");
    site_.SetFaults("write:shard-00001@2=error:EIO");
    for (auto& rank : ranks_) BeginSave(*rank, "failed", 2);
    for (auto& rank : ranks_) EXPECT_EQ(rank->AwaitOutcome("failed")["event"], "failed");
    site_.SetFaults("write:shard=rate:1MiB");
    for (auto& rank : ranks_) BeginSave(*rank, "writing", 3);
    for (auto& rank : ranks_) {
      EXPECT_FALSE(rank->FindEvent({"staged"}, "writing", kPatience).is_null());
    }
    BeginSave(*ranks_[0], "joining", 4);
    ASSERT_TRUE(Eventually([&] { return Attempts(site_).contains("joining"); }));
    BeginSave(*ranks_[1], "waiting", 5);  // Two are in flight.
    ASSERT_TRUE(Eventually([&] { return Attempts(site_).contains("waiting"); }));
  }

  static TestDaemon::Options Options() {
    return {.faulty = true, .flags = {"--block-size", "1MiB", "--reattach-timeout", "5s"}};
  }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
  std::optional<TestTrainer> ranks_[2];
};

TEST_F(ManyStates, AreSeenWithBytesRanksTimesAndReasons) {
  uint64_t bytes = 0;
  int asked = 0;
  std::vector<absl::Duration> times;
  const absl::Time begun = absl::Now();
  EXPECT_EQ(RunProgram({kCkptctlBinary, "--help"}).exit_code, 0);
  const absl::Duration starts = absl::Now() - begun;  // A process that asks nobody.
  while (asked < 100) {
    const absl::Time before = absl::Now();
    const CommandResult status = Ckptctl(site_, {"status"});
    times.push_back(absl::Now() - before);
    ASSERT_EQ(status.exit_code, 0) << status.err;
    const auto attempts = Attempts(status.json);
    if (!attempts.contains("writing") || attempts.at("writing")["state"] == "committed") break;
    const Json& writing = attempts.at("writing");
    EXPECT_EQ(writing["state"], "writing") << writing;
    EXPECT_EQ(writing["planned_bytes"], 8000000);
    EXPECT_GE(writing["written_bytes"], bytes) << "never less than before";
    bytes = writing["written_bytes"];
    EXPECT_EQ(writing["ranks_missing"], Json::array());
    EXPECT_TRUE(writing["begun"].is_string() && writing["ended"].is_null());
    ASSERT_TRUE(attempts.contains("waiting"));
    EXPECT_EQ(attempts.at("waiting")["state"], "waiting") << attempts.at("waiting");
    ASSERT_TRUE(attempts.contains("joining"));
    // After a second its first rank no longer waits for the other one to stage.
    EXPECT_THAT(attempts.at("joining")["state"].get<std::string>(), AnyOf("joining", "staging"));
    EXPECT_EQ(attempts.at("joining")["ranks_missing"], Json({1}));
    ASSERT_TRUE(attempts.contains("failed"));
    const Json& failed = attempts.at("failed");
    EXPECT_EQ(failed["state"], "failed");
    EXPECT_EQ(failed["error"]["rank"], 1);
    EXPECT_EQ(failed["error"]["node"], "node-a");
    EXPECT_EQ(failed["error"]["phase"], "write");
    EXPECT_THAT(failed["error"]["message"].get<std::string>(), HasSubstr("Input/output error"));
    EXPECT_TRUE(failed["begun"].is_string() && failed["ended"].is_string());
    ++asked;
    absl::SleepFor(before + absl::Milliseconds(50) - absl::Now());
  }
  EXPECT_GE(asked, 40);
  EXPECT_GT(bytes, 2000000u);
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[times.size() / 2] - starts, absl::Milliseconds(200)) << "the median";
  std::printf("%d answers, median %s, slowest %s\n", asked,
              absl::FormatDuration(times[times.size() / 2]).c_str(),
              absl::FormatDuration(times.back()).c_str());
}

TEST_F(ManyStates, AreListedTogether) {
  const CommandResult list = Ckptctl(site_, {"list", "--all"});
  ASSERT_EQ(list.exit_code, 0) << list.err;
  EXPECT_EQ(list.json["checkpoints"].size(), 1u);
  EXPECT_EQ(list.json["checkpoints"][0]["id"], "committed");
  std::map<std::string, std::string> states;
  for (const Json& attempt : list.json["attempts"]) states[attempt["id"]] = attempt["state"];
  if (states["joining"] == "staging") states["joining"] = "joining";
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"failed", "failed"},
                                                        {"writing", "writing"},
                                                        {"joining", "joining"},
                                                        {"waiting", "waiting"}}));
}

TEST_F(ManyStates, TheFailedOneKeepsItsReasonThroughARestart) {
  const Json before = Ckptctl(site_, {"show", "failed"}).json;
  site_.SetFaults("");
  daemon_->Kill();
  daemon_.emplace(site_, Options());
  ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
  const Json after = Ckptctl(site_, {"show", "failed"}).json;
  for (const char* field : {"state", "attempt", "step", "begun", "ended", "error"}) {
    EXPECT_EQ(after[field], before[field]) << field;
  }
  EXPECT_EQ(after["error"]["rank"], 1);
}

// Nothing on disk changes, not even a time of a file.
TEST(Questions, ChangeNothingOnDisk) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, RankFlags(0, 1, {"--tensor", "w:uint8:300000"}));
  BeginSave(rank, "one", 1);
  rank.AwaitOutcome("one");
  site.SetFaults("fsync:shard=error:EIO");
  BeginSave(rank, "bad", 2);
  rank.AwaitOutcome("bad");
  site.SetFaults("first-write=hang");
  BeginSave(rank, "hangs", 3);
  ASSERT_TRUE(Eventually([&] { return Attempts(site).contains("hangs"); }));
  const auto look = [&] {
    std::map<std::string, std::string> tree;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(site.root())) {
      tree[entry.path().string()] =
          absl::StrCat(entry.last_write_time().time_since_epoch().count(), " ",
                       entry.is_regular_file() ? ReadTextFile(entry.path().string()) : "/");
    }
    return tree;
  };
  absl::SleepFor(absl::Milliseconds(300));  // The file that the save has just made, too.
  const auto before = look();
  for (const auto& question : std::vector<std::vector<std::string>>{{"status"},
                                                                    {"list", "--all"},
                                                                    {"latest"},
                                                                    {"show", "one"},
                                                                    {"show", "bad"},
                                                                    {"show", "hangs"},
                                                                    {"describe", "one"},
                                                                    {"health"}}) {
    const CommandResult answer = Ckptctl(site, question);
    EXPECT_EQ(answer.exit_code, 0) << question[0] << ": " << answer.err;
    if (question[0] != "status" && question[0] != "health") OfflineCkptctl(site, question);
  }
  EXPECT_EQ(look(), before);
}

// --- Stopping in mid-save

class StoppedInMidSave : public testing::Test {
 protected:
  // A save of 4 MB at `rate`, and waits until 30 % are written.
  void Begin(const std::string& drain, const std::string& rate) {
    flags_ = {"--block-size", "1MiB", "--drain-timeout", drain, "--reattach-timeout", "5s"};
    Restart();
    rank_.emplace(site_, RankFlags(0, 1, {"--tensor", "w:uint8:8000x1000"}));
    BeginSave(*rank_, "3", 3);
    EXPECT_EQ(rank_->AwaitOutcome("3")["event"], "committed");
    rank_->Answer("save");
    site_.SetFaults("write:shard=rate:" + rate);
    BeginSave(*rank_, "4", 4);
    EXPECT_EQ(rank_->Answer("save")["ok"], true);
    ASSERT_TRUE(Eventually([&] {
      const auto attempts = Attempts(site_);
      return attempts.contains("4") && attempts.at("4")["written_bytes"] >= 2400000;
    }));
  }
  void Restart() {
    daemon_.reset();
    daemon_.emplace(site_, TestDaemon::Options{.faulty = true, .flags = flags_});
    ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
  }

  // The same trainer, never restarted, saves on.
  void ExpectGoesOn(const std::vector<std::string>& listed) {
    site_.SetFaults("");
    Restart();
    EXPECT_EQ(ListedIds(site_), listed);
    for (const auto& [path, content] : ReadTree(site_.root())) {
      EXPECT_FALSE(absl::StartsWith(path, "job/attempts/") || absl::EndsWith(path, ".tmp")) << path;
      EXPECT_FALSE(absl::StartsWith(path, "job/failed/") && absl::EndsWith(path, ".safetensors"))
          << path;
    }
    BeginSave(*rank_, "5", 5);
    EXPECT_EQ(rank_->AwaitOutcome("5")["event"], "committed");
    for (const std::string& id : listed) ExpectLoads(*rank_, id, std::stoi(id));
    ExpectLoads(*rank_, "5", 5);
    EXPECT_EQ(Ckptctl(site_, {"verify", "--all"}).exit_code, 0);
  }

  TestSite site_;
  std::vector<std::string> flags_;
  std::optional<TestDaemon> daemon_;
  std::optional<TestTrainer> rank_;
};

TEST_F(StoppedInMidSave, WithTimeEnoughItCommits) {
  Begin("60s", "3MiB");
  daemon_->process().Signal(SIGTERM);
  BeginSave(*rank_, "late", 9);
  EXPECT_EQ(rank_->AwaitOutcome("4")["event"], "committed");
  EXPECT_EQ(daemon_->process().AwaitEnd(), 0);
  rank_->process().Running();
  ExpectGoesOn({"3", "4"});
}

TEST_F(StoppedInMidSave, WithoutItFailsCleanly) {
  Begin("1s", "512KiB");
  const absl::Time before = absl::Now();
  EXPECT_EQ(daemon_->Stop(), 0) << daemon_->Log();
  EXPECT_LT(absl::Now() - before, absl::Seconds(20));
  const Json end = rank_->AwaitOutcome("4");
  EXPECT_EQ(end["event"], "failed");
  ExpectGoesOn({"3"});
}

TEST_F(StoppedInMidSave, TwoSignalsEndItAtOnceAndTheNextOneFinishes) {
  Begin("60s", "512KiB");
  const absl::Time before = absl::Now();
  daemon_->process().Signal(SIGTERM);
  daemon_->process().Signal(SIGTERM);
  while (daemon_->process().Running() && absl::Now() - before < absl::Seconds(20)) {
    daemon_->process().Signal(SIGTERM);  // Two that come at once are one.
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_TRUE(daemon_->process().AwaitEnd(absl::ZeroDuration()).has_value());
  EXPECT_LT(absl::Now() - before, absl::Seconds(10));
  site_.SetFaults("");
  Restart();
  EXPECT_EQ(rank_->AwaitOutcome("4")["event"], "committed") << "it hands its memory back";
  ExpectGoesOn({"3", "4"});
}

TEST_F(StoppedInMidSave, KilledItIsFinishedByTheNextOne) {
  Begin("60s", "512KiB");
  daemon_->Kill();
  site_.SetFaults("");
  Restart();
  EXPECT_EQ(rank_->AwaitOutcome("4")["event"], "committed");
  ExpectGoesOn({"3", "4"});
}

}  // namespace
}  // namespace ckptd
