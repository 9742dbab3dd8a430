// What a daemon could pretend to do: write behind, check what was sealed, know who is dead, and
// leave alone what is not its own.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/session.h"
#include "storage/base/clock.h"
#include "tests/e2e/raw_rank.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

absl::Duration Now() { return SystemClock().Monotonic(); }

Json Status(const TestSite& site) {
  const CommandResult status = Ckptctl(site, {"status"});
  EXPECT_EQ(status.exit_code, 0) << status.err;
  return status.json;
}

// The attempt of `id` in flight; null if there is none.
Json InFlight(const TestSite& site, const std::string& id) {
  const Json status = Status(site);
  for (const Json& attempt : status["attempts"]) {
    if (attempt["id"] == id) return attempt;
  }
  return Json();
}

std::vector<std::string> OneRank(const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--rank", "0", "--world-size", "1"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Holds whoever calls Wait() until Open().
class Gate {
 public:
  void Wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }
  void Open() {
    {
      std::lock_guard lock(mutex_);
      open_ = true;
    }
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST(WriteBehind, ARankThatPausesHalfWayHasItsFirstHalfWritten) {
  constexpr uint64_t kBytes = 8 << 20;
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--block-size", "1MiB"}});
  SessionOptions options;
  options.client.socket = site.socket();
  options.job = "job";
  options.rank = 0;
  options.world_size = 1;
  options.threads = 1;
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  const std::vector<std::byte> bytes(kBytes, std::byte{7});
  State state;
  state.tensors = {WholeTensor("w", DType::kUInt8, {kBytes}, bytes.data())};
  Gate gate;
  SaveOptions save_options;
  save_options.deferred = true;
  save_options.on_copied = [&gate](uint64_t copied) {
    if (copied >= kBytes / 2) gate.Wait();
  };
  auto save = (*session)->AsyncSave("a", 1, state, save_options);
  ASSERT_TRUE(save.ok()) << save.status();
  Json attempt;
  EXPECT_TRUE(Eventually([&] {
    attempt = InFlight(site, "a");
    return attempt.is_object() && attempt["written_bytes"] == kBytes / 2;
  })) << attempt.dump();
  EXPECT_EQ(attempt["state"], "staging");
  EXPECT_EQ(attempt["planned_bytes"], kBytes);
  EXPECT_EQ(attempt["staged_bytes"], kBytes / 2);
  EXPECT_EQ(attempt["ranks"][0]["state"], "staging");
  EXPECT_LT(save->state(), SaveState::kStaged);
  // They are in the file, too, not only in the count.
  uint64_t written = 0;
  for (const auto& [path, content] : ReadTree(site.root())) {
    if (!absl::EndsWith(path, ".safetensors")) continue;
    written = static_cast<uint64_t>(std::count(content.begin(), content.end(), '\7'));
  }
  EXPECT_GE(written, kBytes / 2);
  gate.Open();
  EXPECT_TRUE(save->Wait(SaveState::kCommitted, kPatience).ok());
}

// The daemon stops itself just before it writes the block, so that the trainer is always in time.
TEST(SealedBlock, OneThatIsChangedFailsTheAttemptEachTime) {
  constexpr int kRounds = 100;
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, OneRank({"--deferred", "--tensor", "w:float32:5000x3"}));
  int caught = 0;
  for (int round = 1; round <= kRounds; ++round) {
    const std::string id = absl::StrCat("bad-", round);
    const size_t lines = site.FaultLog().size();
    site.SetFaults("write:shard@2=stop");  // The first one is the header.
    rank.Ok(absl::StrCat("fill ", round));
    rank.Ok(absl::StrCat("save ", id, " ", round));
    ASSERT_TRUE(Eventually([&] {
      const std::vector<Json> log = site.FaultLog();
      return log.size() > lines && log.back()["point"] == "write";
    }));
    const bool scribbled = rank.Ok("scribble");
    daemon.process().Signal(SIGCONT);
    const Json event = rank.AwaitOutcome(id);
    const std::string message = event["message"];
    const bool said = absl::StrContains(message, "rank 0 changed a sealed block");
    EXPECT_TRUE(scribbled && event["event"] == "failed" && said) << event.dump();
    EXPECT_EQ(event["code"], "DATA_LOSS");
    if (event["event"] == "failed") ++caught;
  }
  EXPECT_EQ(caught, kRounds);
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  site.SetFaults("");
  rank.Ok("save good 1");
  EXPECT_EQ(rank.AwaitOutcome("good")["event"], "committed");
}

TEST(DeadRank, IsSeenWithinASecondWhileItsChildKeepsTheSocketOpen) {
  TestSite site;
  TestDaemon daemon(site,
                    {.faulty = true, .flags = {"--arena-limit", "4MiB", "--block-size", "1MiB"}});
  site.SetFaults("write=rate:512KiB");  // More state than arena: it stays unstaged for long.
  std::vector<std::unique_ptr<TestTrainer>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<TestTrainer>(
        site, std::vector<std::string>{"--rank", absl::StrCat(rank), "--world-size", "2",
                                       "--deferred", "--tensor", "w:uint8:16000x1000"}));
    ranks[rank]->Ok("fill 1");
    ranks[rank]->Ok("save a 1");
  }
  ASSERT_TRUE(Eventually([&] { return InFlight(site, "a").is_object(); }));
  const Json forked = ranks[1]->Do("fork 30s");
  ASSERT_EQ(forked["ok"], true) << forked.dump();
  const pid_t child = forked["pid"].get<pid_t>();
  const absl::Duration killed = Now();
  ranks[1]->process().Signal(SIGKILL);
  ASSERT_TRUE(Eventually([&] { return absl::StrContains(daemon.Log(), R"("why":"died")"); }));
  EXPECT_LT(Now() - killed, absl::Seconds(1));
  EXPECT_EQ(::kill(child, 0), 0) << "the child keeps the descriptors";
  const Json event = ranks[0]->AwaitOutcome("a");
  EXPECT_EQ(event["event"], "failed");
  EXPECT_EQ(event["code"], "ABORTED");
  EXPECT_TRUE(absl::StrContains(event["message"].get<std::string>(), "rank 1")) << event.dump();
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  ::kill(child, SIGKILL);
}

