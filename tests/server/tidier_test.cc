// Retention and the trash, driven by saves over a real folder.
#include "server/tidier.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/catalog/catalog.h"
#include "storage/catalog/verdict.h"
#include "tests/server/save_rig.h"

namespace ckptd {
namespace {

using Names = std::vector<std::string>;

class TidierTest : public testing::Test {
 protected:
  void Make(SaveRig::Options options) { rig_ = std::make_unique<SaveRig>(std::move(options)); }

  void Save(const std::string& id, uint32_t keep_last = 0, bool replace = false) {
    Session session = rig_->NewSession(0, 1);
    SaveOptions options;
    options.checkpoint_id = id;
    options.request_id = absl::StrCat("request-", ++requests_);
    options.keep_last = keep_last;
    options.replace = replace;
    auto rank = std::make_shared<FakeRank>(*rig_, session, options, TestPlan(0, 1));
    rig_->Save(rank);
    EXPECT_TRUE(rig_->AwaitCommitted({rank}));
  }

  bool AwaitNames(const std::string& folder, const Names& names) {
    bool there = rig_->Await([&] { return rig_->List(folder) == names; });
    if (!there) {
      for (const std::string& name : rig_->List(folder)) ADD_FAILURE() << folder << "/" << name;
    }
    return there;
  }
  // Asks for so much more than is free, and waits for the answer.
  bool MakeRoom(uint64_t more_bytes) {
    bool done = false;
    uint64_t bytes = rig_->root().disk().Space()->free_bytes + more_bytes;
    rig_->OnLoop([&] {
      rig_->tidier().trash().MakeRoom(rig_->root_pointer(), bytes, [&] { done = true; });
    });
    return rig_->Await([&] { return done; });
  }
  size_t Trashed() { return rig_->List("trash").size(); }

