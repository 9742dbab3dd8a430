#include "storage/commit/cleanup.h"

#include <algorithm>
#include <utility>

#include "storage/base/status.h"
#include "storage/commit/check_attempt.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {

RemoveFolder::RemoveFolder(std::string path, std::set<std::string> keep)
    : path_(std::move(path)), keep_(std::move(keep)) {
  Do(ListAction(path_));
}

void RemoveFolder::Advance(ActionResult result) {
  bool gone = absl::IsNotFound(result.status);
  if (!result.status.ok() && !gone && status_.ok()) status_ = result.status;
  switch (state_) {
    case State::kList:
      if (!result.status.ok()) return;
      for (const DirEntry& entry : result.entries) {
        bool ours = entry.kind != FileKind::kFolder && IsOwnFile(entry.name);
        if (ours && !keep_.contains(entry.name)) {
          names_.push_back(entry.name);
        } else {
          empties_ = false;
        }
      }
      return UnlinkNext();
    case State::kUnlink:
      if (!result.status.ok() && !gone) empties_ = false;
      return UnlinkNext();
    case State::kRemoveDir:
      return;
  }
}

void RemoveFolder::UnlinkNext() {
  if (!names_.empty()) {
    std::string name = std::move(names_.back());
    names_.pop_back();
    state_ = State::kUnlink;
    return Do(UnlinkAction(Join(path_, name)));
  }
  if (!empties_) return;
  state_ = State::kRemoveDir;
  Do(RemoveDirAction(path_));
}

FinishFailed::FinishFailed(Options options)
    : options_(std::move(options)), folder_(FailedAttemptDir(options_.job, options_.attempt)) {
  Go(State::kReadOutcome, ReadFileAction(Join(folder_, kOutcomeFile)));
}

void FinishFailed::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

void FinishFailed::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  std::string outcome_path = Join(folder_, kOutcomeFile);
  if (state_ == State::kRemove) {
    remove_->Done(std::move(result));
    if (DoNextOf(*remove_)) return;
    if (!std::exchange(again_, false)) {
      if (status_.ok()) status_ = remove_->status();
      return;
    }
    status_ = absl::OkStatus();
    return Go(State::kReadOutcome, ReadFileAction(std::move(outcome_path)));
  }
  if (state_ == State::kCreate && absl::IsAlreadyExists(status)) {
    // The one that has made the attempt fail writes it itself.
    written_.reset();
    return StartRemove();
  }
  bool may_fail = state_ == State::kReadRecord || absl::IsNotFound(status);
  if (!status.ok() && !may_fail) {
    status_ = status;
    if (remove_) return;
    again_ = true;  // Perhaps the shards take the room; what went wrong, they go.
    return StartRemove();
  }
  switch (state_) {
    case State::kReadOutcome:
      if (status.ok() && IsReadable(DecodeOutcome(result.bytes).status())) return StartRemove();
      return Go(State::kReadRecord, ReadFileAction(Join(folder_, kRecordFile)));
    case State::kReadRecord:
      written_ = options_.otherwise;
      written_->record.job = options_.job;
      written_->record.attempt = options_.attempt;
      if (absl::StatusOr<AttemptRecord> record = DecodeAttemptRecord(result.bytes);
          status.ok() && record.ok()) {
        written_->record = *std::move(record);
      }
      return Go(State::kRemoveOutcome, UnlinkAction(std::move(outcome_path)));
    case State::kRemoveOutcome:
      return Go(State::kCreate, CreateAction(std::move(outcome_path), EncodeOutcome(*written_),
                                             options_.file_mode));
    case State::kCreate:
      if (!status.ok()) return;  // The folder is gone.
      return Go(State::kSync, SyncAction(std::move(outcome_path)));
    case State::kSync:
      return Go(State::kClose, CloseAction(std::move(outcome_path)));
    case State::kClose:
      return Go(State::kSyncFolder, SyncDirAction(folder_));
    default:  // kSyncFolder
      return StartRemove();
  }
}

// One of a newer version is none of our business.
bool FinishFailed::IsReadable(const absl::Status& decoded) {
  return decoded.ok() || absl::IsFailedPrecondition(decoded);
}

void FinishFailed::StartRemove() {
  remove_.emplace(folder_, std::set<std::string>{kRecordFile, kOutcomeFile});
  state_ = State::kRemove;
  DoNextOf(*remove_);
}

PruneFailed::PruneFailed(std::string job, size_t kept) : job_(std::move(job)), kept_(kept) {
  Do(ListAction(FailedDir(job_)));
}

void PruneFailed::Advance(ActionResult result) {
  if (remove_.has_value()) {
    remove_->Done(std::move(result));
    if (DoNextOf(*remove_)) return;
    if (status_.ok()) status_ = remove_->status();
    return RemoveNext();
  }
  if (!result.status.ok()) {
    if (!absl::IsNotFound(result.status)) status_ = result.status;
    return;
  }
  for (const DirEntry& entry : result.entries) {
    std::optional<AttemptName> name = ParseAttemptName(entry.name);
    if (name && entry.kind == FileKind::kFolder) names_.push_back(*name);
  }
  std::sort(names_.begin(), names_.end(), std::greater<>());
  RemoveNext();
}

