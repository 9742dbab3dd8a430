#include "storage/commit/delete_checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd {

DeleteCheckpoint::DeleteCheckpoint(Options options) : options_(std::move(options)) {
  Go(State::kReadManifest, ReadFileAction(Join(LivePath(), kManifestFile)));
}

void DeleteCheckpoint::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

std::string DeleteCheckpoint::LivePath() const {
  return CheckpointDir(options_.job, options_.checkpoint_id);
}

void DeleteCheckpoint::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kReadManifest:
      return OnManifest(result);
    case State::kListCheckpoints:
      if (!status.ok()) break;
      for (const DirEntry& entry : result.entries) {
        if (entry.kind == FileKind::kFolder && DecodeName(entry.name)) {
          others_.push_back(entry.name);
        }
      }
      return ReadNextOther();
    case State::kReadOther: {
      absl::StatusOr<Manifest> other = DecodeManifest(result.bytes);
      if (!status.ok() || !other.ok() || other->attempt <= manifest_.attempt) {
        return ReadNextOther();
      }
      return Go(State::kSyncNewer, SyncDirAction(CheckpointsDir(options_.job)));
    }
    case State::kSyncNewer:
      if (!status.ok()) break;
      return Go(State::kSyncAttempts, SyncDirAction(AttemptsDir(options_.job)));
    case State::kSyncAttempts:
      if (!status.ok()) break;
      return ListRetired();
    case State::kListRetired:
      if (!status.ok() && !absl::IsNotFound(status)) break;
      return OnRetired(result);
    case State::kTrashRetired:
      if (!status.ok() && !absl::IsNotFound(status)) break;
      retired_.pop_back();
      return TrashNextRetired();
    case State::kSyncTrashOfRetired:
      if (!status.ok()) break;
      return Go(State::kSyncRetired, SyncDirAction(RetiredDir(options_.job)));
    case State::kSyncRetired:
      if (!status.ok()) break;
      return TrashLive();
    case State::kTrash:
      if (!status.ok()) break;
      return Go(State::kSyncCheckpoints, SyncDirAction(CheckpointsDir(options_.job)));
    case State::kSyncCheckpoints:
      if (!status.ok()) break;
      return Go(State::kSyncTrash, SyncDirAction(TrashDir(options_.job)));
    case State::kSyncTrash:
      if (!status.ok()) break;
      result_ = manifest_;
      return RemoveNext();
    case State::kRemove:
      remove_->Done(std::move(result));
      if (!DoNextOf(*remove_)) RemoveNext();
      return;
  }
  result_ = status;
}

void DeleteCheckpoint::OnManifest(const ActionResult& result) {
  std::string what =
      absl::StrCat("checkpoint \"", options_.checkpoint_id, "\" of job \"", options_.job, "\"");
  if (absl::IsNotFound(result.status)) {
    result_ = absl::NotFoundError(absl::StrCat("there is no ", what));
    return;
  }
  absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
  absl::Status status = result.status.ok() ? manifest.status() : result.status;
  if (!status.ok()) {
    result_ = WithContext(status, what);
    return;
  }
  manifest_ = *std::move(manifest);
  if (options_.allow_newest) return ListRetired();
  Go(State::kListCheckpoints, ListAction(CheckpointsDir(options_.job)));
}

void DeleteCheckpoint::ReadNextOther() {
  if (others_.empty()) {
    result_ = absl::FailedPreconditionError(absl::StrCat("checkpoint \"", options_.checkpoint_id,
                                                         "\" is the newest committed of job \"",
                                                         options_.job, "\""));
    return;
  }
  std::string folder = Join(CheckpointsDir(options_.job), others_.back());
  others_.pop_back();
  Go(State::kReadOther, ReadFileAction(Join(folder, kManifestFile)));
}

void DeleteCheckpoint::ListRetired() {
  Go(State::kListRetired, ListAction(RetiredDir(options_.job)));
}

void DeleteCheckpoint::OnRetired(const ActionResult& result) {
  for (const DirEntry& entry : result.entries) {
    std::optional<RetiredName> name = ParseRetiredName(entry.name);
    if (name && name->id == options_.checkpoint_id) retired_.push_back(*std::move(name));
  }
  if (retired_.empty()) return TrashLive();
  TrashNextRetired();
}

void DeleteCheckpoint::TrashNextRetired() {
  if (retired_.empty()) {
    return Go(State::kSyncTrashOfRetired, SyncDirAction(TrashDir(options_.job)));
  }
  const RetiredName& name = retired_.back();
  trashed_.push_back(TrashedCheckpointDir(options_.job, name.id, name.attempt));
  Go(State::kTrashRetired,
     RenameAction(RetiredCheckpointDir(options_.job, name.id, name.attempt), trashed_.back()));
}

void DeleteCheckpoint::TrashLive() {
  trashed_.push_back(TrashedCheckpointDir(options_.job, options_.checkpoint_id, manifest_.attempt));
  Go(State::kTrash, RenameAction(LivePath(), trashed_.back()));
}

void DeleteCheckpoint::RemoveNext() {
  if (trashed_.empty() || !options_.remove_bytes) return;
  remove_.emplace(trashed_.back(), std::set<std::string>());
  trashed_.pop_back();
  state_ = State::kRemove;
  DoNextOf(*remove_);
}

}  // namespace ckptd