  std::unique_ptr<SaveRig> rig_;
  int requests_ = 0;
};

TEST_F(TidierTest, ACommitLeavesTheNewestAndTheirBytesGo) {
  Make({.keep_last = 2});
  for (const char* id : {"a", "b", "c", "d"}) Save(id);
  EXPECT_TRUE(AwaitNames("checkpoints", {"c", "d"}));
  EXPECT_TRUE(AwaitNames("trash", {}));
  EXPECT_TRUE(AwaitNames("retired", {}));
}

TEST_F(TidierTest, OneThatWasFoundDamagedNeitherCountsNorGoes) {
  Make({.keep_last = 2});
  for (const char* id : {"a", "b"}) Save(id);
  CheckpointInfo b = *FindCheckpoint(rig_->root().disk(), SaveRig::kJob, "b");
  ASSERT_TRUE(
      WriteVerdict(rig_->root().disk(), SaveRig::kJob, b.manifest.attempt, {.at = {}, .ok = false})
          .ok());
  for (const char* id : {"c", "d"}) Save(id);
  EXPECT_TRUE(AwaitNames("checkpoints", {"b", "c", "d"}));
}

TEST_F(TidierTest, WithoutALimitNothingGoes) {
  Make({});
  for (const char* id : {"a", "b", "c"}) Save(id);
  rig_->OnLoop([] {});
  EXPECT_EQ(rig_->List("checkpoints"), Names({"a", "b", "c"}));
}

TEST_F(TidierTest, TheSessionsNumberCountsBeforeTheDaemons) {
  Make({.keep_last = 5});
  for (const char* id : {"a", "b"}) Save(id);
  Save("c", 1);
  EXPECT_TRUE(AwaitNames("checkpoints", {"c"}));
}

TEST_F(TidierTest, OfTwoRanksTheOneThatKeepsMoreCounts) {
  Make({.keep_last = 1});
  Save("a");
  std::vector<std::shared_ptr<FakeRank>> ranks;
  for (uint32_t i = 0; i < 2; ++i) {
    SaveOptions options;
    options.checkpoint_id = "b";
    options.request_id = absl::StrCat("of-rank-", i);
    options.keep_last = i == 0 ? 0 : 2;
    ranks.push_back(
        std::make_shared<FakeRank>(*rig_, rig_->NewSession(i, 2), options, TestPlan(i, 2)));
    rig_->Save(ranks.back());
  }
  ASSERT_TRUE(rig_->AwaitCommitted(ranks));
  Save("c", 2);
  EXPECT_TRUE(AwaitNames("checkpoints", {"b", "c"})) << "a was kept by the commit of b";
}

TEST_F(TidierTest, BytesStayForTheGrace) {
  Make({.keep_last = 1, .trash_grace = absl::Minutes(10)});
  Save("a");
  Save("b");
  ASSERT_TRUE(AwaitNames("checkpoints", {"b"}));
  ASSERT_TRUE(rig_->Await([&] { return rig_->tidier().trash().size() == 1; }));
  rig_->Advance(absl::Minutes(9));
  rig_->OnLoop([] {});
  EXPECT_EQ(Trashed(), 1u);
  rig_->Advance(absl::Minutes(1));
  EXPECT_TRUE(AwaitNames("trash", {}));
}

TEST_F(TidierTest, ARestartedDaemonSeesWhatLiesThereAndBeginsTheGraceAnew) {
  Make({.keep_last = 1, .trash_grace = absl::Minutes(10)});
  Save("a");
  Save("b");
  ASSERT_TRUE(rig_->Await([&] { return rig_->tidier().trash().size() == 1; }));
  rig_->Advance(absl::Minutes(9));
  rig_->Crash();
  rig_->Start();
  rig_->OnLoop([&] { rig_->tidier().RootStarted(rig_->root_pointer()); });
  ASSERT_TRUE(rig_->Await([&] { return rig_->tidier().trash().size() == 1; }));
  rig_->Advance(absl::Minutes(9));
  rig_->OnLoop([] {});
  EXPECT_EQ(Trashed(), 1u);
  rig_->Advance(absl::Minutes(1));
  EXPECT_TRUE(AwaitNames("trash", {}));
}

TEST_F(TidierTest, WhatIsReadKeepsItsBytesAndTheRestGoes) {
  Make({.keep_last = 1, .disk_bytes = uint64_t{1} << 30});
  bool reading = true;
  rig_->in_use = [&](const AttemptName& attempt) { return reading && attempt.sequence == 1; };
  for (const char* id : {"a", "b", "c"}) Save(id);
  ASSERT_TRUE(AwaitNames("checkpoints", {"c"}));
  ASSERT_TRUE(AwaitNames("retired", {}));
  ASSERT_TRUE(rig_->Await([&] { return Trashed() == 1; }));
  EXPECT_EQ(rig_->List("trash")[0].substr(0, 4), "a~1-");
  EXPECT_TRUE(MakeRoom(1));
  EXPECT_EQ(Trashed(), 1u);
  rig_->OnLoop([&] {
    reading = false;
    rig_->tidier().trash().Sweep();  // As at the end of a load.
  });
  EXPECT_TRUE(AwaitNames("trash", {}));
}

TEST_F(TidierTest, ARoomThatIsNeededEndsTheGraceOfTheOldestAndOfNoMore) {
  Make({.keep_last = 1, .trash_grace = absl::Hours(1), .disk_bytes = uint64_t{1} << 30});
  for (const char* id : {"a", "b", "c", "d"}) Save(id);
  ASSERT_TRUE(rig_->Await([&] { return rig_->tidier().trash().size() == 3; }));
  EXPECT_TRUE(MakeRoom(uint64_t{1} << 30)) << "all of it would not suffice";
  EXPECT_EQ(Trashed(), 3u);
  EXPECT_TRUE(MakeRoom(0)) << "there is enough";
  EXPECT_EQ(Trashed(), 3u);
  EXPECT_TRUE(MakeRoom(1));
  EXPECT_EQ(Trashed(), 2u);
  EXPECT_EQ(rig_->List("trash")[0].substr(0, 2), "b~");
  EXPECT_TRUE(MakeRoom(4 << 20)) << "more than one of them holds";
  EXPECT_EQ(Trashed(), 0u);
  EXPECT_TRUE(MakeRoom(1)) << "there is nothing";
}

TEST_F(TidierTest, AReplacedOneGoesTheSameWay) {
  Make({.trash_grace = absl::Minutes(10)});
  Save("a");
  Save("a", 0, true);
  EXPECT_TRUE(AwaitNames("retired", {}));
  ASSERT_TRUE(rig_->Await([&] { return rig_->tidier().trash().size() == 1; }));
  EXPECT_EQ(rig_->List("checkpoints"), Names({"a"}));
  rig_->Advance(absl::Minutes(10));
  EXPECT_TRUE(AwaitNames("trash", {}));
}

TEST_F(TidierTest, WhatCannotBeRemovedIsTriedAgain) {
  Make({.keep_last = 1, .faults = "unlink:trash@1=error:EIO"});
  Save("a");
  Save("b");
  ASSERT_TRUE(AwaitNames("checkpoints", {"b"}));
  ASSERT_TRUE(rig_->Await(
      [&] { return Trashed() == 1 && rig_->List("trash/" + rig_->List("trash")[0]).size() == 1; }));
  rig_->OnLoop([] {});
  EXPECT_TRUE(rig_->Await([&] {
    rig_->clock().Advance(Trash::kLookEvery);
    return Trashed() == 0;
  }));
}

TEST_F(TidierTest, ForeignFilesInTheTrashStay) {
  Make({.keep_last = 1, .trash_grace = absl::Minutes(10)});
  Save("a");
  Save("b");
  ASSERT_TRUE(rig_->Await([&] { return rig_->tidier().trash().size() == 1; }));
  std::string folder = absl::StrCat("trash/", rig_->List("trash")[0]);
  std::ofstream(absl::StrCat(rig_->path(), "/job/", folder, "/notes.txt")) << "mine";
  std::ofstream(absl::StrCat(rig_->path(), "/job/trash/notes.txt")) << "mine";
  rig_->Advance(absl::Minutes(10));
  EXPECT_TRUE(AwaitNames(folder, {"notes.txt"}));
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(rig_->path(), "/job/trash/notes.txt")));
}