void PruneFailed::RemoveNext() {
  if (names_.size() <= kept_) return;
  remove_.emplace(FailedAttemptDir(job_, names_.back()), std::set<std::string>());
  names_.pop_back();
  DoNextOf(*remove_);
}

DropRetired::DropRetired(std::string job) : job_(std::move(job)) {
  Go(State::kList, ListAction(RetiredDir(job_)));
}

void DropRetired::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

std::string DropRetired::RetiredPath() const {
  return RetiredCheckpointDir(job_, names_.back().id, names_.back().attempt);
}

void DropRetired::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kList:
      for (const DirEntry& entry : result.entries) {
        std::optional<RetiredName> name = ParseRetiredName(entry.name);
        if (name && entry.kind == FileKind::kFolder) names_.push_back(*std::move(name));
      }
      if (!status.ok() && !absl::IsNotFound(status)) status_ = status;
      return LookAtSuccessor();
    case State::kLookAtSuccessor:
      look_->Done(std::move(result));
      if (DoNextOf(*look_)) return;
      if (!look_->result().ok()) return Skip(absl::OkStatus());
      return Go(State::kReadRetired, ReadFileAction(Join(RetiredPath(), kManifestFile)));
    case State::kReadRetired:
      return OnRetired(result);
    case State::kSyncCheckpoints:
      if (!status.ok()) return Skip(status);
      return Go(State::kSyncAttempts, SyncDirAction(AttemptsDir(job_)));
    case State::kSyncAttempts:
      if (!status.ok()) return Skip(status);
      return Go(State::kRename, RenameAction(RetiredPath(), TrashedCheckpointDir(
                                                                job_, names_.back().id, attempt_)));
    case State::kRename:
      if (!status.ok()) return Skip(absl::IsNotFound(status) ? absl::OkStatus() : status);
      return Go(State::kSyncRetired, SyncDirAction(RetiredDir(job_)));
    case State::kSyncRetired:
      if (!status.ok()) return Skip(status);
      return Go(State::kSyncTrash, SyncDirAction(TrashDir(job_)));
    case State::kSyncTrash:
      if (!status.ok()) return Skip(status);
      trashed_.push_back({names_.back().id, attempt_});
      return Skip(absl::OkStatus());
  }
}

// One that cannot be read may be of another attempt than its name says, perhaps of a newer one.
void DropRetired::OnRetired(const ActionResult& result) {
  if (!result.status.ok() && !absl::IsNotFound(result.status)) return Skip(result.status);
  absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
  bool decoded = result.status.ok() && manifest.ok();
  attempt_ = decoded ? manifest->attempt : names_.back().attempt;
  if (attempt_ >= look_->result()->attempt) return Skip(absl::OkStatus());
  Go(State::kSyncCheckpoints, SyncDirAction(CheckpointsDir(job_)));
}

void DropRetired::LookAtSuccessor() {
  if (names_.empty()) return;
  look_.emplace(job_, names_.back().id);
  state_ = State::kLookAtSuccessor;
  DoNextOf(*look_);
}

void DropRetired::Skip(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  names_.pop_back();
  LookAtSuccessor();
}

EmptyTrash::EmptyTrash(std::string job, RetiredName name)
    : job_(std::move(job)),
      name_(std::move(name)),
      to_sync_({CheckpointsDir(job_), RetiredDir(job_), TrashDir(job_)}) {
  SyncNext();
}

void EmptyTrash::SyncNext() {
  if (!to_sync_.empty() && !Mutated(Mutation::kEmptyTrashBeforeSync)) {
    return Do(SyncDirAction(to_sync_.back()));
  }
  remove_.emplace(TrashedCheckpointDir(job_, name_.id, name_.attempt), std::set<std::string>());
  state_ = State::kRemove;
  DoNextOf(*remove_);
}

void EmptyTrash::Advance(ActionResult result) {
  switch (state_) {
    case State::kSync:
      // A folder that is not there brings nothing back.
      if (!result.status.ok() && !absl::IsNotFound(result.status)) {
        status_ = result.status;
        return;
      }
      to_sync_.pop_back();
      return SyncNext();
    case State::kRemove:
      remove_->Done(std::move(result));
      if (DoNextOf(*remove_)) return;
      status_ = remove_->status();
      if (!status_.ok()) return;
      state_ = State::kStat;
      return Do(StatAction(TrashedCheckpointDir(job_, name_.id, name_.attempt)));
    case State::kStat:
      removed_ = absl::IsNotFound(result.status);
      if (!removed_) return;
      state_ = State::kRemoveVerdict;
      return Do(UnlinkAction(VerdictFile(job_, name_.attempt)));
    case State::kRemoveVerdict:
      return;  // Most have none.
  }
}

}  // namespace ckptd
