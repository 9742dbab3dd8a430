#include "tests/crash/crash_round.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

// What is allowed to remain below a job's folder once everything has settled.
bool IsLeftover(const std::string& path, const std::string& job) {
  for (const char* folder : {"/attempts/", "/trash/", "/retired/"}) {
    if (absl::StartsWith(path, job + folder)) return true;
  }
  const bool failed = absl::StartsWith(path, job + "/failed/");
  return absl::EndsWith(path, ".tmp") || (failed && absl::StrContains(path, "shard-"));
}

std::vector<std::string> Leftovers(const TestSite& site, const std::string& job) {
  std::vector<std::string> leftovers;
  for (const auto& [path, content] : ReadTree(site.root())) {
    if (IsLeftover(path, job)) leftovers.push_back(path);
  }
  return leftovers;
}

}  // namespace

CrashRounds::CrashRounds() { StartDaemon(true); }

void CrashRounds::StartDaemon(bool faulty) {
  if (daemon_ && daemon_->process().Running()) daemon_->Kill();
  daemon_.reset();
  TestDaemon::Options options;
  options.faulty = faulty;
  options.flags = {"--reattach-timeout", "10s", "--block-size", "1MiB", "--trash-grace", "0s"};
  daemon_.emplace(site_, options);
  ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
}

void CrashRounds::NewJob() {
  job_ = absl::StrCat("job-", jobs_++);
  StartRanks();
  for (auto& rank : ranks_) ASSERT_TRUE(rank->Ok("fill 0"));
}

void CrashRounds::StartRanks() {
  for (int rank = 0; rank < 2; ++rank) {
    ranks_[rank].reset();
    ranks_[rank].emplace(
        site_, std::vector<std::string>{"--job", job_, "--rank", absl::StrCat(rank), "--world-size",
                                        "2", "--tensor", "w:float32:1025x3", "--tensor",
                                        "b:bfloat16:7", "--tensor", "i:int64:5:local"});
  }
}

std::string CrashRounds::Save() {
  const std::string id = absl::StrCat("step-", ++step_);
  for (auto& rank : ranks_) {
    rank->Send(absl::StrCat("fill ", step_));
    rank->Send(absl::StrCat("save ", id, " ", step_));
  }
  return id;
}

std::string CrashRounds::Outcome(const std::string& id) {
  std::string outcomes[2];
  std::string message;
  for (int rank = 0; rank < 2; ++rank) {
    const Json event = ranks_[rank]->AwaitOutcome(id);
    outcomes[rank] = event["event"];
    if (event.contains("message")) message = event["message"];
    ranks_[rank]->Answer("fill");
    ranks_[rank]->Answer("save");
  }
  EXPECT_EQ(outcomes[0], outcomes[1]) << id << " " << message;
  if (outcomes[0] != "committed") std::printf("  %s failed: %s\n", id.c_str(), message.c_str());
  return outcomes[0];
}

std::vector<Json> CrashRounds::Watch(const std::string& plan) {
  site_.SetFaults(plan);
  const size_t before = site_.FaultLog().size();
  EXPECT_EQ(Outcome(Save()), "committed");
  std::vector<Json> log = site_.FaultLog();
  log.erase(log.begin(), log.begin() + static_cast<ptrdiff_t>(before));
  site_.SetFaults("");
  return log;
}

bool CrashRounds::AwaitKill(const std::string& plan) {
  const bool killed = daemon_->process().AwaitEnd(absl::Seconds(20)) == -SIGKILL;
  EXPECT_TRUE(killed) << plan << " kills nobody";
  site_.SetFaults("");
  return killed;
}

bool CrashRounds::Round(const std::string& plan) {
  const std::vector<std::string> before = ListedIds(site_, job_);
  site_.SetFaults(plan);
  const std::string id = Save();
  const bool killed = AwaitKill(plan);
  StartDaemon(false);
  CheckOutcome(id, before);
  StartDaemon(true);
  return killed;
}

void CrashRounds::CheckOutcome(const std::string& id, std::vector<std::string> listed) {
  const std::string outcome = Outcome(id);
  ++(outcome == "committed" ? committed_ : failed_);
  if (outcome == "committed") listed.push_back(id);
  EXPECT_EQ(ListedIds(site_, job_), listed);
  CheckRoot(listed);
  if (outcome == "committed") CheckLoads(id, step_);
  const std::string next = Save();
  EXPECT_EQ(Outcome(next), "committed");
  CheckLoads(next, step_);
  listed.push_back(next);
  EXPECT_EQ(ListedIds(site_, job_), listed);
}

bool CrashRounds::RoundOfOpening(const std::string& plan) {
  job_ = absl::StrCat("job-", jobs_++);
  site_.SetFaults(plan);
  StartRanks();
  const bool killed = AwaitKill(plan);
  StartDaemon(false);
  const std::string id = Save();
  CheckOutcome(id, {});
  StartDaemon(true);
  return killed;
}

bool CrashRounds::RoundOfLoading(const std::string& plan) {
  const std::string id = absl::StrCat("step-", step_);
  site_.SetFaults(plan);
  for (auto& rank : ranks_) rank->Send(absl::StrCat("load ", id, " 0s"));
  const bool killed = AwaitKill(plan);
  StartDaemon(false);
  for (auto& rank : ranks_) {
    const Json answer = rank->Answer("load");
    EXPECT_TRUE(answer["ok"] == true || answer["code"] == "UNAVAILABLE") << answer.dump();
  }
  CheckLoads(id, step_);
  StartDaemon(true);
  return killed;
}

bool CrashRounds::RoundOfSettling(const std::string& plan) {
  const std::vector<std::string> before = ListedIds(site_, job_);
  site_.SetFaults("manifest-written=kill");
  const std::string id = Save();
  bool killed = AwaitKill("manifest-written=kill");
  site_.SetFaults(plan);
  daemon_.emplace(site_, TestDaemon::Options{.faulty = true});
  killed &= AwaitKill(plan);
  settled_ = site_.FaultLog().back()["point"] == "settle-done";
  StartDaemon(false);
  CheckOutcome(id, before);
  StartDaemon(true);
  return killed;
}

void CrashRounds::CheckRoot(const std::vector<std::string>& listed) {
  const CommandResult verified = Ckptctl(site_, {"--job", job_, "verify", "--all"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  if (verified.json.is_object()) {
    EXPECT_EQ(verified.json["ok"], true);
    EXPECT_EQ(verified.json["checked"].size(), listed.size());
  }
  std::vector<std::string> leftovers;
  EXPECT_TRUE(
      Eventually([&] { return (leftovers = Leftovers(site_, job_)).empty(); }, absl::Seconds(5)))
      << absl::StrJoin(leftovers, "\n");
}

void CrashRounds::CheckLoads(const std::string& id, int step) {
  for (auto& rank : ranks_) {
    rank->Ok("fill 0");
    rank->Ok(absl::StrCat("load ", id, " 0s"));
    rank->Ok(absl::StrCat("check ", step));
  }
}

}  // namespace ckptd
