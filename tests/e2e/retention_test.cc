// Retention and deletion by a real daemon: what goes, when its bytes go, and what never does.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cpp/session.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> OneRank(const std::string& tensor = "w:float32:1025x3") {
  return {"--rank", "0", "--world-size", "1", "--tensor", tensor};
}

void Save(TestTrainer& rank, int step, const std::string& id = "") {
  const std::string name = id.empty() ? absl::StrCat("step-", step) : id;
  ASSERT_TRUE(rank.Ok(absl::StrCat("fill ", step)));
  ASSERT_TRUE(rank.Ok(absl::StrCat("save ", name, " ", step)));
  ASSERT_EQ(rank.AwaitOutcome(name)["event"], "committed");
}

// Paths below one of the job's folders.
std::vector<std::string> FilesIn(const TestSite& site, const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& [path, content] : ReadTree(site.root())) {
    if (absl::StartsWith(path, absl::StrCat("job/", folder, "/"))) paths.push_back(path);
  }
  return paths;
}

bool AwaitEmpty(const TestSite& site, const std::string& folder) {
  return Eventually([&] { return FilesIn(site, folder).empty(); });
}

int CountInLog(const TestDaemon& daemon, const std::string& event) {
  int count = 0;
  for (absl::string_view line : absl::StrSplit(daemon.Log(), '\n'))
    count += absl::StrContains(line, event);
  return count;
}

int Delete(const TestSite& site, std::vector<std::string> ids) {
  ids.insert(ids.begin(), "delete");
  ids.push_back("--yes");
  return Ckptctl(site, ids).exit_code;
}

TEST(KeepLast, LeavesTheNewestTwoOfSixAndNothingForeignIsTouched) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--keep-last", "2", "--trash-grace", "0s"}});
  TestTrainer rank(site, OneRank());
  Save(rank, 1);
  std::map<std::string, std::string> foreign;
  for (const char* folder : {"", "/job", "/job/checkpoints", "/job/attempts", "/job/failed",
                             "/job/retired", "/job/trash", "/.ckptd"}) {
    const std::string place = absl::StrCat(site.root(), folder);
    std::filesystem::create_directory(place + "/not~ours");
    for (const char* name : {"/notes.txt", "/not~ours/shard-00000-of-00001.safetensors"}) {
      foreign[place + name] = absl::StrCat("in ", folder, name);
      WriteTextFile(place + name, foreign[place + name]);
    }
  }
  for (int step = 2; step <= 6; ++step) Save(rank, step);
  EXPECT_TRUE(Eventually([&] { return ListedIds(site).size() == 2; }));
  EXPECT_THAT(ListedIds(site), ElementsAre("step-5", "step-6"));
  EXPECT_TRUE(Eventually([&] { return CountInLog(daemon, "trash.removed") == 4; })) << daemon.Log();
  EXPECT_EQ(CountInLog(daemon, "checkpoint.deleted"), 4) << daemon.Log();
  for (const auto& [path, content] : foreign) EXPECT_EQ(ReadTextFile(path), content) << path;
  for (const char* folder : {"trash", "retired"}) EXPECT_EQ(FilesIn(site, folder).size(), 3u);
  EXPECT_TRUE(rank.Ok("load step-5 0s"));
  EXPECT_EQ(rank.Do("check 5")["equal"], true);
  EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0);
}

TEST(KeepLast, CanBeSetByASession) {
  TestSite site;
  TestDaemon daemon(site);
  SessionOptions options;
  options.client.socket = site.socket();
  options.job = "job";
  options.keep_last = 1;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  std::vector<float> weights(100, 1.5f);
  for (int step = 1; step <= 3; ++step) {
    State state;
    state.tensors.push_back(WholeTensor("w", DType::kFloat32, {weights.size()}, weights.data()));
    auto save = (*session)->AsyncSave(absl::StrCat("step-", step), step, std::move(state));
    ASSERT_TRUE(save.ok()) << save.status();
    ASSERT_TRUE(save->Wait(SaveState::kCommitted, absl::Seconds(60)).ok());
  }
  EXPECT_TRUE(Eventually([&] { return ListedIds(site).size() == 1; }));
  EXPECT_THAT(ListedIds(site), ElementsAre("step-3"));
}

TEST(Deletion, IsSeenAtOnceAndTheBytesGoAfterTheGrace) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--trash-grace", "3s"}});
  TestTrainer rank(site, OneRank());
  for (int step = 1; step <= 3; ++step) Save(rank, step);
  EXPECT_EQ(Delete(site, {"step-1", "step-1", "step-2"}), 0) << "given twice, it counts once";
  EXPECT_THAT(ListedIds(site), ElementsAre("step-3"));
  EXPECT_FALSE(FilesIn(site, "trash").empty());
  EXPECT_EQ(Delete(site, {"step-1"}), 3);
  EXPECT_EQ(Delete(site, {"step-3"}), 9) << "the newest";
  EXPECT_TRUE(AwaitEmpty(site, "trash"));
  ASSERT_TRUE(rank.Ok("save step-1 1")) << "the id is free again";
  EXPECT_TRUE(Eventually([&] { return ListedIds(site).size() == 2; }));
  EXPECT_THAT(ListedIds(site), ElementsAre("step-3", "step-1"));
}

