#include "storage/catalog/catalog.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/catalog/verdict.h"
#include "storage/disk/sim_disk.h"
#include "storage/format/paths.h"
#include "tests/storage/commit/test_save.h"

namespace ckptd {
namespace {

void WriteFile(Disk& disk, const std::string& path, absl::string_view bytes) {
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    disk.MakeDir(path.substr(0, end), 0777).IgnoreError();
  }
  disk.Unlink(path).IgnoreError();
  absl::StatusOr<std::unique_ptr<File>> file = disk.Create(path, 0666);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(WriteAll(**file, 0, std::as_bytes(std::span(bytes.data(), bytes.size()))).ok());
}

AttemptRecord Plant(Disk& disk, absl::string_view id, uint64_t sequence) {
  AttemptRecord record = MakeTestRecord(id, sequence, 1);
  PlantTestCheckpoint(disk, CheckpointDir("job", id), record, MakeTestNode(record, "a", {0}));
  return record;
}

void PlantUnfinished(Disk& disk, absl::string_view id, uint64_t sequence) {
  AttemptRecord record = MakeTestRecord(id, sequence, 1);
  std::string folder = AttemptDir("job", record.attempt);
  WriteFile(disk, Join(folder, kRecordFile), EncodeAttemptRecord(record));
  WriteFile(disk, Join(folder, ShardFile(0, 1, 0)), "12345");
}

TEST(Catalog, ARootWithoutJobsIsEmpty) {
  SimDisk disk;
  ASSERT_TRUE(disk.MakeDir("foreign", 0777).ok());
  ASSERT_TRUE(disk.MakeDir(".ckptd", 0777).ok());
  EXPECT_TRUE(ListJobs(disk)->empty());
  EXPECT_TRUE(ListCheckpoints(disk, "job")->empty());
  EXPECT_TRUE(ListFailed(disk, "job")->empty());
  EXPECT_TRUE(ListUnfinished(disk, "job")->empty());
  EXPECT_TRUE(absl::IsNotFound(Latest(disk, "job").status()));
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint(disk, "job", "x").status()));
}

TEST(Catalog, AJobIsWhatHoldsSomethingOfOurs) {
  SimDisk disk;
  const std::string attempt = ToString(MakeTestRecord("x", 1, 1).attempt);
  WriteFile(disk, "foreign/checkpoints/their-model/weights.bin", "foreign");
  WriteFile(disk, "foreign/attempts/first/log", "foreign");
  WriteFile(disk, "foreign/failed/notes", "foreign");
  WriteFile(disk, "deleted/checkpoints/notes", "foreign");
  WriteFile(disk, absl::StrCat("deleted/trash/x~", attempt, "/MANIFEST.pb"), "");
  EXPECT_TRUE(ListJobs(disk)->empty());
  EXPECT_EQ(*ListJobFolders(disk), std::vector<std::string>({"deleted", "foreign"}));

  Plant(disk, "x", 1);
  WriteFile(disk, "damaged/checkpoints/x/MANIFEST.pb", "nonsense");
  WriteFile(disk, "replacing/checkpoints/notes", "foreign");
  WriteFile(disk, absl::StrCat("replacing/retired/x~", attempt, "/MANIFEST.pb"), "");
  WriteFile(disk, absl::StrCat("tried/attempts/", attempt, "/notes"), "");
  WriteFile(disk, absl::StrCat("failing/failed/", attempt, "/notes"), "");
  EXPECT_EQ(*ListJobs(disk),
            std::vector<std::string>({"damaged", "failing", "job", "replacing", "tried"}));
}

TEST(Catalog, CheckpointsAreListedBySequenceNotByName) {
  SimDisk disk;
  Plant(disk, "step 2/é", 3);
  Plant(disk, "z", 1);
  WriteFile(disk, "job/checkpoints/notes.txt", "foreign");
  WriteFile(disk, "job/checkpoints/not-ours/data", "foreign");
  EXPECT_EQ(*ListJobs(disk), std::vector<std::string>({"job"}));
  std::vector<CheckpointInfo> list = *ListCheckpoints(disk, "job");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].id, "z");
  EXPECT_EQ(list[1].id, "step 2/é");
  EXPECT_TRUE(list[1].status.ok()) << list[1].status;
  EXPECT_EQ(list[1].record.step, 30);
  EXPECT_EQ(list[1].manifest.files, 1u);
  EXPECT_NE(list[1].committed, absl::Time());
  EXPECT_EQ(Latest(disk, "job")->id, "step 2/é");
  EXPECT_EQ(LoadFragments(disk, list[1])->size(), 1u);
}

