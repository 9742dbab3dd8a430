// The machines one by one, over a simulated disk: what each does when nothing crashes (tests/sim
// has the rest).
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "storage/catalog/catalog.h"
#include "storage/catalog/verdict.h"
#include "storage/commit/begin_attempt.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/decide.h"
#include "storage/commit/delete_checkpoint.h"
#include "storage/commit/finish_node.h"
#include "storage/commit/recover.h"
#include "storage/commit/runner.h"
#include "storage/disk/sim_disk.h"
#include "storage/format/paths.h"
#include "tests/storage/commit/test_save.h"

namespace ckptd {
namespace {

class Protocol : public testing::Test {
 protected:
  absl::StatusOr<AttemptRecord> Begin(absl::string_view id, bool replace = false,
                                      bool folders_synced = false) {
    BeginAttempt::Options options;
    options.job = "job";
    options.checkpoint_id = std::string(id);
    options.incarnation = "one";
    options.world_size = 2;
    options.coordinator_node = "a";
    options.replace = replace;
    options.random = ++random_;
    options.folder_mode = 0777;
    options.file_mode = 0666;
    options.folders_synced = folders_synced;
    BeginAttempt begin(std::move(options));
    runner_.RunToEnd(begin);
    return begin.result();
  }

  void WriteFile(const std::string& path, absl::string_view bytes) {
    absl::StatusOr<std::unique_ptr<File>> file = disk_.Create(path, 0666);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(WriteAll(**file, 0, std::as_bytes(std::span(bytes.data(), bytes.size()))).ok());
  }

  // Writes and finishes what `node` has of the attempt: rank 0 of "a", rank 1 of "b".
  FragmentRef Finish(const AttemptRecord& record, const std::string& node) {
    TestNode written = MakeTestNode(record, node, {node == "a" ? 0u : 1u});
    FinishNode::Options options;
    options.attempt_dir = AttemptDir("job", record.attempt);
    options.fragment = written.fragment;
    options.file_mode = 0666;
    for (const TestNode::Shard& shard : written.shards) {
      options.shards.push_back(Join(options.attempt_dir, shard.name));
      runner_.Run(CreateAction(options.shards.back(), shard.bytes, 0666));
    }
    FinishNode finish(std::move(options));
    runner_.RunToEnd(finish);
    EXPECT_TRUE(finish.result().ok()) << finish.result().status();
    return finish.result().value_or(FragmentRef());
  }

  Decision Commit(const AttemptRecord& record, std::vector<FragmentRef> durable = {}) {
    Decide::Commit commit;
    commit.record = record;
    commit.durable = std::move(durable);
    commit.node = "a";
    commit.file_mode = 0666;
    return Run(Decide(std::move(commit)));
  }

  Decision Abort(const AttemptRecord& record, absl::Status why) {
    Decide::Abort abort;
    abort.record = record;
    abort.node = "a";
    abort.file_mode = 0666;
    abort.outcome.failure.status = std::move(why);
    abort.outcome.failure.rank = 1;
    abort.outcome.failure.phase = "stage";
    return Run(Decide(std::move(abort)));
  }

  Decision Run(Decide decide) {
    runner_.RunToEnd(decide);
    EXPECT_TRUE(decide.decision().has_value());
    return decide.decision().value_or(Decision());
  }

  AttemptRecord Save(absl::string_view id, bool replace = false) {
    absl::StatusOr<AttemptRecord> record = Begin(id, replace);
    EXPECT_TRUE(record.ok()) << record.status();
    FragmentRef a = Finish(*record, "a");
    FragmentRef b = Finish(*record, "b");
    Decision decision = Commit(*record, {a, b});
    EXPECT_EQ(decision.kind, Decision::Kind::kCommitted) << decision.failure.status;
    return *record;
  }

