#include "storage/commit/decide.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

// How often the place of the id may be taken again before the attempt gives up.
constexpr int kPublishTriesMax = 8;

Failure MakeFailure(absl::Status why, absl::string_view node, absl::string_view phase) {
  Failure failure;
  failure.status = std::move(why);
  failure.node = std::string(node);
  failure.phase = std::string(phase);
  return failure;
}

}  // namespace

Decide::Decide(Commit commit)
    : record_(std::move(commit.record)),
      node_(std::move(commit.node)),
      file_mode_(commit.file_mode),
      outcome_(std::move(commit.otherwise)),
      leave_incomplete_(commit.leave_incomplete),
      folder_(AttemptDir(record_.job, record_.attempt)) {
  outcome_.record = record_;
  check_.emplace(CheckAttempt::Options{
      .record = record_, .folder = folder_, .node = node_, .durable = std::move(commit.durable)});
  state_ = State::kCheck;
  DoNextOf(*check_);
}

Decide::Decide(Abort abort)
    : record_(std::move(abort.record)),
      node_(std::move(abort.node)),
      file_mode_(abort.file_mode),
      outcome_(std::move(abort.outcome)),
      folder_(AttemptDir(record_.job, record_.attempt)) {
  outcome_.record = record_;
  StartAbort();
}

void Decide::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

std::string Decide::FolderPath(absl::string_view name) const { return Join(folder_, name); }

std::string Decide::TemporaryPath() const {
  return FolderPath(TemporaryName(kManifestFile, node_));
}

void Decide::Advance(ActionResult result) {
  if (state_ <= State::kSyncFolder) {
    AdvanceFiles(std::move(result));
  } else if (state_ <= State::kSyncAttempts) {
    AdvancePublish(result);
  } else {
    AdvanceAbort(std::move(result));
  }
}

// Steps 1 to 4.

void Decide::AdvanceFiles(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kCheck:
      check_->Done(std::move(result));
      if (!DoNextOf(*check_)) OnChecked();
      return;
    case State::kRemoveLeftover:
      if (!status.ok() && !absl::IsNotFound(status)) return GiveUp(status, "commit");
      return RemoveNextLeftover();
    case State::kCreateTemporary:
      if (!status.ok()) return GiveUp(status, "commit");
      if (Mutated(Mutation::kSkipManifestSync)) {
        return Go(State::kCloseTemporary, CloseAction(TemporaryPath()));
      }
      Go(State::kSyncTemporary, SyncAction(TemporaryPath()));
      return;
    case State::kSyncTemporary:
      sync_error_ = status;
      return Go(State::kCloseTemporary, CloseAction(TemporaryPath()));
    case State::kCloseTemporary:
      if (!sync_error_.ok()) return GiveUp(sync_error_, "sync");
      if (!status.ok()) return GiveUp(status, "sync");
      return Go(
          State::kRenameTemporary,
          Before("manifest-written", After(RenameAction(TemporaryPath(), FolderPath(kManifestFile)),
                                           "manifest-renamed")));
    case State::kRenameTemporary:
      if (!status.ok()) return GiveUp(status, "commit");
      if (Mutated(Mutation::kSkipManifestFolderSync)) return LookAtPlace();
      return Go(State::kSyncFolder, SyncDirAction(folder_));
    default:  // kSyncFolder
      if (!status.ok()) return GiveUp(status, "sync");
      return LookAtPlace();
  }
}

void Decide::OnChecked() {
  if (!check_->status().ok()) {
    if (!leave_incomplete_) return GiveUp(check_->status(), "commit");
    return Tell({.kind = Decision::Kind::kLeft,
                 .failure = MakeFailure(check_->status(), node_, "commit")});
  }
  AttemptRecord record = record_;
  if (Mutated(Mutation::kCommitBeforeLastFragment)) {
    record.world_size = 0;
    for (const FragmentFile& file : check_->fragments()) {
      record.world_size += file.fragment.ranks.size();
    }
  }
  absl::StatusOr<Manifest> manifest = MakeManifest(record, check_->fragments());
  if (!manifest.ok()) return GiveUp(manifest.status(), "commit");
  manifest_ = *std::move(manifest);
  leftovers_ = check_->leftovers();
  check_.reset();
  RemoveNextLeftover();
}

void Decide::RemoveNextLeftover() {
  if (leftovers_.empty()) return WriteManifest();
  std::string name = std::move(leftovers_.back());
  leftovers_.pop_back();
  Go(State::kRemoveLeftover, UnlinkAction(FolderPath(name)));
}

