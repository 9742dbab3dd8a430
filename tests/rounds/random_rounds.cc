#include "tests/rounds/random_rounds.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/support/memory_group.h"

namespace ckptd {
namespace {

constexpr char kJob[] = "job";
constexpr int kRanks = 3;
constexpr size_t kKeepLast = 5;  // More than a round saves.
constexpr char kSmallArenaLimit[] = "3MiB";
constexpr char kTightMemoryBytes[] = "67108864";
// A fault plan is in force for so long after it was due; a daemon that it stops dies within.
constexpr absl::Duration kFaultTime = absl::Milliseconds(300);

// The end of a log.
std::string Tail(const std::string& log) {
  constexpr size_t kBytes = 8000;
  return log.size() > kBytes ? log.substr(log.size() - kBytes) : log;
}

void KillRank(TestTrainer& rank) {
  rank.process().Signal(SIGKILL);
  rank.process().AwaitEnd();
}

}  // namespace

RandomRounds::RandomRounds(uint64_t seed) : random_(seed) {
  MountRoot();
  StartDaemon();
  StartJob();
}

RandomRounds::~RandomRounds() {
  if (testing::Test::HasFailure()) {
    std::printf("the log of the daemon before:\n%s\nof the last one:\n%s\n", log_before_.c_str(),
                Tail(daemon_->Log()).c_str());
  }
  ranks_.clear();
  daemon_.reset();
  site_.CheckForeignFiles();
  if (mounted_) umount2(site_.root().c_str(), MNT_DETACH);
}

void RandomRounds::MountRoot() {
  mkdir(site_.root().c_str(), 0755);
  mounted_ = mount("ckptd-test", site_.root().c_str(), "tmpfs", 0, "size=160m") == 0;
}

void RandomRounds::StartDaemon(std::vector<std::string> more_flags) {
  if (daemon_) daemon_->Kill();
  if (daemon_) log_before_ = Tail(daemon_->Log());
  site_.SetFaults("");
  TestDaemon::Options options;
  options.faulty = true;
  options.flags = {"--block-size",        "1MiB", "--reattach-timeout", "4s",
                   "--peer-lost-timeout", "1s",   "--attempt-timeout",  "20s",
                   "--trash-grace",       "0s",   "--keep-last",        absl::StrCat(kKeepLast)};
  options.flags.insert(options.flags.end(), more_flags.begin(), more_flags.end());
  daemon_.emplace(site_, options);
  EXPECT_TRUE(daemon_->ready()) << daemon_->Log();
}

void RandomRounds::StartJob() {
  ranks_.clear();
  ++life_;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks_.emplace_back(
        site_, std::vector<std::string>{"--job", kJob, "--incarnation",
                                        absl::StrCat("life-", life_), "--rank", absl::StrCat(rank),
                                        "--world-size", absl::StrCat(kRanks), "--join-timeout",
                                        "10s", "--tensor", "w:float32:1500x1000", "--tensor",
                                        "b:bfloat16:7:replicated", "--tensor", "i:int64:5:local"});
  }
  for (auto& rank : ranks_) rank.Ok("fill 0");
}

std::vector<RandomRounds::Save> RandomRounds::BeginSaves(int count) {
  std::vector<Save> saves;
  for (int i = 0; i < count; ++i) {
    ++step_;
    saves.push_back({.id = absl::StrCat("step-", step_), .step = step_});
    steps_[saves.back().id] = step_;
    for (auto& rank : ranks_) {
      rank.Send(absl::StrCat("fill ", step_));
      rank.Send(absl::StrCat("save ", saves.back().id, " ", step_));
    }
  }
  return saves;
}