TEST(Catalog, ADamagedManifestIsAnErrorEntryAndNeverTheLatest) {
  SimDisk disk;
  Plant(disk, "good", 1);
  Plant(disk, "bad", 2);
  WriteFile(disk, "job/checkpoints/bad/MANIFEST.pb", "nonsense");
  std::vector<CheckpointInfo> list = *ListCheckpoints(disk, "job");
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].id, "bad");
  EXPECT_FALSE(list[1].status.ok());
  EXPECT_EQ(Latest(disk, "job")->id, "good");
  EXPECT_TRUE(absl::IsDataLoss(FindCheckpoint(disk, "job", "bad").status()));
  ASSERT_TRUE(disk.Unlink("job/checkpoints/bad/MANIFEST.pb").ok());
  EXPECT_TRUE(absl::IsDataLoss(FindCheckpoint(disk, "job", "bad").status()));
  WriteFile(disk, "job/checkpoints/good/MANIFEST.pb", "nonsense");
  EXPECT_TRUE(absl::IsDataLoss(Latest(disk, "job").status()));
}

TEST(Catalog, ACheckpointInAnotherPlaceIsDamaged) {
  SimDisk disk;
  Plant(disk, "x", 1);
  ASSERT_TRUE(disk.Rename("job/checkpoints/x", "job/checkpoints/y").ok());
  EXPECT_TRUE(absl::IsDataLoss(FindCheckpoint(disk, "job", "y").status()));
}

TEST(Catalog, NothingThereAndOnlyUnfinishedThereAreTwoErrors) {
  SimDisk disk;
  PlantUnfinished(disk, "x", 4);
  absl::Status latest = Latest(disk, "job").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(latest)) << latest;
  EXPECT_TRUE(absl::StrContains(latest.message(), "x (attempt 4-")) << latest;
  absl::Status found = FindCheckpoint(disk, "job", "x").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(found)) << found;
  EXPECT_TRUE(absl::StrContains(found.message(), "not committed yet")) << found;
  EXPECT_TRUE(absl::IsNotFound(FindCheckpoint(disk, "job", "y").status()));

  std::vector<UnfinishedAttempt> unfinished = *ListUnfinished(disk, "job");
  ASSERT_EQ(unfinished.size(), 1u);
  EXPECT_TRUE(unfinished[0].status.ok());
  ASSERT_EQ(unfinished[0].files.size(), 2u);
  EXPECT_EQ(unfinished[0].files[1].bytes, 5u);
}

TEST(Catalog, AnIdThatIsBeingReplacedIsListedOnce) {
  SimDisk disk;
  AttemptRecord record = Plant(disk, "x", 1);
  std::string retired = RetiredCheckpointDir("job", "x", record.attempt);
  ASSERT_TRUE(disk.MakeDir("job/retired", 0777).ok());
  ASSERT_TRUE(disk.Rename("job/checkpoints/x", retired).ok());
  ASSERT_EQ(ListCheckpoints(disk, "job")->size(), 1u);
  EXPECT_EQ(FindCheckpoint(disk, "job", "x")->path, retired);
  Plant(disk, "x", 2);
  ASSERT_EQ(ListCheckpoints(disk, "job")->size(), 1u);
  EXPECT_EQ(FindCheckpoint(disk, "job", "x")->manifest.attempt.sequence, 2u);
}

TEST(Catalog, AFailedAttemptWithoutAReadableOutcomeIsListedAllTheSame) {
  SimDisk disk;
  AttemptRecord record = MakeTestRecord("x", 1, 1);
  WriteFile(disk, Join(FailedAttemptDir("job", record.attempt), kOutcomeFile), "torn");
  std::vector<Outcome> failed = *ListFailed(disk, "job");
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].record.attempt, record.attempt);
  EXPECT_FALSE(failed[0].failure.status.ok());
}

TEST(Catalog, AChangedFragmentIsDataLoss) {
  SimDisk disk;
  Plant(disk, "x", 1);
  WriteFile(disk, "job/checkpoints/x/fragment-a.pb", "changed");
  absl::StatusOr<CheckpointInfo> info = FindCheckpoint(disk, "job", "x");
  ASSERT_TRUE(info.ok());
  EXPECT_TRUE(absl::IsDataLoss(LoadFragments(disk, *info).status()));
}

TEST(Catalog, AVerdictIsKeptAndReplaced) {
  SimDisk disk;
  AttemptRecord record = Plant(disk, "x", 1);
  EXPECT_FALSE(FindCheckpoint(disk, "job", "x")->verdict.has_value());
  absl::Time at = absl::FromUnixSeconds(1000);
  ASSERT_TRUE(WriteVerdict(disk, "job", record.attempt, {.at = at, .ok = false}).ok());
  EXPECT_FALSE(FindCheckpoint(disk, "job", "x")->verdict->ok);
  ASSERT_TRUE(WriteVerdict(disk, "job", record.attempt, {.at = at, .ok = true}).ok());
  std::optional<Verdict> verdict = FindCheckpoint(disk, "job", "x")->verdict;
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->ok);
  EXPECT_EQ(verdict->at, at);
  WriteFile(disk, VerdictFile("job", record.attempt), "{\"ok\": 3}");
  EXPECT_FALSE(FindCheckpoint(disk, "job", "x")->verdict.has_value());
}

}  // namespace
}  // namespace ckptd
