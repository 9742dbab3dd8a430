#include "storage/commit/put_back.h"

#include <utility>

#include "storage/format/paths.h"

namespace ckptd {

PutBack::PutBack(std::string job, std::string checkpoint_id)
    : job_(std::move(job)), checkpoint_id_(std::move(checkpoint_id)) {
  Go(State::kStat, StatAction(CheckpointDir(job_, checkpoint_id_)));
}

void PutBack::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

void PutBack::End(absl::Status status) {
  status_ = std::move(status);
  best_.reset();
}

void PutBack::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kStat:
      if (!absl::IsNotFound(status)) return End(status);
      return Go(State::kList, ListAction(RetiredDir(job_)));
    case State::kList:
      if (!status.ok()) return End(absl::IsNotFound(status) ? absl::OkStatus() : status);
      for (const DirEntry& entry : result.entries) {
        std::optional<RetiredName> name = ParseRetiredName(entry.name);
        if (name && name->id == checkpoint_id_) names_.push_back(entry.name);
      }
      return ReadNext();
    case State::kRead:
      OnRead(result);
      return ReadNext();
    case State::kRename:
      // Another has published or put back: this id has its checkpoint.
      if (absl::IsAlreadyExists(status) || absl::IsNotFound(status)) return End(absl::OkStatus());
      if (!status.ok()) return End(status);
      return Go(State::kSyncCheckpoints, SyncDirAction(CheckpointsDir(job_)));
    case State::kSyncCheckpoints:
      if (!status.ok()) return End(status);
      return Go(State::kSyncRetired, SyncDirAction(RetiredDir(job_)));
    case State::kSyncRetired:
      if (!status.ok()) End(status);
      return;
  }
}

void PutBack::ReadNext() {
  if (!names_.empty()) {
    std::string folder = Join(RetiredDir(job_), names_.back());
    return Go(State::kRead, ReadFileAction(Join(folder, kManifestFile)));
  }
  if (!best_.has_value()) return;
  Go(State::kRename,
     RenameAction(Join(RetiredDir(job_), best_name_), CheckpointDir(job_, checkpoint_id_)));
}

// The manifest says which attempt it is; the folder's name may be that of the one it was meant to
// replace.
void PutBack::OnRead(const ActionResult& result) {
  std::string name = std::move(names_.back());
  names_.pop_back();
  if (!result.status.ok()) return;
  absl::StatusOr<Manifest> manifest = DecodeManifest(result.bytes);
  if (!manifest.ok() || manifest->checkpoint_id != checkpoint_id_) return;
  if (best_.has_value() && manifest->attempt < best_->attempt) return;
  best_name_ = std::move(name);
  best_ = *std::move(manifest);
}

}  // namespace ckptd