TEST(LostConnection, OfALivingProcessCountsAsDeathOnlyAfterTheTimeOut) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--peer-lost-timeout", "3s"}});
  RawRank rank({.socket = site.socket(), .rank = 0, .world_size = 2});
  ASSERT_TRUE(rank.Hello().has_welcome());
  // Released alone after a while, and granted blocks that it never seals.
  ASSERT_TRUE(rank.Save(rank.token(), "a", 0, PlanOf("w", {{0, 16}}), true).granted);
  rank.CloseSide();
  const absl::Duration closed = Now();
  while (Now() - closed < absl::Seconds(2)) {
    const Json attempt = InFlight(site, "a");
    ASSERT_TRUE(attempt.is_object()) << "not dead yet";
    EXPECT_EQ(attempt["state"], "staging");
    absl::SleepFor(absl::Milliseconds(100));
  }
  EXPECT_EQ(Status(site)["sessions"][0]["state"], "lost");
  const RawRank::SaveEnd end = rank.AwaitSaveEnd();
  EXPECT_GE(Now() - closed, absl::Seconds(2.9));
  EXPECT_TRUE(absl::StrContains(end.failure.message(), "rank 0")) << end.failure.DebugString();
  EXPECT_EQ(Status(site)["sessions"].size(), 0u);
}

TEST(LostConnection, OfARankThatComesBackIsForgotten) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--peer-lost-timeout", "2s"}});
  RawRank rank({.socket = site.socket(), .rank = 0, .world_size = 2});
  ASSERT_TRUE(rank.Hello().has_welcome());
  ASSERT_TRUE(rank.Save(rank.token(), "a", 0, PlanOf("w", {{0, 16}}), true).granted);
  const std::string token = rank.token();
  rank.CloseSide();
  absl::SleepFor(absl::Milliseconds(500));
  ASSERT_TRUE(rank.Hello().has_welcome());
  EXPECT_EQ(rank.token(), token);
  absl::SleepFor(absl::Seconds(3));
  EXPECT_TRUE(InFlight(site, "a").is_object());
}

// Names that are not ours, and some that nearly are.
class ForeignFiles {
 public:
  void Plant(const std::string& folder) {
    const auto file = [&](const std::string& name) {
      const std::string path = folder + "/" + name;
      WriteTextFile(path, absl::StrCat("foreign: ", path));
      contents_.push_back(ReadTextFile(path));
    };
    file("notes.txt");
    file("shard-00000-of-00001.safetensors.bak");
    file("MANIFEST.pb.old");
    file("7-nothex");
    file(".hidden");
    std::filesystem::create_directories(folder + "/their folder/deep");
    file("their folder/deep/file");
  }

