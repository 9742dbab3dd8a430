// Machines that delete: only files that we make, only in folders that no reader is shown, never
// what is foreign.
#ifndef CKPTD_STORAGE_COMMIT_CLEANUP_H_
#define CKPTD_STORAGE_COMMIT_CLEANUP_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/commit/action.h"
#include "storage/commit/look_at_checkpoint.h"
#include "storage/format/paths.h"
#include "storage/format/records.h"

namespace ckptd {

inline constexpr size_t kFailedKeptPerJob = 100;

// Deletes the files of ours in one folder, except `keep`, and then the folder if nothing is left in
// it.
//
// Steps: 1. List. 2. Unlink each. 3. Unless something was kept or is foreign, remove the folder.
// What is gone already is no error; after another error it goes on with the rest.
class RemoveFolder : public Machine {
 public:
  RemoveFolder(std::string path, std::set<std::string> keep);

  const absl::Status& status() const { return status_; }  // Valid once finished: the first error.

 private:
  enum class State { kList, kUnlink, kRemoveDir };

  void Advance(ActionResult result) override;
  void UnlinkNext();

  std::string path_;
  std::set<std::string> keep_;
  State state_ = State::kList;
  std::vector<std::string> names_;
  bool empties_ = true;
  absl::Status status_;
};

// Brings failed/<attempt> to its final form: an outcome record that can be read, and no shards.
//
// Steps: 1. Read the outcome. 2. If there is none that can be read: read the attempt's record,
// remove the outcome, write `otherwise` and sync it and the folder. 3. RemoveFolder, keeping the
// two records. If steps 1 or 2 fail (the disk may be too full): step 3, then once more from step 1.
// After an error the whole machine may be run again.
class FinishFailed : public Machine {
 public:
  struct Options {
    std::string job;
    AttemptName attempt;
    Outcome otherwise;  // Its record is filled in.
    uint32_t file_mode = 0;
  };

  explicit FinishFailed(Options options);

  const absl::Status& status() const { return status_; }              // Valid once finished.
  const std::optional<Outcome>& written() const { return written_; }  // If step 2 had to write one.

 private:
  enum class State {
    kReadOutcome,
    kReadRecord,
    kRemoveOutcome,
    kCreate,
    kSync,
    kClose,
    kSyncFolder,
    kRemove
  };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  void StartRemove();
  static bool IsReadable(const absl::Status& decoded);

  Options options_;
  std::string folder_;
  State state_ = State::kReadOutcome;
  std::optional<Outcome> written_;
  bool again_ = false;  // The outcome could not be written; after the shards are gone it may be.
  std::optional<RemoveFolder> remove_;
  absl::Status status_;
};

// Deletes the oldest attempts in failed/ beyond the last `kept`. Their names must be those of
// attempts.
class PruneFailed : public Machine {
 public:
  explicit PruneFailed(std::string job, size_t kept = kFailedKeptPerJob);

  const absl::Status& status() const { return status_; }  // Valid once finished: the first error.

 private:
  void Advance(ActionResult result) override;
  void RemoveNext();

  std::string job_;
  size_t kept_;
  std::vector<AttemptName> names_;
  std::optional<RemoveFolder> remove_;
  absl::Status status_;
};

// Takes retired checkpoints whose successor is in place and can be loaded away from the readers.
//
// Steps:
//  1. List retired/. For each name of ours:
//  2. Look at checkpoints/<id> (LookAtCheckpoint). Unless it can be loaded, leave what is retired.
//  3. Read the manifest of what is retired, which says which attempt it is: the folder's name may
//  be
//     that of another. Unless the successor is of a higher attempt, leave it.
//  4. Sync checkpoints/ and attempts/: another may have published the successor and not synced it.
//  5. Rename the retired one to trash/, under its own attempt, sync retired/ and trash/.
class DropRetired : public Machine {
 public:
  explicit DropRetired(std::string job);

  const absl::Status& status() const { return status_; }  // Valid once finished: the first error.
  // What lies in trash/ now because of this machine.
  const std::vector<RetiredName>& trashed() const { return trashed_; }

 private:
  enum class State {
    kList,
    kLookAtSuccessor,
    kReadRetired,
    kSyncCheckpoints,
    kSyncAttempts,
    kRename,
    kSyncRetired,
    kSyncTrash,
  };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  void OnRetired(const ActionResult& result);
  void LookAtSuccessor();
  void Skip(const absl::Status& status);
  std::string RetiredPath() const;

  std::string job_;
  State state_ = State::kList;
  std::vector<RetiredName> names_;
  std::optional<LookAtCheckpoint> look_;
  AttemptName attempt_;  // Of the retired one that is looked at.
  std::vector<RetiredName> trashed_;
  absl::Status status_;
};

// Deletes what lies in trash/ under one name. The caller knows that nobody reads it.
//
// Steps:
//  1. Sync trash/, retired/ and checkpoints/: the rename that brought it here may be seen and not
//     be on the disk, and a power cut must not bring back a checkpoint without its bytes.
//  2. RemoveFolder. A removal that was interrupted is finished by the next one.
//  3. If the folder is gone: remove its verdict, if it has one.
class EmptyTrash : public Machine {
 public:
  EmptyTrash(std::string job, RetiredName name);

  const absl::Status& status() const { return status_; }  // Valid once finished: the first error.
  // Valid once finished. False, without an error: something in the folder is foreign.
  bool removed() const { return removed_; }

 private:
  enum class State { kSync, kRemove, kStat, kRemoveVerdict };

  void Advance(ActionResult result) override;
  void SyncNext();

  std::string job_;
  RetiredName name_;
  State state_ = State::kSync;
  std::vector<std::string> to_sync_;
  std::optional<RemoveFolder> remove_;
  bool removed_ = false;
  absl::Status status_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_CLEANUP_H_
