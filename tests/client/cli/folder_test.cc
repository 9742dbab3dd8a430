// ckptctl --root: without a daemon, over folders as a daemon leaves them.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "storage/format/paths.h"
#include "storage/format/records.h"
#include "tests/client/cli/run_tool.h"
#include "tests/storage/commit/test_save.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

class Folder : public testing::Test {
 protected:
  const std::string& root() const { return root_.path(); }

  void Write(const std::string& path, const std::string& bytes) {
    std::filesystem::path whole = std::filesystem::path(root()) / path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole, std::ios::binary) << bytes;
  }

  static AttemptRecord Record(const std::string& id, uint64_t sequence) {
    AttemptRecord record = MakeTestRecord(id, sequence, 2);
    record.begun = absl::FromUnixSeconds(1'700'000'000);
    return record;
  }

  void Commit(const AttemptRecord& record) {
    std::string folder = CheckpointDir(record.job, record.checkpoint_id);
    TestNode node = MakeTestNode(record, "a", {0, 1}, 1000);
    std::string fragment = EncodeFragment(node.fragment);
    for (const TestNode::Shard& shard : node.shards) Write(Join(folder, shard.name), shard.bytes);
    Write(Join(folder, FragmentFileName("a")), fragment);
    Write(Join(folder, kRecordFile), EncodeAttemptRecord(record));
    auto manifest = MakeManifest(record, {{FragmentFileName("a"), fragment, node.fragment}});
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    Write(Join(folder, kManifestFile), EncodeManifest(*manifest));
  }

  void LeaveUnfinished(const AttemptRecord& record) {
    std::string folder = AttemptDir(record.job, record.attempt);
    Write(Join(folder, kRecordFile), EncodeAttemptRecord(record));
    Write(Join(folder, ShardFile(0, 2, 0)), std::string(5000, 'x'));
  }

  void Fail(const AttemptRecord& record) {
    Outcome outcome;
    outcome.record = record;
    outcome.root_label = "default";
    outcome.failure = {absl::AbortedError("process 17 died"), 1, "a", "stage"};
    outcome.ranks = {{0, "a", 16, "staged", 1000, 1000, 400}, {1, "a", 17, "lost", 1000, 10, 0}};
    outcome.ended = record.begun + absl::Seconds(3);
    Write(Join(FailedAttemptDir(record.job, record.attempt), kOutcomeFile), EncodeOutcome(outcome));
  }

  // step-1 committed, step-2 failed, step-3 committed, step-4 unfinished.
  void Fill() {
    Commit(Record("step-1", 1));
    Fail(Record("step-2", 2));
    Commit(Record("step-3", 3));
    LeaveUnfinished(Record("step-4", 4));
  }

  ToolResult Tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--root", root()});
    return RunTool(arguments);
  }

  // With -o json; stdout is one document.
  Json Answer(std::vector<std::string> arguments, int exit_code = kExitOk) {
    arguments.insert(arguments.end(), {"-o", "json"});
    ToolResult result = Tool(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    Json json = Json::parse(result.out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << result.out;
    return json;
  }

  // The last line on stderr with -o json, whose exit code is the process's.
  Json Error(std::vector<std::string> arguments, int exit_code) {
    arguments.insert(arguments.end(), {"-o", "json"});
    ToolResult result = Tool(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    Json json = Json::parse(LastLine(result.err), nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << result.err;
    if (json.is_discarded()) return Json::object();
    EXPECT_EQ(json["exit"], exit_code);
    return json;
  }

  TempFolder root_;
};

TEST_F(Folder, AListHasCommittedAndUnfinishedOnes) {
  Fill();
  Json json = Answer({"list"});
  ASSERT_EQ(json["checkpoints"].size(), 2u);
  EXPECT_EQ(json["checkpoints"][0]["id"], "step-1");
  EXPECT_EQ(json["checkpoints"][1]["id"], "step-3");
  EXPECT_EQ(json["checkpoints"][1]["step"], 30);
  EXPECT_EQ(json["checkpoints"][1]["nodes"], Json({"a"}));
  EXPECT_EQ(json["checkpoints"][1]["begun"], "2023-11-14T22:13:20.000Z");
  EXPECT_EQ(json["checkpoints"][1]["path"], root() + "/job/checkpoints/step-3");
  ASSERT_EQ(json["attempts"].size(), 1u);
  EXPECT_EQ(json["attempts"][0]["state"], "unknown");
  EXPECT_EQ(json["attempts"][0]["id"], "step-4");
  EXPECT_TRUE(json["attempts"][0]["planned_bytes"].is_null());
}

TEST_F(Folder, AListOfAllHasTheFailedOnesWithTheirReason) {
  Fill();
  Json json = Answer({"list", "--all"});
  ASSERT_EQ(json["attempts"].size(), 2u);
  const Json& failed = json["attempts"][0];
  EXPECT_EQ(failed["state"], "failed");
  EXPECT_EQ(failed["error"]["code"], "ABORTED");
  EXPECT_EQ(failed["error"]["rank"], 1);
  EXPECT_EQ(failed["error"]["node"], "a");
  EXPECT_EQ(failed["error"]["phase"], "stage");
  EXPECT_EQ(failed["written_bytes"], 400);
  EXPECT_EQ(failed["ranks"][1]["state"], "lost");
  EXPECT_EQ(failed["ended"], "2023-11-14T22:13:23.000Z");
  ToolResult table = Tool({"list", "--all"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("rank 1, node a, phase stage: process 17 died"),
                               HasSubstr("unfinished"), HasSubstr("committed")));
}

TEST_F(Folder, TheLatestIsTheNewestCommittedOne) {
  Fill();
  ToolResult result = Tool({"latest"});
  EXPECT_EQ(result.exit_code, kExitOk);
  EXPECT_EQ(result.out, "step-3\n");
  EXPECT_EQ(Answer({"latest"})["attempt"], "3-0000000000c0ffee");
}

TEST_F(Folder, NothingThereAndOnlyUnfinishedThereDiffer) {
  EXPECT_EQ(Error({"latest"}, kExitNothingThere)["code"], "NOT_FOUND");
  EXPECT_EQ(Answer({"list"})["checkpoints"].size(), 0u);
  LeaveUnfinished(Record("step-4", 4));
  Json error = Error({"latest"}, kExitNotCommitted);
  EXPECT_EQ(error["code"], "FAILED_PRECONDITION");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("step-4"));
}

TEST_F(Folder, ShowTakesIdsAndAttempts) {
  Fill();
  Json checkpoint = Answer({"show", "step-1"});
  EXPECT_EQ(checkpoint["state"], "committed");
  ASSERT_EQ(checkpoint["files"].size(), 2u);
  EXPECT_EQ(checkpoint["files"][1]["name"], "shard-00001-of-00002.safetensors");
  EXPECT_EQ(checkpoint["files"][1]["rank"], 1);
  EXPECT_EQ(Answer({"show", "3-0000000000c0ffee"})["id"], "step-3");
  EXPECT_EQ(Answer({"show", "2-0000000000c0ffee"})["state"], "failed");
  EXPECT_EQ(Answer({"show", "step-2"})["state"], "failed");
  Json unfinished = Answer({"show", "step-4"});
  EXPECT_EQ(unfinished["state"], "unknown");
  EXPECT_EQ(unfinished["written_bytes"], 5000);
  EXPECT_EQ(Error({"show", "step-9"}, kExitNothingThere)["code"], "NOT_FOUND");
  EXPECT_THAT(Tool({"show", "step-1"}).out, HasSubstr("shard-00001-of-00002.safetensors"));
}

TEST_F(Folder, DescribeSaysWhatIsStoredAndWhere) {
  Fill();
  Json json = Answer({"describe", "step-1"});
  ASSERT_EQ(json["tensors"].size(), 2u);
  const Json& tensor = json["tensors"][1];
  EXPECT_EQ(tensor["name"], "w");
  EXPECT_EQ(tensor["dtype"], "uint8");
  EXPECT_EQ(tensor["shape"], Json({1000}));
  EXPECT_EQ(tensor["rank_local"], 1);
  EXPECT_EQ(tensor["chunks"][0]["file"], "shard-00001-of-00002.safetensors");
  EXPECT_EQ(tensor["chunks"][0]["file_offset"], 4096);
  EXPECT_EQ(tensor["chunks"][0]["bytes"], 1000);
  EXPECT_EQ(json["items"][0]["name"], "lr");
  EXPECT_EQ(json["items"][0]["value"], 0.1);
  EXPECT_EQ(Answer({"describe", "step-1", "--tensor", "x*"})["tensors"].size(), 0u);
  Error({"describe", "step-4"}, kExitNotCommitted);
  Error({"describe", "step-9"}, kExitNothingThere);
}

TEST_F(Folder, VerifyFindsAFlippedByteAndKeepsTheVerdict) {
  Fill();
  EXPECT_EQ(Answer({"verify"})["ok"], true);
  EXPECT_EQ(Answer({"list"})["checkpoints"][0]["verified"]["ok"], true);

  std::string shard = root() + "/job/checkpoints/step-3/shard-00001-of-00002.safetensors";
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096 + 17);
  file.put('\xff');
  file.close();
  Json json = Answer({"verify", "--all"}, kExitIntegrity);
  EXPECT_EQ(json["ok"], false);
  ASSERT_EQ(json["checked"].size(), 2u);
  EXPECT_EQ(json["checked"][0]["ok"], true);
  EXPECT_EQ(json["checked"][1]["id"], "step-3");
  EXPECT_EQ(json["checked"][1]["errors"][0]["file"], "shard-00001-of-00002.safetensors");
  EXPECT_EQ(json["checked"][1]["errors"][0]["tensor"], "w");
  EXPECT_EQ(Answer({"list"})["checkpoints"][1]["verified"]["ok"], false);
  EXPECT_EQ(Error({"verify", "step-3"}, kExitIntegrity)["code"], "DATA_LOSS");
  EXPECT_EQ(Answer({"verify", "step-1"})["checked"].size(), 1u);
  Error({"verify", "step-9"}, kExitNothingThere);
  Error({"verify", "step-4"}, kExitNotCommitted);
}

TEST_F(Folder, ADamagedCheckpointIsListedAsSuch) {
  Fill();
  Write("job/checkpoints/step-3/MANIFEST.pb", "no manifest");
  Json json = Answer({"list"});
  EXPECT_EQ(json["checkpoints"].size(), 1u);
  ASSERT_EQ(json["damaged"].size(), 1u);
  EXPECT_EQ(json["damaged"][0]["id"], "step-3");
  EXPECT_EQ(Answer({"latest"})["id"], "step-1");
  EXPECT_EQ(Answer({"verify"}, kExitIntegrity)["checked"].size(), 2u);
}

TEST_F(Folder, SeveralJobsAreNamed) {
  Fill();
  AttemptRecord other = Record("step-1", 1);
  other.job = "other job";
  Commit(other);
  EXPECT_EQ(Answer({"list"})["checkpoints"].size(), 3u);
  EXPECT_EQ(Answer({"list", "--job", "other job"})["checkpoints"].size(), 1u);
  Json error = Error({"latest"}, kExitUsage);
  EXPECT_THAT(error["message"].get<std::string>(), AllOf(HasSubstr("job"), HasSubstr("other job")));
  EXPECT_EQ(Answer({"latest", "--job", "other job"})["job"], "other job");
  error = Error({"latest", "--job", "third"}, kExitNothingThere);
  EXPECT_THAT(error["message"].get<std::string>(),
              AllOf(HasSubstr("\"third\""), HasSubstr("other job")));
}

TEST_F(Folder, AForeignFolderThatLooksLikeAJobIsNone) {
  Fill();
  Write("theirs/checkpoints/epoch-1/weights.bin", "foreign");
  EXPECT_EQ(Tool({"latest"}).out, "step-3\n");
  EXPECT_EQ(Tool({"show", "step-1"}).exit_code, kExitOk);
  EXPECT_EQ(Tool({"--job", "theirs", "latest"}).exit_code, kExitNothingThere);
}

TEST_F(Folder, AFolderThatIsMissingOrNotOursIsNoReasonToFail) {
  EXPECT_EQ(RunTool({"--root", root() + "/none", "list"}).exit_code, kExitNothingThere);
  Write("notes.txt", "mine");
  Write("photos/2024/x.jpg", "mine");
  EXPECT_EQ(Answer({"list", "--all"})["checkpoints"].size(), 0u);
}

TEST_F(Folder, AFolderInsideARootIsNamedAsSuch) {
  Fill();
  std::string job = absl::StrCat(root(), "/", Record("step-1", 1).job);
  for (const std::string& inside :
       {job, absl::StrCat(job, "/checkpoints"), absl::StrCat(job, "/checkpoints/step-1")}) {
    for (const char* verb : {"list", "latest", "verify"}) {
      ToolResult result = RunTool({"--root", inside, verb});
      EXPECT_EQ(result.exit_code, kExitNothingThere) << inside << " " << verb;
      EXPECT_THAT(result.err, HasSubstr(absl::StrCat("try --root ", root(), "\n"))) << inside;
      EXPECT_EQ(result.out, "");
    }
  }
}

TEST_F(Folder, NothingToVerifyIsSaidAndFine) {
  ToolResult all = Tool({"verify", "--all"});
  EXPECT_EQ(all.exit_code, kExitOk);
  EXPECT_THAT(all.err, HasSubstr("nothing to verify"));
  EXPECT_EQ(Json::parse(Tool({"verify", "-o", "json"}).out)["checked"], Json::array());
  EXPECT_EQ(Tool({"verify", "step-1"}).exit_code, kExitNothingThere);
}

TEST_F(Folder, UsageErrorsAreUsageErrorsInJsonToo) {
  EXPECT_EQ(Error({"status"}, kExitUsage)["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(Error({"lst"}, kExitUsage)["code"], "INVALID_ARGUMENT");
  ToolResult text = Tool({"lst"});
  EXPECT_EQ(text.exit_code, kExitUsage);
  EXPECT_THAT(text.err, HasSubstr("ckptctl: no verb or option \"lst\""));
  EXPECT_EQ(text.out, "");
}

}  // namespace
}  // namespace ckptd