void RandomRounds::Strike(const RoundPlan& plan) {
  TestTrainer& victim = ranks_[static_cast<size_t>(plan.victim) % ranks_.size()];
  absl::SleepFor(plan.delay);
  switch (plan.kind) {
    case RoundPlan::Kind::kKillDaemon:
      daemon_->Kill();
      break;
    case RoundPlan::Kind::kKillBoth:
      KillRank(victim);
      daemon_->Kill();
      break;
    case RoundPlan::Kind::kKillRank:
      KillRank(victim);
      break;
    case RoundPlan::Kind::kPauseDaemon:
    case RoundPlan::Kind::kPauseRank: {
      const bool daemon = plan.kind == RoundPlan::Kind::kPauseDaemon;
      ChildProcess& paused = daemon ? daemon_->process() : victim.process();
      paused.Signal(SIGSTOP);
      absl::SleepFor(plan.pause);
      paused.Signal(SIGCONT);
      break;
    }
    case RoundPlan::Kind::kFaultPlan:
      absl::SleepFor(kFaultTime);
      break;
    case RoundPlan::Kind::kShortMemory:
      StrainMemory();
      break;
    case RoundPlan::Kind::kFullDisk:
      absl::SleepFor(plan.pause);
      break;
    case RoundPlan::Kind::kNothing:
    case RoundPlan::Kind::kSmallArena:
      break;
  }
}

void RandomRounds::Mend(const RoundPlan& plan) {
  site_.SetFaults("");
  unlink(absl::StrCat(site_.root(), "/filler").c_str());
  const bool may_die = absl::StrContains(plan.faults, "kill") ||
                       plan.kind == RoundPlan::Kind::kKillDaemon ||
                       plan.kind == RoundPlan::Kind::kKillBoth;
  if (!may_die) return;
  absl::SleepFor(absl::Milliseconds(50));  // For an operation that was under the old plan.
  if (!DaemonRuns()) StartDaemon();
}

void RandomRounds::FillDisk(int free_mib) {
  struct statvfs info;
  ASSERT_EQ(statvfs(site_.root().c_str(), &info), 0);
  const int64_t free_bytes = static_cast<int64_t>(info.f_bavail * info.f_frsize);
  const UniqueFd filler(
      open(absl::StrCat(site_.root(), "/filler").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const int64_t bytes = free_bytes - (int64_t{free_mib} << 20);
  if (bytes > 0) posix_fallocate(filler.get(), 0, bytes);
}

void RandomRounds::StrainMemory() {
  MemoryGroup group(daemon_->pid(), kTightMemoryBytes);
  if (!group.made()) return;
  TestTrainer large(site_, {"--job", "large", "--rank", "0", "--world-size", "1", "--tensor",
                            "w:uint8:100663296"});
  large.Ok("fill 1");
  // Not a save: on a root that is memory itself its shards would count as the daemon's.
  const Json answer = large.Do("prewarm");
  EXPECT_EQ(answer["code"], "RESOURCE_EXHAUSTED") << answer;
  MemoryGroup::Leave(daemon_->pid());
}

std::string RandomRounds::OutcomeAt(TestTrainer& rank, Save& save) {
  rank.Answer("fill");
  const Json answer = rank.Answer("save");
  if (!answer.is_object()) return "";
  if (answer["ok"] != true) {
    save.reason = answer.dump();
    return answer["code"] == "UNKNOWN" ? "unknown" : "failed";
  }
  const Json event = rank.AwaitOutcome(save.id);
  if (event["event"] == "committed") return "committed";
  save.reason = event.dump();
  return event["code"] == "UNKNOWN" ? "unknown" : "failed";
}

void RandomRounds::AwaitOutcome(Save& save) {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].process().Running()) continue;
    const std::string outcome = OutcomeAt(ranks_[i], save);
    if (save.outcome.empty()) save.outcome = outcome;
    EXPECT_EQ(outcome, save.outcome) << save.id << " at rank " << i << " " << save.reason;
  }
  ++counts_[save.outcome];
}

void RandomRounds::CheckList(const std::vector<std::string>& before,
                             const std::vector<Save>& saves) {
  const std::vector<std::string> after = ListedIds(site_, kJob);
  const auto listed = [&](const std::string& id) {
    return std::find(after.begin(), after.end(), id) != after.end();
  };
  size_t at_least = before.size();
  size_t at_most = before.size();
  for (const Save& save : saves) {
    EXPECT_TRUE(save.outcome != "committed" || listed(save.id)) << save.id;
    EXPECT_FALSE(save.outcome == "failed" && listed(save.id)) << save.id << " " << save.reason;
    at_least += save.outcome == "committed";
    at_most += save.outcome != "failed";
  }
  EXPECT_GE(after.size(), std::min(at_least, kKeepLast)) << absl::StrJoin(after, " ");
  EXPECT_LE(after.size(), at_most) << absl::StrJoin(after, " ");
  // Of what was there before, only the oldest may have gone.
  bool kept = false;
  for (const std::string& id : before) {
    kept |= listed(id);
    EXPECT_EQ(listed(id), kept) << id << " is gone, older ones are not";
  }
}

