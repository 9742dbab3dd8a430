// BeginAttempt mints an attempt: sequence, folder, record, all of it on stable storage before any
// rank stages a byte.
#ifndef CKPTD_STORAGE_COMMIT_BEGIN_ATTEMPT_H_
#define CKPTD_STORAGE_COMMIT_BEGIN_ATTEMPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/commit/action.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps:
//  1. Make the job's folder and sync the root; make checkpoints, attempts, failed, retired and
//  trash and sync the job's
//     folder. Folders that are there are synced too: that they are seen does not prove that they
//     stay. Left out if this process has done it before (`folders_synced`), unless one is missing.
//  2. Find the highest sequence ever used: names in attempts, failed, retired and trash, records in
//  checkpoints.
//  3. Refuse an id that exists: AlreadyExists, unless `replace`. A folder of that id that is no
//  checkpoint of ours is refused
//     always, and so is the name of an id that is only in retired/.
//  4. Make attempts/<sequence>-<random>                                             point: minted
//  5. Create the record in it, sync it, close it; sync the folder, then attempts/   point:
//  record-synced
//
// An error in 4 or 5 takes record and folder away again (and leaves them to recovery where that
// fails).
class BeginAttempt : public Machine {
 public:
  struct Options {
    std::string job;
    std::string checkpoint_id;
    int64_t step = 0;
    std::string incarnation;
    uint32_t world_size = 0;
    std::string coordinator_node;
    bool replace = false;
    uint64_t random = 0;       // The attempt's random id; new at every call.
    absl::Time begun;          // For people.
    uint32_t folder_mode = 0;  // As in open(2), for every folder that is made.
    uint32_t file_mode = 0;
    bool folders_synced = false;  // An earlier attempt of this job in this root was begun.
  };

  explicit BeginAttempt(Options options);

  // Valid once finished.
  const absl::StatusOr<AttemptRecord>& result() const { return result_; }

 private:
  enum class State {
    kMakeJobDir,
    kSyncRoot,
    kMakeDirs,
    kSyncJobDir,
    kListNames,
    kListCheckpoints,
    kReadManifest,
    kReadRecord,
    kMint,
    kCreateRecord,
    kSyncRecord,
    kCloseRecord,
    kSyncAttempt,
    kSyncAttempts,
    kCloseFailedRecord,
    kRemoveRecord,
    kRemoveAttempt,
  };

  void Advance(ActionResult result) override;
  void AdvanceMinting(const ActionResult& result);
  void Go(State state, Action action);
  void MakeFolders();
  void MakeNextDir();
  bool IsTakenAway(const absl::Status& listed);
  void ListNextNames();
  void OnNames(const ActionResult& result);
  void OnCheckpoints(const ActionResult& result);
  void ReadNextCheckpoint();
  void OnCheckpointRead(const ActionResult& result);
  void Mint();
  void TakeBack(absl::Status why);
  std::string RecordPath() const;
  std::string AttemptPath() const;

  Options options_;
  State state_ = State::kMakeJobDir;
  size_t index_ = 0;                      // Of the folder or the checkpoint at hand.
  std::vector<std::string> checkpoints_;  // Folder names in checkpoints/.
  bool exists_ = false;                   // There is a checkpoint of this id …
  bool foreign_ = false;                  // … or a folder of that name which is none.
  AttemptRecord record_;
  absl::StatusOr<AttemptRecord> result_ = absl::UnknownError("not finished");
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_BEGIN_ATTEMPT_H_