  Recover RunRecover(const std::string& node = "a") {
    Recover recover(
        Recover::Options{.node = node, .file_mode = 0666, .root_label = "r", .now = {}});
    runner_.RunToEnd(recover);
    EXPECT_TRUE(recover.status().ok()) << recover.status();
    return recover;
  }

  std::vector<std::string> NamesIn(const std::string& folder) {
    std::vector<std::string> names;
    absl::StatusOr<std::vector<DirEntry>> entries = disk_.List(folder);
    if (!entries.ok()) return names;
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }

  using Names = std::vector<std::string>;

  SimDisk disk_;
  std::vector<std::string> points_;
  ActionRunner runner_{disk_, [this](absl::string_view point) { points_.emplace_back(point); }};
  uint64_t random_ = 0;
};

TEST_F(Protocol, ASavePassesThePointsInOrder) {
  Save("step-1");
  EXPECT_EQ(points_,
            Names({"minted", "record-synced", "shard-synced", "fragment-synced", "folder-synced",
                   "shard-synced", "fragment-synced", "folder-synced", "manifest-written",
                   "manifest-renamed", "commit-before", "commit-renamed", "commit-synced"}));
  EXPECT_EQ(NamesIn("job/checkpoints/step-1"),
            Names({"ATTEMPT.pb", "MANIFEST.pb", "fragment-a.pb", "fragment-b.pb",
                   "shard-00000-of-00002.safetensors", "shard-00001-of-00002.safetensors"}));
  EXPECT_TRUE(runner_.open_files().empty());
}

TEST_F(Protocol, SequencesGrowOverEverythingThatEverHappened) {
  EXPECT_EQ(Save("x").attempt.sequence, 1u);
  EXPECT_EQ(Save("y").attempt.sequence, 2u);
  absl::StatusOr<AttemptRecord> third = Begin("z");
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->attempt.sequence, 3u);
  Abort(*third, absl::AbortedError("lost"));
  EXPECT_EQ(Save("z").attempt.sequence, 4u);
}

TEST_F(Protocol, FoldersThatWereSyncedAreNotSyncedAgainUnlessOneIsGone) {
  EXPECT_EQ(Begin("x", false, true)->attempt.sequence, 1u) << "there was none at all";
  Save("y");
  size_t synced = disk_.Unsynced().size();
  EXPECT_EQ(synced, 0u);
  EXPECT_EQ(Begin("z", false, true)->attempt.sequence, 3u);
  ASSERT_TRUE(disk_.RemoveDir("job/trash").ok());
  EXPECT_EQ(Begin("z", false, true)->attempt.sequence, 4u);
  EXPECT_EQ(NamesIn("job/trash"), Names());
  EXPECT_TRUE(disk_.Unsynced().empty()) << "what was made anew is synced";
}

TEST_F(Protocol, AnIdThatExistsIsRefusedUnlessReplaced) {
  Save("x");
  EXPECT_TRUE(absl::IsAlreadyExists(Begin("x").status()));
  AttemptRecord second = Save("x", true);
  absl::StatusOr<CheckpointInfo> found = FindCheckpoint(disk_, "job", "x");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest.attempt, second.attempt);
  EXPECT_EQ(NamesIn("job/retired").size(), 1u);
  DropRetired drop("job");
  runner_.RunToEnd(drop);
  EXPECT_TRUE(NamesIn("job/retired").empty());
  ASSERT_EQ(drop.trashed().size(), 1u);
  EmptyTrash empty("job", drop.trashed()[0]);
  runner_.RunToEnd(empty);
  EXPECT_TRUE(empty.removed());
  EXPECT_TRUE(NamesIn("job/trash").empty());
}