std::vector<std::string> RandomRounds::Leftovers() {
  std::vector<std::string> leftovers;
  for (const auto& [path, content] : ReadTree(absl::StrCat(site_.root(), "/", kJob))) {
    const bool private_folder = absl::StartsWith(path, "attempts/") ||
                                absl::StartsWith(path, "trash/") ||
                                absl::StartsWith(path, "retired/");
    const bool failed_shard = absl::StartsWith(path, "failed/") && absl::StrContains(path, "shard");
    if (private_folder || failed_shard || absl::EndsWith(path, ".tmp")) leftovers.push_back(path);
  }
  return leftovers;
}

void RandomRounds::CheckRoot() {
  std::vector<std::string> leftovers;
  const auto none_left = [&] { return (leftovers = Leftovers()).empty(); };
  const auto in_trash = [](const std::string& path) { return absl::StartsWith(path, "trash/"); };
  // Trash that an error of the disk has kept is tried again in ten minutes, or by the next start.
  if (!Eventually(none_left, absl::Seconds(5)) &&
      std::all_of(leftovers.begin(), leftovers.end(), in_trash)) {
    StartDaemon();
  }
  EXPECT_TRUE(Eventually(none_left, absl::Seconds(15))) << absl::StrJoin(leftovers, "\n");
  const CommandResult verified = Ckptctl(site_, {"--job", kJob, "verify", "--all"});
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
}

void RandomRounds::CheckNewestLoads() {
  const std::vector<std::string> ids = ListedIds(site_, kJob);
  if (ids.empty()) return;
  for (auto& rank : ranks_) rank.Ok("fill 0");
  for (auto& rank : ranks_) rank.Ok(absl::StrCat("load ", ids.back(), " 10s"));
  for (auto& rank : ranks_) rank.Ok(absl::StrCat("check ", steps_[ids.back()]));
}

void RandomRounds::Round() {
  const RoundPlan plan = DrawRound(random_);
  SCOPED_TRACE(Describe(plan));
  ++counts_["rounds"];
  const std::vector<std::string> before = ListedIds(site_, kJob);
  const bool small_arena = plan.kind == RoundPlan::Kind::kSmallArena;
  if (small_arena) StartDaemon({"--arena-limit", kSmallArenaLimit});
  if (plan.kind == RoundPlan::Kind::kFullDisk && mounted_) FillDisk(plan.free_mib);
  if (plan.kind == RoundPlan::Kind::kFullDisk && !mounted_) site_.SetFaults("write=error:ENOSPC");
  if (plan.kind == RoundPlan::Kind::kFaultPlan) site_.SetFaults(plan.faults);

  std::vector<Save> saves = BeginSaves(plan.saves);
  Strike(plan);
  Mend(plan);
  for (Save& save : saves) AwaitOutcome(save);
  EXPECT_TRUE(DaemonRuns()) << daemon_->Log();
  // Of a commit or an abort that storage did not confirm only the next start can tell.
  const Json status = Ckptctl(site_, {"status"}).json;
  const bool unhealthy = status.is_object() && status["roots"][0]["state"] != "ok";
  if (unhealthy || small_arena) StartDaemon();
  CheckList(before, saves);
  if (plan.KillsRank()) StartJob();
  CheckRoot();
  CheckNewestLoads();

  std::vector<Save> next = BeginSaves(1);
  AwaitOutcome(next[0]);
  EXPECT_EQ(next[0].outcome, "committed") << next[0].reason;
}

std::string RandomRounds::Summary() const {
  return absl::StrJoin(counts_, ", ", absl::PairFormatter(" "));
}

}  // namespace ckptd
