// DeleteCheckpoint takes a checkpoint away by a rename into trash/.
#ifndef CKPTD_STORAGE_COMMIT_DELETE_CHECKPOINT_H_
#define CKPTD_STORAGE_COMMIT_DELETE_CHECKPOINT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/commit/action.h"
#include "storage/commit/cleanup.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps:
//  1. Read the manifest in checkpoints/<id>. NotFound if there is none.
//  2. Unless `allow_newest`: read the other manifests; if none is newer: FailedPrecondition. Sync
//     checkpoints/ and attempts/: the newer one may be seen and not be on the disk.
//  3. Rename predecessors of this id from retired/ to trash/, sync trash/ and retired/: or one
//  could be put back.
//  4. Rename checkpoints/<id> to trash/<id>~<attempt>, sync checkpoints/ and trash/. From here on
//  it is deleted.
//  5. If `remove_bytes`: RemoveFolder for each.
class DeleteCheckpoint : public Machine {
 public:
  struct Options {
    std::string job;
    std::string checkpoint_id;
    bool allow_newest = false;
    bool remove_bytes = true;  // Otherwise the caller runs RemoveTrashed() when no reader is left.
  };

  explicit DeleteCheckpoint(Options options);

  // Valid once finished: the manifest of what was deleted, also if removing the bytes failed
  // (trash/ is cleaned later).
  const absl::StatusOr<Manifest>& result() const { return result_; }

 private:
  enum class State {
    kReadManifest,
    kListCheckpoints,
    kReadOther,
    kSyncNewer,
    kSyncAttempts,
    kListRetired,
    kTrashRetired,
    kSyncTrashOfRetired,
    kSyncRetired,
    kTrash,
    kSyncCheckpoints,
    kSyncTrash,
    kRemove,
  };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  std::string LivePath() const;
  void OnManifest(const ActionResult& result);
  void ReadNextOther();
  void ListRetired();
  void OnRetired(const ActionResult& result);
  void TrashNextRetired();
  void TrashLive();
  void RemoveNext();

  Options options_;
  State state_ = State::kReadManifest;
  Manifest manifest_;
  std::vector<std::string> others_;
  std::vector<RetiredName> retired_;
  std::vector<std::string> trashed_;
  std::optional<RemoveFolder> remove_;
  absl::StatusOr<Manifest> result_ = absl::UnknownError("not finished");
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_DELETE_CHECKPOINT_H_