TEST_F(Protocol, AFolderThatIsNotOursIsNeverReplaced) {
  Save("x");
  ASSERT_TRUE(disk_.MakeDir("job/checkpoints/mine", 0777).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Begin("mine", true).status()));
  // It came while the attempt was under way.
  absl::StatusOr<AttemptRecord> record = Begin("late", true);
  ASSERT_TRUE(record.ok());
  Finish(*record, "a");
  Finish(*record, "b");
  ASSERT_TRUE(disk_.MakeDir("job/checkpoints/late", 0777).ok());
  Decision decision = Commit(*record);
  EXPECT_EQ(decision.kind, Decision::Kind::kFailed);
  EXPECT_TRUE(absl::IsAlreadyExists(decision.failure.status)) << decision.failure.status;
  EXPECT_TRUE(disk_.Stat("job/checkpoints/late").ok());
}

TEST_F(Protocol, AnOlderAttemptDoesNotReplaceANewerCheckpoint) {
  absl::StatusOr<AttemptRecord> older = Begin("x");
  ASSERT_TRUE(older.ok());
  older->replace = true;
  Finish(*older, "a");
  Finish(*older, "b");
  AttemptRecord newer = Save("x");
  Decision decision = Commit(*older);
  EXPECT_EQ(decision.kind, Decision::Kind::kFailed);
  EXPECT_TRUE(absl::IsAlreadyExists(decision.failure.status)) << decision.failure.status;
  EXPECT_EQ(FindCheckpoint(disk_, "job", "x")->manifest.attempt, newer.attempt);
}

TEST_F(Protocol, AnIncompleteAttemptFailsNamingTheRank) {
  absl::StatusOr<AttemptRecord> record = Begin("x");
  ASSERT_TRUE(record.ok());
  Finish(*record, "a");
  Decision decision = Commit(*record);
  EXPECT_EQ(decision.kind, Decision::Kind::kFailed);
  EXPECT_TRUE(absl::StrContains(decision.failure.status.message(), "rank 1"));
  EXPECT_EQ(ListFailed(disk_, "job")->size(), 1u);
}

TEST_F(Protocol, AShardOfAnotherSizeFailsTheAttempt) {
  absl::StatusOr<AttemptRecord> record = Begin("x");
  ASSERT_TRUE(record.ok());
  Finish(*record, "a");
  Finish(*record, "b");
  std::string shard = Join(AttemptDir("job", record->attempt), ShardFile(1, 2, 0));
  ASSERT_TRUE(disk_.Unlink(shard).ok());
  WriteFile(shard, "short");
  Decision decision = Commit(*record);
  EXPECT_EQ(decision.kind, Decision::Kind::kFailed);
  EXPECT_TRUE(absl::IsDataLoss(decision.failure.status)) << decision.failure.status;
}

TEST_F(Protocol, AForeignSafetensorsFileFailsTheAttemptAndALeftoverIsRemoved) {
  absl::StatusOr<AttemptRecord> record = Begin("x");
  ASSERT_TRUE(record.ok());
  Finish(*record, "a");
  Finish(*record, "b");
  std::string folder = AttemptDir("job", record->attempt);
  WriteFile(Join(folder, "shard-00001.1-of-00002.safetensors"), "left over");
  WriteFile(Join(folder, "MANIFEST.pb.a.tmp"), "left over");
  WriteFile(Join(folder, "notes.txt"), "foreign");
  EXPECT_EQ(Commit(*record).kind, Decision::Kind::kCommitted);
  EXPECT_EQ(NamesIn("job/checkpoints/x").size(), 7u);  // Six of ours and the foreign notes.

  record = Begin("y");
  Finish(*record, "a");
  Finish(*record, "b");
  WriteFile(Join(AttemptDir("job", record->attempt), "model.safetensors"), "foreign");
  Decision decision = Commit(*record);
  EXPECT_EQ(decision.kind, Decision::Kind::kFailed);
  EXPECT_TRUE(absl::StrContains(decision.failure.status.message(), "model.safetensors"));
}

TEST_F(Protocol, AReportThatIsNotWhatIsThereFailsTheAttempt) {
  absl::StatusOr<AttemptRecord> record = Begin("x");
  ASSERT_TRUE(record.ok());
  FragmentRef a = Finish(*record, "a");
  FragmentRef b = Finish(*record, "b");
  ++b.crc32c;
  EXPECT_TRUE(absl::IsDataLoss(Commit(*record, {a, b}).failure.status));
}