TEST(Deletion, OfASaveInFlightIsRefusedAsNotCommitted) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, OneRank());
  Save(rank, 1);
  site.SetFaults("commit-before=delay:3s");
  rank.Send("fill 2");
  rank.Send("save step-2 2");
  ASSERT_TRUE(Eventually([&] { return !Ckptctl(site, {"list"}).json["attempts"].empty(); }));
  EXPECT_EQ(Ckptctl(site, {"describe", "step-2"}).exit_code, 7);
  EXPECT_EQ(Delete(site, {"step-2"}), 7);
  EXPECT_EQ(rank.AwaitOutcome("step-2")["event"], "committed");
}

TEST(Deletion, DoesNotTakeTheBytesFromALoadInProgress) {
  for (const std::string how : {"delete", "retention", "replace"}) {
    TestSite site;
    TestDaemon daemon(site, {.faulty = true,
                             .flags = {"--trash-grace", "0s", "--block-size", "1MiB", "--keep-last",
                                       how == "retention" ? "2" : "0"}});
    TestTrainer rank(site, OneRank("w:uint8:8388608"));
    TestTrainer reader(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:8388608",
                              "--incarnation", "r"});
    Save(rank, 1);
    Save(rank, 2);
    site.SetFaults("read:shard=delay:500ms");
    reader.Send("load step-1 60s");
    ASSERT_TRUE(Eventually([&] {
      const Json loads = Ckptctl(site, {"status"}).json["loads"];
      return !loads.empty() && loads[0]["total_bytes"] == 8388608;
    }));
    if (how == "delete") {
      EXPECT_EQ(Delete(site, {"step-1"}), 0);
    } else if (how == "retention") {
      Save(rank, 3);
    } else {
      TestTrainer other(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:8388608",
                               "--on-existing", "replace", "--incarnation", "o"});
      Save(other, 7, "step-1");
    }
    EXPECT_TRUE(Eventually([&] { return !FilesIn(site, "trash").empty(); })) << how;
    EXPECT_FALSE(Ckptctl(site, {"status"}).json["loads"].empty()) << how << ": too late";
    EXPECT_FALSE(FilesIn(site, "trash").empty()) << how;
    const Json loaded = reader.Answer("load");
    EXPECT_EQ(loaded["ok"], true) << how << loaded;
    EXPECT_EQ(reader.Do("check 1")["equal"], true) << how;
    site.SetFaults("");
    EXPECT_TRUE(AwaitEmpty(site, "trash")) << how;
  }
}

TEST(Deletion, OfWhatIsBeingVerifiedIsNoDamage) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true, .flags = {"--trash-grace", "0s"}});
  TestTrainer rank(site, OneRank());
  Save(rank, 1);
  Save(rank, 2);
  site.SetFaults("open:step-1/shard=delay:2s");
  CommandResult verified;
  std::thread verify([&] { verified = Ckptctl(site, {"verify", "--all"}); });
  EXPECT_TRUE(Eventually([&] {
    const std::vector<Json> log = site.FaultLog();
    return !log.empty() && absl::StrContains(log.back().dump(), "step-1/shard=delay");
  }));
  EXPECT_EQ(Delete(site, {"step-1"}), 0);
  verify.join();
  EXPECT_EQ(verified.exit_code, 0) << verified.out << verified.err;
  EXPECT_EQ(verified.json["checked"].size(), 1u) << verified.out;
}

TEST(Trash, IsEmptiedByTheNextDaemon) {
  TestSite site;
  {
    TestDaemon daemon(site, {.flags = {"--trash-grace", "1h", "--keep-last", "1"}});
    TestTrainer rank(site, OneRank());
    for (int step = 1; step <= 3; ++step) Save(rank, step);
    ASSERT_TRUE(Eventually([&] { return ListedIds(site).size() == 1; }));
    daemon.Kill();
  }
  EXPECT_EQ(FilesIn(site, "trash").size(), 2 * 5u) << "two folders with four files each";
  {
    TestDaemon daemon(site, {.flags = {"--trash-grace", "1h"}});
    EXPECT_EQ(daemon.Stop(), 0);
  }
  EXPECT_EQ(FilesIn(site, "trash").size(), 2 * 5u) << "the grace begins anew";
  TestDaemon daemon(site, {.flags = {"--trash-grace", "0s"}});
  EXPECT_TRUE(AwaitEmpty(site, "trash"));
  EXPECT_THAT(ListedIds(site), ElementsAre("step-3"));
}

TEST(Trash, ARemovalThatIsKilledIsFinishedByTheNextDaemon) {
  for (const char* plan :
       {"unlink:trash@1=kill", "unlink:trash@3=kill", "unlink:trash@4=kill-after",
        "rename:trash@1=kill", "rename:trash@1=kill-after", "rename:retired@1=kill-after"}) {
    TestSite site;
    {
      TestDaemon daemon(site, {.faulty = true, .flags = {"--trash-grace", "0s"}});
      TestTrainer rank(site, OneRank());
      for (int step = 1; step <= 3; ++step) Save(rank, step);
      site.SetFaults(plan);
      Delete(site, {"step-1"});
      EXPECT_EQ(daemon.process().AwaitEnd(), -SIGKILL) << plan;
      site.SetFaults("");
    }
    TestDaemon daemon(site, {.flags = {"--trash-grace", "0s"}});
    EXPECT_TRUE(AwaitEmpty(site, "trash")) << plan;
    EXPECT_THAT(FilesIn(site, "retired"), IsEmpty()) << plan;
    std::vector<std::string> listed = ListedIds(site);
    if (listed.size() == 3) listed.erase(listed.begin());  // The deletion was not told.
    EXPECT_THAT(listed, ElementsAre("step-2", "step-3")) << plan;
    EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0) << plan;
  }
}

}  // namespace
}  // namespace ckptd
