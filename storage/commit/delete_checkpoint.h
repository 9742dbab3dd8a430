// DeleteCheckpoint takes a checkpoint away by a rename into trash/, where its bytes wait for
// EmptyTrash.
#ifndef CKPTD_STORAGE_COMMIT_DELETE_CHECKPOINT_H_
#define CKPTD_STORAGE_COMMIT_DELETE_CHECKPOINT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/commit/action.h"
#include "storage/commit/look_at_checkpoint.h"
#include "storage/commit/put_back.h"
#include "storage/format/paths.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps:
//  1. Read the manifest in checkpoints/<id>. NotFound if there is none; Aborted if it is not the
//     attempt that was expected.
//  2. Unless `allow_newest`: look at the others (LookAtCheckpoint); if none that can be loaded is
//     newer: FailedPrecondition. Sync checkpoints/ and attempts/: the newer one may be seen and not
//     be on the disk.
//  3. Rename checkpoints/<id> to retired/<id>~<attempt>, sync retired/ and checkpoints/. Readers
//     look there too, and recovery puts back what it finds there: nothing is lost yet.
//  4. Read the manifests of this id in retired/. If one is newer than that of step 1, it was
//     replaced in between and is not what was to be deleted: put it back (PutBack), Aborted.
//  5. Rename its predecessors from retired/ to trash/, sync trash/ and retired/: or one could be
//     put back in its place.
//  6. Rename it to trash/<id>~<attempt>, sync trash/ and retired/. From here on it is deleted.
//
// An error in 3 to 5 puts it back; where that fails, recovery does.
class DeleteCheckpoint : public Machine {
 public:
  struct Options {
    std::string job;
    std::string checkpoint_id;
    bool allow_newest = false;
    std::optional<AttemptName> expected = std::nullopt;  // Absent: whatever is there.
  };

  explicit DeleteCheckpoint(Options options);

  // Valid once finished: the manifest of what was deleted.
  const absl::StatusOr<Manifest>& result() const { return result_; }
  // What lies in trash/ now because of this machine, also after an error.
  const std::vector<RetiredName>& trashed() const { return trashed_; }

 private:
  enum class State {
    kReadManifest,
    kListCheckpoints,
    kLookAtOther,
    kSyncNewer,
    kSyncAttempts,
    kRetire,
    kSyncRetired,
    kSyncCheckpoints,
    kListRetired,
    kReadRetired,
    kTrashOlder,
    kSyncTrashOfOlder,
    kSyncRetiredOfOlder,
    kTrash,
    kSyncTrash,
    kSyncRetiredOfTrash,
    kPutBack,
  };

  // A predecessor in retired/. The folder's name may be that of another attempt.
  struct Older {
    std::string folder_name;
    AttemptName attempt;
  };

  void Advance(ActionResult result) override;
  void AdvanceTrash(const ActionResult& result);
  void Go(State state, Action action);
  std::string What() const;
  std::string LivePath() const;
  std::string RetiredPath() const;
  void OnManifest(const ActionResult& result);
  void LookAtNextOther();
  void OnOther();
  void Retire();
  void ReadNextRetired();
  void OnRetired(const ActionResult& result);
  void TrashNextOlder();
  void TrashIt();
  void GiveUp(absl::Status why);

  Options options_;
  State state_ = State::kReadManifest;
  Manifest manifest_;
  std::vector<std::string> others_;  // Ids in checkpoints/ still to be looked at.
  std::optional<LookAtCheckpoint> look_;
  std::vector<std::string> retired_;  // Of this id, in retired/, still to be read.
  std::vector<Older> older_;          // Of them, those that go first.
  bool found_ = false;                // What was retired is what was to be deleted.
  std::vector<RetiredName> trashed_;
  std::optional<PutBack> put_back_;
  absl::StatusOr<Manifest> result_ = absl::UnknownError("not finished");
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_DELETE_CHECKPOINT_H_