TEST_F(Protocol, WhoComesSecondRepeatsTheAnswer) {
  AttemptRecord committed = Save("x");
  EXPECT_EQ(Abort(committed, absl::AbortedError("late")).kind, Decision::Kind::kCommitted);
  EXPECT_EQ(Commit(committed).kind, Decision::Kind::kCommitted);

  absl::StatusOr<AttemptRecord> failed = Begin("y");
  ASSERT_TRUE(failed.ok());
  EXPECT_EQ(Abort(*failed, absl::AbortedError("first")).kind, Decision::Kind::kFailed);
  Decision again = Abort(*failed, absl::AbortedError("second"));
  EXPECT_EQ(again.kind, Decision::Kind::kFailed);
  EXPECT_EQ(again.failure.status.message(), "first");
  EXPECT_EQ(again.failure.rank, 1u);
  EXPECT_EQ(again.failure.phase, "stage");
}

TEST_F(Protocol, WithoutProofTheAnswerIsUnknown) {
  Save("x");
  EXPECT_EQ(Commit(MakeTestRecord("gone", 9, 2)).kind, Decision::Kind::kUnknown);
}

TEST_F(Protocol, RecoveryCommitsWhatIsCompleteAndWaitsForItsOwn) {
  absl::StatusOr<AttemptRecord> complete = Begin("complete");
  Finish(*complete, "a");
  Finish(*complete, "b");
  absl::StatusOr<AttemptRecord> partial = Begin("partial");
  Finish(*partial, "a");
  AttemptName bare{.sequence = 7, .random = 7};
  ASSERT_TRUE(disk_.MakeDir(AttemptDir("job", bare), 0777).ok());

  Recover other = RunRecover("b");
  ASSERT_EQ(other.committed().size(), 1u);
  EXPECT_EQ(other.committed()[0].checkpoint_id, "complete");
  EXPECT_TRUE(other.waiting().empty());  // Another coordinator's.
  ASSERT_EQ(other.failed().size(), 1u);
  EXPECT_EQ(other.failed()[0].record.attempt, bare);

  Recover own = RunRecover("a");
  EXPECT_TRUE(own.committed().empty());
  ASSERT_EQ(own.waiting().size(), 1u);
  EXPECT_EQ(own.waiting()[0].checkpoint_id, "partial");
  EXPECT_TRUE(own.failed().empty());
  EXPECT_EQ(ListFailed(disk_, "job")->size(), 1u);
}

TEST_F(Protocol, RecoveryPutsBackWhatHasNoSuccessor) {
  AttemptRecord record = Save("x");
  std::string retired = RetiredCheckpointDir("job", "x", record.attempt);
  ASSERT_TRUE(disk_.Rename("job/checkpoints/x", retired).ok());
  EXPECT_EQ(FindCheckpoint(disk_, "job", "x")->path, retired);
  EXPECT_TRUE(absl::IsAlreadyExists(Begin("x").status()));
  RunRecover();
  EXPECT_EQ(FindCheckpoint(disk_, "job", "x")->path, "job/checkpoints/x");
  EXPECT_TRUE(NamesIn("job/retired").empty());
}

TEST_F(Protocol, RecoveryReadsNothingThatIsNotAJob) {
  ASSERT_TRUE(disk_.MakeDir("data", 0777).ok());
  WriteFile("data/attempts", "a file");
  for (const char* folder : {"theirs", "theirs/checkpoints", "theirs/checkpoints/epoch-1"}) {
    ASSERT_TRUE(disk_.MakeDir(folder, 0777).ok());
  }
  WriteFile("theirs/checkpoints/epoch-1/shard-00000-of-00001.safetensors", "foreign");
  WriteFile("notes.txt", "foreign");
  Recover recover = RunRecover();
  EXPECT_TRUE(recover.committed().empty());
  EXPECT_EQ(NamesIn("data"), Names({"attempts"}));
  EXPECT_EQ(NamesIn("theirs/checkpoints/epoch-1"), Names({"shard-00000-of-00001.safetensors"}));
}

