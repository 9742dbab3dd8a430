#include "storage/commit/begin_attempt.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

std::array<std::string, 5> FoldersOf(absl::string_view job) {
  return {CheckpointsDir(job), AttemptsDir(job), FailedDir(job), RetiredDir(job), TrashDir(job)};
}

// The sequence in a name of attempts/, failed/, retired/ or trash/; 0 if it is not ours.
uint64_t SequenceOf(absl::string_view name) {
  if (std::optional<AttemptName> attempt = ParseAttemptName(name)) return attempt->sequence;
  if (std::optional<RetiredName> retired = ParseRetiredName(name)) return retired->attempt.sequence;
  return 0;
}

bool IsThere(const absl::Status& made) { return made.ok() || absl::IsAlreadyExists(made); }

}  // namespace

BeginAttempt::BeginAttempt(Options options) : options_(std::move(options)) {
  record_ = {.job = options_.job,
             .checkpoint_id = options_.checkpoint_id,
             .step = options_.step,
             .attempt = {.sequence = 0, .random = options_.random},
             .incarnation = options_.incarnation,
             .world_size = options_.world_size,
             .coordinator_node = options_.coordinator_node,
             .replace = options_.replace,
             .begun = options_.begun};
  if (options_.folders_synced) {
    ListNextNames();
  } else {
    MakeFolders();
  }
}

void BeginAttempt::MakeFolders() {
  index_ = 0;
  Go(State::kMakeJobDir, MakeDirAction(JobDir(options_.job), options_.folder_mode));
}

void BeginAttempt::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

std::string BeginAttempt::AttemptPath() const { return AttemptDir(options_.job, record_.attempt); }

std::string BeginAttempt::RecordPath() const { return Join(AttemptPath(), kRecordFile); }

void BeginAttempt::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kMakeJobDir:
      if (!IsThere(status)) break;
      return Go(State::kSyncRoot, SyncDirAction(""));
    case State::kSyncRoot:
      if (!status.ok()) break;
      return MakeNextDir();
    case State::kMakeDirs:
      if (!IsThere(status)) break;
      ++index_;
      return MakeNextDir();
    case State::kSyncJobDir:
      if (!status.ok()) break;
      index_ = 0;
      return ListNextNames();
    case State::kListNames:
      if (IsTakenAway(status)) return MakeFolders();
      if (!status.ok()) break;
      return OnNames(result);
    case State::kListCheckpoints:
      if (IsTakenAway(status)) return MakeFolders();
      if (!status.ok()) break;
      return OnCheckpoints(result);
    case State::kReadManifest:
    case State::kReadRecord:
      return OnCheckpointRead(result);
    default:
      return AdvanceMinting(result);
  }
  result_ = status;
}

void BeginAttempt::AdvanceMinting(const ActionResult& result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kMint:
      if (!status.ok()) {
        result_ = status;
        return;
      }
      return Go(State::kCreateRecord,
                CreateAction(RecordPath(), EncodeAttemptRecord(record_), options_.file_mode));
    case State::kCreateRecord:
      if (!status.ok()) return TakeBack(status);
      if (Mutated(Mutation::kSkipRecordSync)) {
        return Go(State::kCloseRecord, CloseAction(RecordPath()));
      }
      return Go(State::kSyncRecord, SyncAction(RecordPath()));
    case State::kSyncRecord:
      if (!status.ok()) return TakeBack(status);
      return Go(State::kCloseRecord, CloseAction(RecordPath()));
    case State::kCloseRecord:
      if (!status.ok()) return TakeBack(status);
      if (Mutated(Mutation::kSkipAttemptFolderSync)) {
        return Go(State::kSyncAttempts, SyncDirAction(AttemptsDir(options_.job)));
      }
      return Go(State::kSyncAttempt, SyncDirAction(AttemptPath()));
    case State::kSyncAttempt:
      if (!status.ok()) return TakeBack(status);
      if (Mutated(Mutation::kSkipAttemptsSync)) {
        result_ = record_;
        return;
      }
      return Go(State::kSyncAttempts,
                After(SyncDirAction(AttemptsDir(options_.job)), "record-synced"));
    case State::kSyncAttempts:
      if (!status.ok()) return TakeBack(status);
      result_ = record_;
      return;
    case State::kCloseFailedRecord:
      return Go(State::kRemoveRecord, UnlinkAction(RecordPath()));
    case State::kRemoveRecord:
      return Go(State::kRemoveAttempt, RemoveDirAction(AttemptPath()));
    default:
      return;  // kRemoveAttempt: the error is in result_, and what stays is recovery's.
  }
}