  // Each is somewhere below the root, with its folders of ours perhaps renamed.
  void ExpectUnchanged(const std::string& root) const {
    std::multiset<std::string> found;
    for (const auto& [path, content] : ReadTree(root)) found.insert(content);
    for (const std::string& content : contents_) {
      EXPECT_EQ(found.count(content), 1u) << content;
    }
  }

 private:
  std::vector<std::string> contents_;
};

TEST(ForeignFilesOnTheRoot, AreThereAndUnchangedAfterRecoveryAbortReplaceAndDelete) {
  TestSite site;
  const std::string job = site.root() + "/job";
  ForeignFiles foreign;
  std::optional<TestDaemon> daemon;
  const std::vector<std::string> flags = {"--reattach-timeout", "1s", "--trash-grace", "0s"};
  daemon.emplace(site, TestDaemon::Options{.faulty = true, .flags = flags});
  TestTrainer rank(site, OneRank({"--on-existing", "replace", "--tensor", "w:float32:5000x3"}));
  const auto save = [&](const std::string& id, int step, const std::string& outcome) {
    rank.Ok(absl::StrCat("fill ", step));
    rank.Do(absl::StrCat("save ", id, " ", step));
    EXPECT_EQ(rank.AwaitOutcome(id)["event"], outcome) << id;
  };
  save("a", 1, "committed");
  save("b", 2, "committed");
  site.SetFaults("fsync:shard=error:EIO");
  save("bad", 3, "failed");
  site.SetFaults("");
  std::vector<std::string> folders = {site.root(), site.root() + "/.ckptd",
                                      site.root() + "/.ckptd/nodes", job};
  for (const char* name : {"checkpoints", "attempts", "failed", "retired", "trash"}) {
    std::filesystem::create_directories(job + "/" + name);
    folders.push_back(job + "/" + name);
  }
  for (const char* name : {"checkpoints/a", "checkpoints/b"}) folders.push_back(job + "/" + name);
  for (const auto& entry : std::filesystem::directory_iterator(job + "/failed")) {
    if (entry.is_directory()) folders.push_back(entry.path().string());
  }
  for (const std::string& folder : folders) foreign.Plant(folder);

  // An abort, with foreign files in its folder.
  site.SetFaults("write:shard@1=delay:1s;fsync:shard=error:EIO");
  rank.Send("save bad2 4");
  const auto attempt_folder = [&]() -> std::string {
    for (const auto& entry : std::filesystem::directory_iterator(job + "/attempts")) {
      if (std::filesystem::exists(entry.path() / "ATTEMPT.pb")) return entry.path().string();
    }
    return "";
  };
  ASSERT_TRUE(Eventually([&] { return !attempt_folder().empty(); }));
  foreign.Plant(attempt_folder());
  rank.Answer("save");
  EXPECT_EQ(rank.AwaitOutcome("bad2")["event"], "failed");
  foreign.ExpectUnchanged(site.root());

  // A daemon that dies in mid-write and comes back.
  site.SetFaults("fsync:shard=kill");
  rank.Send("save c 5");
  EXPECT_EQ(daemon->process().AwaitEnd(), -SIGKILL);
  foreign.Plant(attempt_folder());
  site.SetFaults("");
  daemon.emplace(site, TestDaemon::Options{.faulty = true, .flags = flags});
  rank.Answer("save");
  EXPECT_EQ(rank.AwaitOutcome("c")["event"], "committed");
  foreign.ExpectUnchanged(site.root());

  save("a", 6, "committed");  // Replaces.
  foreign.ExpectUnchanged(site.root());
  EXPECT_EQ(Ckptctl(site, {"delete", "b", "--yes"}).exit_code, 0);
  foreign.ExpectUnchanged(site.root());
  daemon->Stop();
  daemon.emplace(site, TestDaemon::Options{.flags = flags});
  foreign.ExpectUnchanged(site.root());
  EXPECT_EQ(ListedIds(site), (std::vector<std::string>{"c", "a"}));
  EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0);
}

}  // namespace
}  // namespace ckptd