TEST_F(Protocol, FailedAttemptsKeepTheirRecordsAndTheLastAreKept) {
  for (int i = 0; i < 4; ++i) {
    absl::StatusOr<AttemptRecord> record = Begin("x");
    Finish(*record, "a");
    Abort(*record, absl::AbortedError("no"));
    FinishFailed finish(FinishFailed::Options{
        .job = "job", .attempt = record->attempt, .otherwise = {}, .file_mode = 0666});
    runner_.RunToEnd(finish);
    EXPECT_TRUE(finish.status().ok());
    EXPECT_FALSE(finish.written().has_value());
    EXPECT_EQ(NamesIn(FailedAttemptDir("job", record->attempt)),
              Names({"ATTEMPT.pb", "OUTCOME.pb"}));
  }
  PruneFailed prune("job", 2);
  runner_.RunToEnd(prune);
  EXPECT_TRUE(prune.status().ok()) << prune.status();
  std::vector<Outcome> left = *ListFailed(disk_, "job");
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].record.attempt.sequence, 3u);
}

TEST_F(Protocol, ANodeFinishesAgainOnlyWithTheSameFragment) {
  absl::StatusOr<AttemptRecord> record = Begin("x");
  FragmentRef first = Finish(*record, "a");
  std::string folder = AttemptDir("job", record->attempt);
  WriteFile(Join(folder, "fragment-a.pb.a.tmp"), "left over");
  FinishNode::Options options;
  options.attempt_dir = folder;
  options.fragment = MakeTestNode(*record, "a", {0}).fragment;
  options.file_mode = 0666;
  FinishNode again(options);
  runner_.RunToEnd(again);
  ASSERT_TRUE(again.result().ok()) << again.result().status();
  EXPECT_EQ(again.result()->crc32c, first.crc32c);

  options.fragment.items[0].value = "0.2";
  FinishNode other(options);
  runner_.RunToEnd(other);
  EXPECT_TRUE(absl::IsAlreadyExists(other.result().status())) << other.result().status();
  EXPECT_EQ(NamesIn(folder),
            Names({"ATTEMPT.pb", "fragment-a.pb", "shard-00000-of-00002.safetensors"}));
}

TEST_F(Protocol, TheNewestIsNotDeletedUnlessAllowed) {
  Save("x");
  Save("y");
  auto run = [&](DeleteCheckpoint::Options options) {
    DeleteCheckpoint machine(std::move(options));
    runner_.RunToEnd(machine);
    return machine.result().status();
  };
  EXPECT_TRUE(absl::IsNotFound(run({.job = "job", .checkpoint_id = "none"})));
  EXPECT_TRUE(absl::IsFailedPrecondition(run({.job = "job", .checkpoint_id = "y"})));
  EXPECT_TRUE(run({.job = "job", .checkpoint_id = "x"}).ok());
  EXPECT_TRUE(absl::IsNotFound(run({.job = "job", .checkpoint_id = "x"})));
  EXPECT_EQ(ListTrash(disk_, "job")->size(), 1u);
  EXPECT_TRUE(run({.job = "job", .checkpoint_id = "y", .allow_newest = true}).ok());
  EXPECT_TRUE(NamesIn("job/retired").empty());
  std::vector<RetiredName> trash = *ListTrash(disk_, "job");
  ASSERT_EQ(trash.size(), 2u);
  EXPECT_EQ(trash[0].id, "x");
  for (const RetiredName& name : trash) {
    EmptyTrash empty("job", name);
    runner_.RunToEnd(empty);
    EXPECT_TRUE(empty.removed()) << empty.status();
  }
  EXPECT_TRUE(NamesIn("job/trash").empty());
  EXPECT_TRUE(absl::IsNotFound(Latest(disk_, "job").status()));
}