TEST_F(TidierTest, ARootThatRunsFullSaysSoUnlessThereIsALimit) {
  Make({});
  auto commit = [&](uint64_t bytes, uint32_t keep_last) {
    rig_->OnLoop([&] {
      rig_->tidier().Committed(rig_->root_pointer(),
                               {.job = "job", .keep_last = keep_last, .bytes = bytes});
    });
  };
  Save("a");
  commit(uint64_t{1} << 60, 0);
  ASSERT_TRUE(rig_->Await([&] { return !rig_->root().space_warning().empty(); }));
  std::string warning = rig_->OnLoop([&] { return rig_->root().space_warning(); });
  EXPECT_NE(warning.find("\"job\""), std::string::npos) << warning;
  EXPECT_TRUE(rig_->OnLoop([&] { return rig_->root().healthy(); }));
  commit(uint64_t{1} << 60, 3);
  EXPECT_TRUE(rig_->Await([&] { return rig_->root().space_warning().empty(); }));
}

TEST_F(TidierTest, AJobWithoutCheckpointsIsNotWarnedOf) {
  Make({});
  Save("a");
  rig_->OnLoop([&] {
    rig_->tidier().RootStarted(rig_->root_pointer());
    rig_->tidier().Committed(rig_->root_pointer(), {.job = "job", .bytes = uint64_t{1} << 60});
  });
  ASSERT_TRUE(rig_->Await([&] { return !rig_->root().space_warning().empty(); }));
  std::filesystem::remove_all(absl::StrCat(rig_->path(), "/job/checkpoints/a"));
  EXPECT_TRUE(rig_->Await([&] {
    rig_->clock().Advance(Trash::kLookEvery);
    return rig_->root().space_warning().empty();
  }));
}

}  // namespace
}  // namespace ckptd