void Decide::WriteManifest() {
  Go(State::kCreateTemporary, CreateAction(TemporaryPath(), EncodeManifest(manifest_), file_mode_));
}

// Steps 5 to 7.

void Decide::AdvancePublish(const ActionResult& result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kStatExisting:
      if (absl::IsNotFound(status)) return Publish();
      if (!status.ok()) return GiveUp(status, "commit");
      if (!record_.replace) return GiveUp(TakenError("exists"), "commit");
      return Go(State::kReadExisting, ReadFileAction(Join(place(), kManifestFile)));
    case State::kReadExisting:
    case State::kReadExistingRecord:
      return OnExisting(result);
    case State::kRetire:
      if (absl::IsNotFound(status) || absl::IsAlreadyExists(status)) return LookAtPlace();
      if (!status.ok()) return GiveUp(status, "commit");
      return Go(State::kSyncRetired, SyncDirAction(RetiredDir(record_.job)));
    case State::kSyncRetired:
      if (!status.ok()) return GiveUp(status, "sync");
      return Go(State::kSyncCheckpointsOfRetired, SyncDirAction(CheckpointsDir(record_.job)));
    case State::kSyncCheckpointsOfRetired:
      if (!status.ok()) return GiveUp(status, "sync");
      return Publish();
    case State::kCommit:
      if (absl::IsAlreadyExists(status)) return LookAtPlace();
      if (!status.ok()) return GiveUp(status, "commit");
      return OnCommitted();
    case State::kSyncCheckpoints:
      if (!status.ok()) return Unknown(status, "sync");
      return SyncAttemptsOfCommit();
    default:  // kSyncAttempts
      if (!status.ok()) return Unknown(status, "sync");
      return TellCommitted();
  }
}

std::string Decide::place() const { return CheckpointDir(record_.job, record_.checkpoint_id); }

absl::Status Decide::TakenError(absl::string_view why) const {
  return absl::AlreadyExistsError(absl::StrCat("checkpoint \"", record_.checkpoint_id,
                                               "\" of job \"", record_.job, "\" ", why));
}

void Decide::LookAtPlace() {
  if (++publish_tries_ > kPublishTriesMax) {
    return GiveUp(TakenError("is taken again and again"), "commit");
  }
  Go(State::kStatExisting, StatAction(place()));
}

// A damaged checkpoint can be replaced as long as one of its records says which attempt it was.
void Decide::OnExisting(const ActionResult& result) {
  if (state_ == State::kReadExisting) {
    absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
    if (result.status.ok() && manifest.ok()) return Retire(manifest->attempt);
    return Go(State::kReadExistingRecord, ReadFileAction(Join(place(), kRecordFile)));
  }
  if (absl::IsNotFound(result.status)) {
    // Perhaps it was renamed between the two looks; else this ends after a few rounds.
    return LookAtPlace();
  }
  absl::StatusOr<AttemptRecord> record = DecodeAttemptRecord(result.bytes);
  if (result.status.ok() && record.ok()) return Retire(record->attempt);
  GiveUp(TakenError("is there and cannot be read"), "commit");
}

void Decide::Retire(const AttemptName& existing) {
  if (existing >= record_.attempt) {
    return GiveUp(TakenError(absl::StrCat("is of the newer attempt ", ToString(existing))),
                  "commit");
  }
  std::string retired = RetiredCheckpointDir(record_.job, record_.checkpoint_id, existing);
  Go(State::kRetire, RenameAction(place(), std::move(retired)));
}

void Decide::Publish() {
  // THE COMMIT POINT: this rename, and nothing else, makes the attempt a checkpoint.
  Go(State::kCommit,
     Before("commit-before", After(RenameAction(folder_, place()), "commit-renamed")));
}

void Decide::OnCommitted() {
  if (Mutated(Mutation::kToldBeforeSync)) TellCommitted();
  if (Mutated(Mutation::kSkipCheckpointsSync)) return SyncAttemptsOfCommit();
  Go(State::kSyncCheckpoints, SyncDirAction(CheckpointsDir(record_.job)));
}

void Decide::SyncAttemptsOfCommit() {
  if (Mutated(Mutation::kSkipAttemptsSyncOnCommit)) return TellCommitted();
  Go(State::kSyncAttempts, After(SyncDirAction(AttemptsDir(record_.job)), "commit-synced"));
}

void Decide::TellCommitted() { Tell({.kind = Decision::Kind::kCommitted, .manifest = manifest_}); }

// Steps 8 to 12.

void Decide::GiveUp(absl::Status why, absl::string_view phase) {
  outcome_.failure = MakeFailure(std::move(why), node_, phase);
  StartAbort();
}