TEST_F(Protocol, ANewerOneThatCannotBeLoadedDoesNotCount) {
  AttemptRecord good = Save("c1");
  AttemptRecord newer = Save("c2");
  auto run = [&] {
    DeleteCheckpoint machine({.job = "job", .checkpoint_id = "c1"});
    runner_.RunToEnd(machine);
    return machine.result().status();
  };
  const std::string record = "job/checkpoints/c2/ATTEMPT.pb";
  ASSERT_TRUE(disk_.Unlink(record).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(run())) << "without its record it is damaged";
  WriteFile(record, "scrambled");
  EXPECT_TRUE(absl::IsFailedPrecondition(run()));
  ASSERT_TRUE(disk_.Unlink(record).ok());
  WriteFile(record, EncodeAttemptRecord(good));
  EXPECT_TRUE(absl::IsFailedPrecondition(run())) << "the record is of another";
  ASSERT_TRUE(disk_.Unlink(record).ok());
  WriteFile(record, EncodeAttemptRecord(newer));
  ASSERT_TRUE(WriteVerdict(disk_, "job", newer.attempt, {.at = {}, .ok = false}).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(run())) << "it was found damaged";
  EXPECT_EQ(FindCheckpoint(disk_, "job", "c1")->path, "job/checkpoints/c1");
  ASSERT_TRUE(WriteVerdict(disk_, "job", newer.attempt, {.at = {}, .ok = true}).ok());
  EXPECT_TRUE(run().ok());
}

TEST_F(Protocol, WhatIsRetiredStaysUnlessItsSuccessorCanBeLoaded) {
  Save("x");
  AttemptRecord second = Save("x", true);
  auto drop = [&] {
    DropRetired machine("job");
    runner_.RunToEnd(machine);
    EXPECT_TRUE(machine.status().ok()) << machine.status();
    return machine.trashed().size();
  };
  ASSERT_TRUE(disk_.Unlink("job/checkpoints/x/ATTEMPT.pb").ok());
  EXPECT_EQ(drop(), 0u);
  WriteFile("job/checkpoints/x/ATTEMPT.pb", EncodeAttemptRecord(second));
  ASSERT_TRUE(WriteVerdict(disk_, "job", second.attempt, {.at = {}, .ok = false}).ok());
  EXPECT_EQ(drop(), 0u);
  EXPECT_EQ(NamesIn("job/retired").size(), 1u);
  ASSERT_TRUE(WriteVerdict(disk_, "job", second.attempt, {.at = {}, .ok = true}).ok());
  EXPECT_EQ(drop(), 1u);
}

TEST_F(Protocol, WhatIsRetiredUnderTheNameOfAnotherGoesUnderItsOwn) {
  AttemptRecord first = Save("x");
  AttemptRecord second = Save("x", true);
  AttemptName lie{.sequence = 0, .random = 9};
  ASSERT_TRUE(disk_
                  .Rename(RetiredCheckpointDir("job", "x", first.attempt),
                          RetiredCheckpointDir("job", "x", lie))
                  .ok());
  DropRetired drop("job");
  runner_.RunToEnd(drop);
  ASSERT_EQ(drop.trashed().size(), 1u);
  EXPECT_EQ(drop.trashed()[0].attempt, first.attempt);
  EXPECT_TRUE(disk_.Stat(TrashedCheckpointDir("job", "x", first.attempt)).ok());

  AttemptRecord third = Save("x", true);
  ASSERT_TRUE(disk_
                  .Rename(RetiredCheckpointDir("job", "x", second.attempt),
                          RetiredCheckpointDir("job", "x", lie))
                  .ok());
  DeleteCheckpoint machine({.job = "job", .checkpoint_id = "x", .allow_newest = true});
  runner_.RunToEnd(machine);
  ASSERT_EQ(machine.trashed().size(), 2u);
  EXPECT_EQ(machine.trashed()[0].attempt, second.attempt);
  EXPECT_EQ(machine.trashed()[1].attempt, third.attempt);
}

