// Each kind of disk operation fails in a save, with EIO and ENOSPC: the save fails and says where,
// or its outcome is unknown until the next start; the daemon lives, and the next save commits.
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

struct Error {
  const char* name;
  const char* text;
  const char* code;
};
constexpr Error kErrors[] = {{"EIO", "Input/output error", "INTERNAL"},
                             {"ENOSPC", "No space left on device", "RESOURCE_EXHAUSTED"}};

// Two ranks at one daemon, and a save after each fault.
class Faults : public testing::Test {
 protected:
  void SetUp() override {
    StartDaemon();
    for (int rank = 0; rank < 2; ++rank) {
      ranks_[rank].emplace(
          site_, std::vector<std::string>{"--rank", absl::StrCat(rank), "--world-size", "2",
                                          "--tensor", "w:float32:1025x3"});
    }
  }
  void TearDown() override {
    EXPECT_EQ(Ckptctl(site_, {"verify", "--all"}).exit_code, 0);
    EXPECT_EQ(ListedIds(site_), committed_);
  }

  void StartDaemon() {
    daemon_.reset();
    daemon_.emplace(site_, TestDaemon::Options{.faulty = true});
    ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
  }

  // How it ended, on rank 0; rank 1 hears the same.
  Json Save(const std::string& id) {
    ++step_;
    for (auto& rank : ranks_) {
      rank->Send(absl::StrCat("fill ", step_));
      rank->Send(absl::StrCat("save ", id, " ", step_));
    }
    Json first = ranks_[0]->AwaitOutcome(id);
    const Json second = ranks_[1]->AwaitOutcome(id);
    EXPECT_EQ(first["event"], second["event"]);
    for (auto& rank : ranks_) {
      rank->Answer("fill");
      rank->Answer("save");
    }
    if (first["event"] == "committed") committed_.push_back(id);
    return first;
  }

  void ExpectNextCommits() {
    site_.SetFaults("");
    EXPECT_TRUE(daemon_->process().Running());
    const std::string id = absl::StrCat("good-", step_);
    const Json end = Save(id);
    EXPECT_EQ(end["event"], "committed") << end.dump();
    for (auto& rank : ranks_) {
      rank->Ok(absl::StrCat("load ", id, " 0s"));
      rank->Ok(absl::StrCat("check ", step_));
    }
  }

  // The failure of `id` as the daemon remembers it.
  Json Failure(const std::string& id) {
    const CommandResult status = Ckptctl(site_, {"status"});
    for (const Json& failure : status.json["failures"]) {
      if (failure["id"] == id) return failure["error"];
    }
    return Json();
  }

  Json Root() { return Ckptctl(site_, {"status"}).json["roots"][0]; }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
  std::optional<TestTrainer> ranks_[2];
  std::vector<std::string> committed_;
  int step_ = 0;
};

struct Place {
  const char* where;
  std::set<std::string> phases;
  bool named = true;  // The attempt began, so that the failure is remembered.
};

TEST_F(Faults, BeforeTheCommitPointFailTheSaveWithPhaseAndErrno) {
  const Place kPlaces[] = {
      {"mkdir:attempts/", {"admit"}, false},
      {"create:ATTEMPT.pb", {"admit"}, false},
      {"write:ATTEMPT.pb", {"admit"}, false},
      {"fsync:ATTEMPT.pb", {"admit"}, false},
      {"create:shard-00001", {"write"}},
      {"allocate:shard-00001", {"write"}},
      {"write:shard-00001", {"write"}},
      {"write:shard-00001-of-00002.safetensors@2", {"write"}},
      {"truncate:shard-00001", {"write"}},
      {"fsync:shard-00001", {"sync", "write"}},
      {"create:fragment", {"sync"}},
      {"write:fragment", {"sync"}},
      {"fsync:fragment", {"sync"}},
      {"create:MANIFEST", {"commit"}},
      {"write:MANIFEST", {"commit"}},
      {"fsync:MANIFEST", {"sync"}},
      {"rename:MANIFEST", {"commit"}},
      {"rename:to job/checkpoints/", {"commit"}},
  };
  EXPECT_EQ(Save("first")["event"], "committed");
  int n = 0;
  for (const Place& place : kPlaces) {
    for (const Error& error : kErrors) {
      const std::string id = absl::StrCat("bad-", ++n);
      SCOPED_TRACE(absl::StrCat(place.where, " ", error.name));
      site_.SetFaults(absl::StrCat(place.where, "=error:", error.name));
      const Json end = Save(id);
      EXPECT_EQ(end["event"], "failed");
      EXPECT_EQ(end["code"], error.code) << end.dump();
      EXPECT_THAT(end["message"].get<std::string>(), HasSubstr(error.text));
      const Json failure = Failure(id);
      if (place.named) {
        ASSERT_TRUE(failure.is_object());
        EXPECT_TRUE(place.phases.contains(failure["phase"])) << failure.dump();
        EXPECT_EQ(failure["node"], "node-a");
        const bool of_rank = absl::StrContains(place.where, "shard") && failure["phase"] == "write";
        EXPECT_TRUE(!of_rank || failure["rank"] == 1) << failure.dump();
      }
      EXPECT_EQ(Root()["state"], "ok");
      ExpectNextCommits();
    }
  }
}

TEST_F(Faults, OfFoldersThatAreSyncedFailTheSaveToo) {
  EXPECT_EQ(Save("first")["event"], "committed");
  int n = 0;
  for (const Error& error : kErrors) {
    const std::string id = absl::StrCat("bad-", ++n);
    site_.SetFaults(absl::StrCat("fsyncdir:job/attempts/=error:", error.name));
    const Json end = Save(id);
    EXPECT_EQ(end["event"], "failed");
    EXPECT_EQ(end["code"], error.code) << end.dump();
    EXPECT_THAT(end["message"].get<std::string>(), HasSubstr(error.text));
    ExpectNextCommits();
  }
}