void Decide::StartAbort() {
  if (Mutated(Mutation::kAbortByDelete)) {
    delete_.emplace(folder_, std::set<std::string>());
    state_ = State::kDelete;
    DoNextOf(*delete_);
    return;
  }
  std::string failed = FailedAttemptDir(record_.job, record_.attempt);
  Go(State::kAbort, Before("abort-before", After(RenameAction(folder_, failed), "abort-renamed")));
}

void Decide::AdvanceAbort(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kAbort:
      return OnAbortRenamed(status);
    case State::kCreateOutcome:
      // Without an outcome record the attempt has failed all the same; recovery writes another.
      if (!status.ok()) return SyncFailedAttempt();
      return Go(State::kSyncOutcome, SyncAction(OutcomePath()));
    case State::kSyncOutcome:
      return Go(State::kCloseOutcome, CloseAction(OutcomePath()));
    case State::kCloseOutcome:
      return SyncFailedAttempt();
    case State::kSyncFailedAttempt:
      return SyncFailed();
    case State::kSyncFailed:
      if (!status.ok()) return Unknown(status, "sync");
      return SyncAttemptsOfAbort();
    case State::kSyncAttemptsOfAbort:
      if (!status.ok()) return Unknown(status, "sync");
      return StartPutBack(FailedDecision());
    case State::kLook:
      look_->Done(std::move(result));
      if (!DoNextOf(*look_)) OnLooked();
      return;
    case State::kPutBack:
      // What it cannot put back stays readable in retired/, and recovery tries again.
      put_back_->Done(std::move(result));
      if (!DoNextOf(*put_back_)) Tell(std::move(to_tell_));
      return;
    default:  // kDelete
      delete_->Done(std::move(result));
      if (!DoNextOf(*delete_)) SyncAttemptsOfAbort();
      return;
  }
}

std::string Decide::OutcomePath() const {
  return Join(FailedAttemptDir(record_.job, record_.attempt), kOutcomeFile);
}

Decision Decide::FailedDecision() const {
  return {.kind = Decision::Kind::kFailed, .failure = outcome_.failure};
}

void Decide::OnAbortRenamed(const absl::Status& status) {
  if (status.ok()) {
    return Go(State::kCreateOutcome,
              CreateAction(OutcomePath(), EncodeOutcome(outcome_), file_mode_));
  }
  if (!absl::IsNotFound(status)) return Unknown(status, "settle");
  if (Mutated(Mutation::kFailedWithoutProof)) return Tell(FailedDecision());
  look_.emplace(record_);
  state_ = State::kLook;
  DoNextOf(*look_);
}

void Decide::SyncFailedAttempt() {
  Go(State::kSyncFailedAttempt, SyncDirAction(FailedAttemptDir(record_.job, record_.attempt)));
}

void Decide::SyncFailed() {
  if (Mutated(Mutation::kSkipFailedSync)) return SyncAttemptsOfAbort();
  Go(State::kSyncFailed, SyncDirAction(FailedDir(record_.job)));
}

void Decide::SyncAttemptsOfAbort() {
  if (Mutated(Mutation::kSkipAttemptsSyncOnAbort)) return StartPutBack(FailedDecision());
  Go(State::kSyncAttemptsOfAbort, After(SyncDirAction(AttemptsDir(record_.job)), "abort-synced"));
}

void Decide::OnLooked() {
  switch (look_->found()) {
    case LookForProof::Found::kCommitted:
      return StartPutBack({.kind = Decision::Kind::kCommitted, .manifest = look_->manifest()});
    case LookForProof::Found::kFailed:
      if (look_->outcome().has_value()) outcome_.failure = look_->outcome()->failure;
      return StartPutBack(FailedDecision());
    case LookForProof::Found::kNothing:
      break;
  }
  if (!look_->status().ok()) return Unknown(look_->status(), "settle");
  Unknown(absl::UnknownError(absl::StrCat(folder_, " is gone, and nothing says where to")),
          "settle");
}

void Decide::StartPutBack(Decision to_tell) {
  if (!record_.replace) return Tell(std::move(to_tell));
  to_tell_ = std::move(to_tell);
  put_back_.emplace(record_.job, record_.checkpoint_id);
  state_ = State::kPutBack;
  DoNextOf(*put_back_);
}

void Decide::Unknown(absl::Status why, absl::string_view phase) {
  Tell({.kind = Decision::Kind::kUnknown, .failure = MakeFailure(std::move(why), node_, phase)});
}

void Decide::Tell(Decision decision) { decision_ = std::move(decision); }

}  // namespace ckptd
