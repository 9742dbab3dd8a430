// Decide ends an attempt: committed or failed, once and for all, whoever else tries at the same
// time.
//
// Commit and abort take away the same folder, attempts/<attempt>, by a rename; exactly one of them
// succeeds. Who comes second looks for proof and repeats that answer.
#ifndef CKPTD_STORAGE_COMMIT_DECIDE_H_
#define CKPTD_STORAGE_COMMIT_DECIDE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/commit/action.h"
#include "storage/commit/check_attempt.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/look_for_proof.h"
#include "storage/commit/put_back.h"
#include "storage/format/records.h"

namespace ckptd {

struct Decision {
  enum class Kind {
    kCommitted,  // `manifest` is what was published.
    kFailed,     // `failure` says why; if another has failed it, what that one wrote.
    kUnknown,  // Storage gave no answer; `failure` says where. Decide again later, perhaps after a
               // restart.
    kLeft,  // Not complete, and nothing was changed (Commit::leave_incomplete); `failure` says what
            // is missing.
  };
  Kind kind = Kind::kUnknown;
  Failure failure = {};
  Manifest manifest = {};
};

// Steps of a commit:
//  1. Check the attempt's folder (CheckAttempt).
//  2. Remove what an earlier life left behind.
//  3. Write the manifest under a temporary name, sync it                           point:
//  manifest-written
//  4. Rename it, sync the folder                                                   point:
//  manifest-renamed
//  5. Look at checkpoints/<id>. If there is something: fail with AlreadyExists, or, to replace an
//  *older* checkpoint, rename
//     it to retired/<id>~<its attempt> and sync retired/ and checkpoints/.
//  6. Rename attempts/<attempt> to checkpoints/<id>                                points:
//  commit-before, commit-renamed
//     THE COMMIT POINT. The id is taken again: back to 5.
//  7. Sync checkpoints/ and attempts/                                              point:
//  commit-synced
//
// Whatever goes wrong in 1 to 6 leads to the abort, whose rename finds out who has won. What goes
// wrong in 7 is unknown.
//
// Steps of an abort:
//  8. Rename attempts/<attempt> to failed/<attempt>                                points:
//  abort-before, abort-renamed
//  9. Write the outcome record there and sync it (a full disk does not keep the attempt from
//  failing).
// 10. Sync failed/<attempt>, failed/ and attempts/                                 point:
// abort-synced
// 11. Put back what was retired in 5 (PutBack).
//
// If the folder is gone in 8:
// 12. LookForProof; with proof that it failed, step 11; without proof the answer is unknown.
class Decide : public Machine {
 public:
  struct Commit {
    AttemptRecord record;
    std::vector<FragmentRef> durable;  // What nodes have reported; may be empty.
    std::string node;                  // This daemon's.
    uint32_t file_mode = 0;
    Outcome otherwise;  // What the outcome record says if it comes to an abort, besides record and
                        // failure.
    bool leave_incomplete = false;  // An incomplete folder is left alone: kLeft.
  };
  struct Abort {
    AttemptRecord record;  // If nobody could read it: job and attempt alone.
    std::string node;
    uint32_t file_mode = 0;
    Outcome outcome;  // Its record is filled in.
  };

  explicit Decide(Commit commit);
  explicit Decide(Abort abort);

  // May be told from the moment it is set, which is when the machine is finished.
  const std::optional<Decision>& decision() const { return decision_; }

 private:
  enum class State {
    // Steps 1 to 4.
    kCheck,
    kRemoveLeftover,
    kCreateTemporary,
    kSyncTemporary,
    kCloseTemporary,
    kRenameTemporary,
    kSyncFolder,
    // Steps 5 to 7.
    kStatExisting,
    kReadExisting,
    kReadExistingRecord,
    kRetire,
    kSyncRetired,
    kSyncCheckpointsOfRetired,
    kCommit,
    kSyncCheckpoints,
    kSyncAttempts,
    // Steps 8 to 12.
    kAbort,
    kCreateOutcome,
    kSyncOutcome,
    kCloseOutcome,
    kSyncFailedAttempt,
    kSyncFailed,
    kSyncAttemptsOfAbort,
    kLook,
    kPutBack,
    kDelete,  // Of a mutation.
  };

  void Advance(ActionResult result) override;
  void AdvanceFiles(ActionResult result);
  void AdvancePublish(const ActionResult& result);
  void AdvanceAbort(ActionResult result);
  void Go(State state, Action action);

  void OnChecked();
  void RemoveNextLeftover();
  void WriteManifest();

  void LookAtPlace();
  void OnExisting(const ActionResult& result);
  void Retire(const AttemptName& existing);
  void Publish();
  void OnCommitted();
  void SyncAttemptsOfCommit();
  void TellCommitted();
  absl::Status TakenError(absl::string_view why) const;

  void GiveUp(absl::Status why, absl::string_view phase);
  void StartAbort();
  void OnAbortRenamed(const absl::Status& status);
  void SyncFailedAttempt();
  void SyncFailed();
  void SyncAttemptsOfAbort();
  void OnLooked();
  void StartPutBack(Decision to_tell);
  void Unknown(absl::Status why, absl::string_view phase);
  void Tell(Decision decision);
  Decision FailedDecision() const;

  std::string FolderPath(absl::string_view name) const;
  std::string TemporaryPath() const;
  std::string OutcomePath() const;
  std::string place() const;  // checkpoints/<id>

  AttemptRecord record_;
  std::string node_;
  uint32_t file_mode_ = 0;
  Outcome outcome_;
  bool leave_incomplete_ = false;
  std::string folder_;  // attempts/<attempt>

  State state_ = State::kCheck;
  std::optional<CheckAttempt> check_;
  std::optional<LookForProof> look_;
  std::optional<PutBack> put_back_;
  std::optional<RemoveFolder> delete_;
  std::vector<std::string> leftovers_;
  absl::Status sync_error_;
  Manifest manifest_;
  int publish_tries_ = 0;
  Decision to_tell_;  // When kPutBack is done.
  std::optional<Decision> decision_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_DECIDE_H_