TEST_F(Protocol, WhatIsRetiredAndCannotBeReadStays) {
  Save("x");
  Save("x", true);
  DropRetired drop("job");
  while (drop.Next().has_value()) {
    const Action& action = *drop.Next();
    bool retired =
        action.kind == Action::Kind::kReadFile && absl::StrContains(action.path, "/retired/");
    ActionResult result = runner_.Run(action);
    if (retired) result.status = absl::InternalError("read: EIO");
    drop.Done(std::move(result));
  }
  EXPECT_EQ(drop.status().message(), "read: EIO");
  EXPECT_TRUE(drop.trashed().empty());
  EXPECT_EQ(NamesIn("job/retired").size(), 1u);
}

TEST_F(Protocol, AnotherAttemptThanTheExpectedIsNotDeleted) {
  AttemptName first = Save("x").attempt;
  Save("x", true);
  Save("y");
  DeleteCheckpoint machine({.job = "job", .checkpoint_id = "x", .expected = first});
  runner_.RunToEnd(machine);
  EXPECT_TRUE(absl::IsAborted(machine.result().status())) << machine.result().status();
  EXPECT_TRUE(FindCheckpoint(disk_, "job", "x").ok());
}

TEST_F(Protocol, PredecessorsAreDeletedToo) {
  Save("x");
  AttemptName second = Save("x", true).attempt;
  Save("y");
  ASSERT_EQ(NamesIn("job/retired").size(), 1u);
  DeleteCheckpoint machine({.job = "job", .checkpoint_id = "x"});
  runner_.RunToEnd(machine);
  ASSERT_TRUE(machine.result().ok()) << machine.result().status();
  EXPECT_EQ(machine.result()->attempt, second);
  EXPECT_EQ(machine.trashed().size(), 2u);
  EXPECT_EQ(NamesIn("job/trash").size(), 2u);
  RunRecover();
  EXPECT_EQ(ListCheckpoints(disk_, "job")->size(), 1u);
}

TEST_F(Protocol, ForeignFilesSurviveDeletion) {
  Save("x");
  WriteFile("job/checkpoints/x/notes.txt", "mine");
  DeleteCheckpoint machine({.job = "job", .checkpoint_id = "x", .allow_newest = true});
  runner_.RunToEnd(machine);
  ASSERT_EQ(machine.trashed().size(), 1u);
  EmptyTrash empty("job", machine.trashed()[0]);
  runner_.RunToEnd(empty);
  EXPECT_TRUE(empty.status().ok());
  EXPECT_FALSE(empty.removed());
  std::string trashed = TrashedCheckpointDir("job", "x", machine.result()->attempt);
  EXPECT_EQ(NamesIn(trashed), Names({"notes.txt"}));
}

TEST_F(Protocol, AFailedSyncFailsTheNodeAndClosesItsFiles) {
  absl::StatusOr<AttemptRecord> record = Begin("x");
  TestNode written = MakeTestNode(*record, "a", {0});
  FinishNode::Options options;
  options.attempt_dir = AttemptDir("job", record->attempt);
  options.shards = {Join(options.attempt_dir, written.shards[0].name)};
  options.fragment = written.fragment;
  FinishNode finish(std::move(options));
  ASSERT_EQ(finish.Next()->kind, Action::Kind::kSync);
  finish.Done(
      {.status = absl::InternalError("fsync: EIO"), .bytes = {}, .entries = {}, .info = {}});
  ASSERT_TRUE(finish.Next().has_value());
  EXPECT_EQ(finish.Next()->kind, Action::Kind::kClose);
  finish.Done({});
  EXPECT_FALSE(finish.Next().has_value());
  EXPECT_EQ(finish.result().status().message(), "fsync: EIO");
}

}  // namespace
}  // namespace ckptd