// A rank that calls save when the others' has failed already does not wait for them.
TEST_F(Faults, ThatOneRankHasHeardOfAreToldToALateOne) {
  site_.SetFaults("mkdir:job/attempts/@1=error:EIO");
  const Json first = ranks_[0]->Do("save late 1");
  EXPECT_EQ(first["ok"], false);
  EXPECT_THAT(first["message"].get<std::string>(), HasSubstr("Input/output error"));
  const Json second = ranks_[1]->Do("save late 1");
  EXPECT_EQ(second["code"], first["code"]) << second.dump();
  EXPECT_EQ(second["message"], first["message"]);
  // Both try again.
  for (auto& rank : ranks_) rank->Send("save late 1");
  for (auto& rank : ranks_) EXPECT_EQ(rank->Answer("save")["ok"], true);
  EXPECT_EQ(Ckptctl(site_, {"wait", "late", "--for", "committed"}).exit_code, 0);
  committed_.push_back("late");
}

TEST_F(Faults, AfterTheCommitRenameAreUnknownUntilTheNextStart) {
  EXPECT_EQ(Save("first")["event"], "committed");
  for (const Error& error : kErrors) {
    SCOPED_TRACE(error.name);
    const std::string id = absl::StrCat("unknown-", error.name);
    site_.SetFaults(absl::StrCat("fsyncdir:job/checkpoints=error:", error.name));
    const Json end = Save(id);
    EXPECT_EQ(end["event"], "failed");
    EXPECT_EQ(end["code"], "UNKNOWN");
    EXPECT_THAT(end["message"].get<std::string>(), HasSubstr(error.text));
    const Json root = Root();
    EXPECT_EQ(root["state"], "unhealthy");
    EXPECT_THAT(root["reason"].get<std::string>(), HasSubstr("unknown"));
    site_.SetFaults("");
    const Json refused = Save(absl::StrCat("refused-", error.name));
    EXPECT_EQ(refused["code"], "UNAVAILABLE") << refused.dump();
    EXPECT_TRUE(daemon_->process().Running());
    EXPECT_EQ(daemon_->Stop(), 0);
    StartDaemon();
    // The rename had happened.
    committed_.push_back(id);
    EXPECT_EQ(ListedIds(site_), committed_);
    EXPECT_EQ(Root()["state"], "ok");
    ExpectNextCommits();
  }
}

TEST_F(Faults, InTheAbortItselfDoNotKeepItFromFailing) {
  EXPECT_EQ(Save("first")["event"], "committed");
  for (const Error& error : kErrors) {
    SCOPED_TRACE(error.name);
    const std::string id = absl::StrCat("bad-", error.name);
    site_.SetFaults(absl::StrCat("fsync:shard=error:EIO;create:OUTCOME=error:", error.name,
                                 ";unlink=error:", error.name));
    const Json end = Save(id);
    EXPECT_EQ(end["event"], "failed");
    EXPECT_THAT(end["message"].get<std::string>(), HasSubstr("Input/output error"));
    ExpectNextCommits();
  }
}

TEST_F(Faults, ThatAreShortWritesAreWrittenOn) {
  site_.SetFaults("write:shard=short:4096");
  EXPECT_EQ(Save("a")["event"], "committed");
  site_.SetFaults("write=short:512");
  EXPECT_EQ(Save("b")["event"], "committed");
  ExpectNextCommits();
}

// What the disk changes on the way is not noticed when it is written, but never loaded.
TEST_F(Faults, ThatFlipAByteOnTheWayToTheDiskAreFoundByVerifyAndLoad) {
  site_.SetFaults("write:shard-00001-of-00002.safetensors@2=flip:100");
  EXPECT_EQ(Save("a")["event"], "committed");
  site_.SetFaults("");
  const CommandResult verified = Ckptctl(site_, {"verify", "a"});
  EXPECT_EQ(verified.exit_code, 6);
  ASSERT_TRUE(verified.json.is_object());
  EXPECT_EQ(verified.json["checked"][0]["errors"][0]["tensor"], "w") << verified.out;
  const Json answer = ranks_[1]->Do("load a 0s");
  EXPECT_EQ(answer["code"], "DATA_LOSS") << answer.dump();
  EXPECT_TRUE(ranks_[0]->Ok("load a 0s")) << "its own part is whole";
  EXPECT_EQ(Ckptctl(site_, {"delete", "a", "--yes", "--allow-newest"}).exit_code, 0);
  committed_.clear();
}

// The shards of a failed attempt go though its outcome cannot be written, and that comes later.
TEST_F(Faults, WhatAFailedAttemptLeavesIsCleanedUpAgain) {
  site_.SetFaults("write:shard=error:EIO;create:OUTCOME=error:EIO");
  EXPECT_EQ(Save("x")["event"], "failed");
  const auto left = [&](absl::string_view name) {
    for (const auto& [path, content] : ReadTree(site_.root() + "/job/failed")) {
      if (absl::StrContains(path, name)) return true;
    }
    return false;
  };
  EXPECT_TRUE(Eventually([&] { return !left("shard-"); }));
  EXPECT_FALSE(left("OUTCOME"));
  site_.SetFaults("");
  EXPECT_TRUE(Eventually([&] { return left("OUTCOME"); }));
  ExpectNextCommits();
}

}  // namespace
}  // namespace ckptd