// A folder that this process had made is gone: once more from the beginning.
bool BeginAttempt::IsTakenAway(const absl::Status& listed) {
  return absl::IsNotFound(listed) && std::exchange(options_.folders_synced, false);
}

void BeginAttempt::MakeNextDir() {
  auto folders = FoldersOf(options_.job);
  if (index_ == folders.size()) {
    return Go(State::kSyncJobDir, SyncDirAction(JobDir(options_.job)));
  }
  Go(State::kMakeDirs, MakeDirAction(folders[index_], options_.folder_mode));
}

// Names in all folders but checkpoints/, which comes last: what is committed meanwhile is then seen
// there.
void BeginAttempt::ListNextNames() {
  auto folders = FoldersOf(options_.job);
  if (++index_ == folders.size()) {
    return Go(State::kListCheckpoints, ListAction(CheckpointsDir(options_.job)));
  }
  Go(State::kListNames, ListAction(folders[index_]));
}

void BeginAttempt::OnNames(const ActionResult& result) {
  bool in_retired = FoldersOf(options_.job)[index_] == RetiredDir(options_.job);
  for (const DirEntry& entry : result.entries) {
    record_.attempt.sequence = std::max(record_.attempt.sequence, SequenceOf(entry.name));
    std::optional<RetiredName> retired = ParseRetiredName(entry.name);
    if (in_retired && retired && retired->id == options_.checkpoint_id) exists_ = true;
  }
  ListNextNames();
}

void BeginAttempt::OnCheckpoints(const ActionResult& result) {
  std::string own = EncodeName(options_.checkpoint_id);
  for (const DirEntry& entry : result.entries) {
    if (entry.kind == FileKind::kFolder && DecodeName(entry.name)) {
      checkpoints_.push_back(entry.name);
    } else if (entry.name == own) {
      foreign_ = true;
    }
  }
  ReadNextCheckpoint();
}

void BeginAttempt::ReadNextCheckpoint() {
  if (checkpoints_.empty()) return Mint();
  std::string folder = Join(CheckpointsDir(options_.job), checkpoints_.back());
  Go(State::kReadManifest, ReadFileAction(Join(folder, kManifestFile)));
}

// A damaged manifest does not hide the sequence: the record beside it has it too.
void BeginAttempt::OnCheckpointRead(const ActionResult& result) {
  std::optional<AttemptName> attempt;
  if (state_ == State::kReadManifest) {
    absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
    if (result.status.ok() && manifest.ok()) attempt = manifest->attempt;
    if (!attempt.has_value()) {
      std::string folder = Join(CheckpointsDir(options_.job), checkpoints_.back());
      return Go(State::kReadRecord, ReadFileAction(Join(folder, kRecordFile)));
    }
  } else {
    absl::StatusOr<AttemptRecord> record = DecodeAttemptRecord(result.bytes);
    if (result.status.ok() && record.ok()) attempt = record->attempt;
  }
  if (attempt.has_value()) {
    record_.attempt.sequence = std::max(record_.attempt.sequence, attempt->sequence);
  }
  if (checkpoints_.back() == EncodeName(options_.checkpoint_id)) {
    (attempt.has_value() ? exists_ : foreign_) = true;
  }
  checkpoints_.pop_back();
  ReadNextCheckpoint();
}

void BeginAttempt::Mint() {
  if (foreign_) {
    result_ =
        absl::AlreadyExistsError(absl::StrCat(CheckpointDir(options_.job, options_.checkpoint_id),
                                              " exists and is no checkpoint of ours"));
    return;
  }
  if (exists_ && !options_.replace) {
    result_ = absl::AlreadyExistsError(absl::StrCat("checkpoint \"", options_.checkpoint_id,
                                                    "\" of job \"", options_.job, "\" exists"));
    return;
  }
  ++record_.attempt.sequence;
  Go(State::kMint, After(MakeDirAction(AttemptPath(), options_.folder_mode), "minted"));
}

void BeginAttempt::TakeBack(absl::Status why) {
  result_ = std::move(why);
  Go(State::kCloseFailedRecord, CloseAction(RecordPath()));
}

}  // namespace ckptd
