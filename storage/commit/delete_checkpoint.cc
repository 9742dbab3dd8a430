#include "storage/commit/delete_checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/commit/mutation.h"

namespace ckptd {

DeleteCheckpoint::DeleteCheckpoint(Options options) : options_(std::move(options)) {
  Go(State::kReadManifest, ReadFileAction(Join(LivePath(), kManifestFile)));
}

void DeleteCheckpoint::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

std::string DeleteCheckpoint::What() const {
  return absl::StrCat("checkpoint \"", options_.checkpoint_id, "\" of job \"", options_.job, "\"");
}

std::string DeleteCheckpoint::LivePath() const {
  return CheckpointDir(options_.job, options_.checkpoint_id);
}

std::string DeleteCheckpoint::RetiredPath() const {
  return RetiredCheckpointDir(options_.job, options_.checkpoint_id, manifest_.attempt);
}

void DeleteCheckpoint::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kReadManifest:
      return OnManifest(result);
    case State::kListCheckpoints:
      if (!status.ok()) break;
      for (const DirEntry& entry : result.entries) {
        std::optional<std::string> id = DecodeName(entry.name);
        if (!id || entry.kind != FileKind::kFolder || *id == options_.checkpoint_id) continue;
        others_.push_back(*std::move(id));
      }
      return LookAtNextOther();
    case State::kLookAtOther:
      look_->Done(std::move(result));
      if (!DoNextOf(*look_)) OnOther();
      return;
    case State::kSyncNewer:
      if (!status.ok()) break;
      return Go(State::kSyncAttempts, SyncDirAction(AttemptsDir(options_.job)));
    case State::kSyncAttempts:
      if (!status.ok()) break;
      return Retire();
    case State::kRetire:
      if (!status.ok()) break;
      if (Mutated(Mutation::kDeleteWhatIsThere)) return TrashIt();
      return Go(State::kSyncRetired, SyncDirAction(RetiredDir(options_.job)));
    case State::kPutBack:
      // Where it cannot be put back it stays readable in retired/.
      put_back_->Done(std::move(result));
      DoNextOf(*put_back_);
      return;
    default:
      return AdvanceTrash(result);
  }
  result_ = status;
}

// Steps 3 to 6, once it is in retired/.
void DeleteCheckpoint::AdvanceTrash(const ActionResult& result) {
  const absl::Status& status = result.status;
  bool gone = state_ == State::kTrashOlder && absl::IsNotFound(status);
  if (state_ != State::kReadRetired && !status.ok() && !gone) return GiveUp(status);
  switch (state_) {
    case State::kSyncRetired:
      return Go(State::kSyncCheckpoints, SyncDirAction(CheckpointsDir(options_.job)));
    case State::kSyncCheckpoints:
      return Go(State::kListRetired, ListAction(RetiredDir(options_.job)));
    case State::kListRetired:
      for (const DirEntry& entry : result.entries) {
        std::optional<RetiredName> name = ParseRetiredName(entry.name);
        bool ours = name && entry.kind == FileKind::kFolder;
        if (ours && name->id == options_.checkpoint_id) retired_.push_back(entry.name);
      }
      return ReadNextRetired();
    case State::kReadRetired:
      return OnRetired(result);
    case State::kTrashOlder:
      if (!gone) trashed_.push_back({options_.checkpoint_id, older_.back().attempt});
      older_.pop_back();
      return TrashNextOlder();
    case State::kSyncTrashOfOlder:
      return Go(State::kSyncRetiredOfOlder, SyncDirAction(RetiredDir(options_.job)));
    case State::kSyncRetiredOfOlder:
      return TrashIt();
    case State::kTrash:
      trashed_.push_back({options_.checkpoint_id, manifest_.attempt});
      return Go(State::kSyncTrash, SyncDirAction(TrashDir(options_.job)));
    case State::kSyncTrash:
      return Go(State::kSyncRetiredOfTrash, SyncDirAction(RetiredDir(options_.job)));
    default:  // kSyncRetiredOfTrash
      result_ = manifest_;
      return;
  }
}

