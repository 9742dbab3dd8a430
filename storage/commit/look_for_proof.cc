#include "storage/commit/look_for_proof.h"

#include <utility>

#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd {

LookForProof::LookForProof(AttemptRecord record) : record_(std::move(record)) {
  // Without a record nobody knows the id, and nothing can have been published.
  if (record_.checkpoint_id.empty()) {
    Go(State::kStatFailed, StatAction(FailedAttemptDir(record_.job, record_.attempt)));
  } else {
    Go(State::kCheckpoint, ReadManifest(CheckpointDir(record_.job, record_.checkpoint_id)));
  }
}

void LookForProof::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

Action LookForProof::ReadManifest(const std::string& folder) const {
  return ReadFileAction(Join(folder, kManifestFile));
}

bool LookForProof::IsOurs(const ActionResult& result) {
  if (!result.status.ok()) {
    if (!absl::IsNotFound(result.status) && status_.ok()) status_ = result.status;
    return false;
  }
  absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
  if (!manifest.ok() || manifest->attempt != record_.attempt) return false;
  manifest_ = *std::move(manifest);
  return true;
}

void LookForProof::Advance(ActionResult result) {
  switch (state_) {
    case State::kCheckpoint:
      if (IsOurs(result)) return FoundIn(Found::kCommitted, CheckpointsDir(record_.job));
      return Go(State::kListRetired, ListAction(RetiredDir(record_.job)));
    case State::kListRetired:
      ListNames(result);
      return ReadNextRetired();
    case State::kRetired:
      if (IsOurs(result)) return FoundIn(Found::kCommitted, RetiredDir(record_.job));
      return ReadNextRetired();
    case State::kCheckpointAgain:
      if (IsOurs(result)) return FoundIn(Found::kCommitted, CheckpointsDir(record_.job));
      return Go(State::kListTrash, ListAction(TrashDir(record_.job)));
    case State::kListTrash:
      ListNames(result);
      return ReadNextTrashed();
    case State::kTrash:
      if (IsOurs(result)) return FoundIn(Found::kCommitted, TrashDir(record_.job));
      return ReadNextTrashed();
    case State::kStatFailed:
      if (result.status.ok() && result.info.kind == FileKind::kFolder) {
        std::string folder = FailedAttemptDir(record_.job, record_.attempt);
        return Go(State::kReadOutcome, ReadFileAction(Join(folder, kOutcomeFile)));
      }
      if (!absl::IsNotFound(result.status) && status_.ok()) status_ = result.status;
      return;
    case State::kReadOutcome:
      if (absl::StatusOr<Outcome> outcome = DecodeOutcome(result.bytes);
          result.status.ok() && outcome.ok()) {
        outcome_ = *std::move(outcome);
      }
      return FoundIn(Found::kFailed, FailedDir(record_.job));
    case State::kSyncHolder:
      if (!result.status.ok()) return Lose(result.status);
      return Go(State::kSyncAttempts, SyncDirAction(AttemptsDir(record_.job)));
    case State::kSyncAttempts:
      if (!result.status.ok()) Lose(result.status);
      return;
  }
}

void LookForProof::ListNames(const ActionResult& result) {
  names_.clear();
  for (const DirEntry& entry : result.entries) {
    std::optional<RetiredName> name = ParseRetiredName(entry.name);
    if (name && name->id == record_.checkpoint_id) names_.push_back(entry.name);
  }
}

void LookForProof::ReadNextRetired() {
  if (names_.empty()) {
    return Go(State::kCheckpointAgain,
              ReadManifest(CheckpointDir(record_.job, record_.checkpoint_id)));
  }
  std::string name = std::move(names_.back());
  names_.pop_back();
  Go(State::kRetired, ReadManifest(Join(RetiredDir(record_.job), name)));
}

void LookForProof::ReadNextTrashed() {
  if (names_.empty()) {
    return Go(State::kStatFailed, StatAction(FailedAttemptDir(record_.job, record_.attempt)));
  }
  std::string name = std::move(names_.back());
  names_.pop_back();
  Go(State::kTrash, ReadManifest(Join(TrashDir(record_.job), name)));
}

void LookForProof::FoundIn(Found found, std::string holder) {
  status_ = absl::OkStatus();
  found_ = found;
  Go(State::kSyncHolder, SyncDirAction(std::move(holder)));
}

// A proof that may not stay is none.
void LookForProof::Lose(absl::Status why) {
  status_ = std::move(why);
  found_ = Found::kNothing;
}

}  // namespace ckptd
