// LookForProof finds out what became of an attempt whose folder is gone from attempts/.
#ifndef CKPTD_STORAGE_COMMIT_LOOK_FOR_PROOF_H_
#define CKPTD_STORAGE_COMMIT_LOOK_FOR_PROOF_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/commit/action.h"
#include "storage/format/records.h"

namespace ckptd {

// Only what is there is proof, never what is missing: a name may be stale or on its way.
//
// Steps:
//  1. The manifest in checkpoints/<id>, then those in retired/<id>~*, then checkpoints/<id> again
//  (it may have been put
//     back between), then the names in trash/: with this attempt, it was committed.
//  2. failed/<attempt>: it failed; the outcome record there says why.
//  3. Sync the folder that holds the proof, and attempts/: another saw the rename return, but
//  perhaps did not sync.
class LookForProof : public Machine {
 public:
  explicit LookForProof(AttemptRecord record);

  enum class Found { kNothing, kCommitted, kFailed };

  // Valid once finished. An error if storage gave no answer; then it is as if nothing was found.
  const absl::Status& status() const { return status_; }
  Found found() const { return found_; }
  const Manifest& manifest() const { return manifest_; }              // If kCommitted.
  const std::optional<Outcome>& outcome() const { return outcome_; }  // If kFailed and readable.

 private:
  enum class State {
    kCheckpoint,
    kListRetired,
    kRetired,
    kCheckpointAgain,
    kListTrash,
    kTrash,
    kStatFailed,
    kReadOutcome,
    kSyncHolder,
    kSyncAttempts,
  };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  bool IsOurs(const ActionResult& result);
  void ListNames(const ActionResult& result);
  void ReadNextRetired();
  void ReadNextTrashed();
  void FoundIn(Found found, std::string holder);
  void Lose(absl::Status why);
  Action ReadManifest(const std::string& folder) const;

  AttemptRecord record_;
  State state_ = State::kCheckpoint;
  std::vector<std::string> names_;  // In retired/ or trash/, of this id.
  Found found_ = Found::kNothing;
  Manifest manifest_;
  std::optional<Outcome> outcome_;
  absl::Status status_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_LOOK_FOR_PROOF_H_