void DeleteCheckpoint::OnManifest(const ActionResult& result) {
  if (absl::IsNotFound(result.status)) {
    result_ = absl::NotFoundError(absl::StrCat("there is no ", What()));
    return;
  }
  absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
  absl::Status status = result.status.ok() ? manifest.status() : result.status;
  if (!status.ok()) {
    result_ = WithContext(status, What());
    return;
  }
  manifest_ = *std::move(manifest);
  if (options_.expected && *options_.expected != manifest_.attempt) {
    result_ = absl::AbortedError(absl::StrCat(What(), " was replaced meanwhile"));
    return;
  }
  if (options_.allow_newest) return Retire();
  Go(State::kListCheckpoints, ListAction(CheckpointsDir(options_.job)));
}

void DeleteCheckpoint::LookAtNextOther() {
  if (others_.empty()) {
    result_ = absl::FailedPreconditionError(absl::StrCat(
        "checkpoint \"", options_.checkpoint_id, "\" is the newest committed of job \"",
        options_.job, "\": none that can be loaded is newer"));
    return;
  }
  look_.emplace(options_.job, others_.back());
  others_.pop_back();
  state_ = State::kLookAtOther;
  DoNextOf(*look_);
}

void DeleteCheckpoint::OnOther() {
  const absl::StatusOr<Manifest>& other = look_->result();
  if (!other.ok() || other->attempt <= manifest_.attempt) return LookAtNextOther();
  if (Mutated(Mutation::kKeepNewestUnsynced)) return Retire();
  Go(State::kSyncNewer, SyncDirAction(CheckpointsDir(options_.job)));
}

void DeleteCheckpoint::Retire() { Go(State::kRetire, RenameAction(LivePath(), RetiredPath())); }

void DeleteCheckpoint::ReadNextRetired() {
  if (!retired_.empty()) {
    std::string folder = Join(RetiredDir(options_.job), retired_.back());
    return Go(State::kReadRetired, ReadFileAction(Join(folder, kManifestFile)));
  }
  if (!found_) return GiveUp(absl::AbortedError(absl::StrCat(What(), " was replaced meanwhile")));
  if (older_.empty()) return TrashIt();
  TrashNextOlder();
}

// The manifest says which attempt it is; the folder's name may be that of another. What cannot be
// read cannot be put back and is left alone.
void DeleteCheckpoint::OnRetired(const ActionResult& result) {
  std::string name = std::move(retired_.back());
  retired_.pop_back();
  absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
  if (!result.status.ok() || !manifest.ok() || manifest->checkpoint_id != options_.checkpoint_id) {
    return ReadNextRetired();
  }
  if (manifest->attempt > manifest_.attempt) {
    return GiveUp(absl::AbortedError(absl::StrCat(What(), " was replaced meanwhile")));
  }
  if (manifest->attempt < manifest_.attempt) {
    older_.push_back({std::move(name), manifest->attempt});
  } else {
    found_ = true;
  }
  ReadNextRetired();
}

void DeleteCheckpoint::TrashNextOlder() {
  if (older_.empty()) return Go(State::kSyncTrashOfOlder, SyncDirAction(TrashDir(options_.job)));
  const Older& older = older_.back();
  Go(State::kTrashOlder,
     RenameAction(Join(RetiredDir(options_.job), older.folder_name),
                  TrashedCheckpointDir(options_.job, options_.checkpoint_id, older.attempt)));
}

void DeleteCheckpoint::TrashIt() {
  Go(State::kTrash,
     RenameAction(RetiredPath(),
                  TrashedCheckpointDir(options_.job, options_.checkpoint_id, manifest_.attempt)));
}

void DeleteCheckpoint::GiveUp(absl::Status why) {
  result_ = absl::IsNotFound(why)
                ? absl::AbortedError(absl::StrCat(What(), " was put back meanwhile"))
                : std::move(why);
  if (state_ == State::kSyncTrash || state_ == State::kSyncRetiredOfTrash) return;
  put_back_.emplace(options_.job, options_.checkpoint_id);
  state_ = State::kPutBack;
  DoNextOf(*put_back_);
}

}  // namespace ckptd
