// Recover settles what a daemon finds on a root when it starts, before it lists anything.
#ifndef CKPTD_STORAGE_COMMIT_RECOVER_H_
#define CKPTD_STORAGE_COMMIT_RECOVER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "storage/commit/action.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/decide.h"
#include "storage/commit/put_back.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps, for each folder of the root that can be a job's:
//  1. Sync retired/, checkpoints/, failed/ and attempts/: a rename that is seen may not be on the
//     disk, and what is listed must stay. A job without these folders is none.
//  2. For each attempt in attempts/: commit it if it is complete, whoever coordinates it. Else, if
//     its record names this node, it is left for its clients to come back (`waiting`: the caller
//     aborts it when they do not); if no record can be read, abort it: no rank has staged anything.
//     Attempts of other coordinators are left alone.
//  3. For each id in retired/: put the checkpoint back if nothing is in its place, else drop it.
//  4. For each attempt in failed/: write the outcome if it is missing, delete its shards.
//
// Recovering twice changes nothing. Names that are not ours are neither read nor changed.
class Recover : public Machine {
 public:
  struct Options {
    std::string node;  // This daemon's.
    uint32_t file_mode = 0;
    std::string root_label;
    absl::Time now;  // For outcome records; for people.
  };

  explicit Recover(Options options);

  // Valid once finished. The first error that makes this root's lists untrustworthy (a failed sync
  // or listing): the caller serves nothing from it. Decisions that stayed open are no error, see
  // `unknown`.
  const absl::Status& status() const { return status_; }
  const std::vector<Manifest>& committed() const { return committed_; }
  const std::vector<Outcome>& failed() const { return failed_; }
  const std::vector<AttemptRecord>& waiting() const { return waiting_; }
  const std::vector<std::pair<AttemptRecord, Failure>>& unknown() const { return unknown_; }
  // What could not be tidied up in 3 and 4: to be logged; the next start tries again.
  const std::vector<absl::Status>& problems() const { return problems_; }

 private:
  enum class State {
    kListJobs,
    kSyncFolders,
    kListAttempts,
    kReadRecord,
    kDecide,
    kListRetired,
    kPutBack,
    kDropRetired,
    kListFailed,
    kFinishFailed,
  };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  void OnJobs(const ActionResult& result);
  void NextJob();
  void SyncNextFolder();
  void NextAttempt();
  void OnRecord(const ActionResult& result);
  void StartCommit();
  void OnDecided();
  void AdvancePart(ActionResult result);
  void Note(const absl::Status& status);
  void NextRetired();
  void NextFailed();
  Outcome NewOutcome(absl::Status why) const;
  void SkipJob(const absl::Status& status);

  Options options_;
  State state_ = State::kListJobs;
  std::vector<std::string> jobs_;
  std::string job_;
  size_t index_ = 0;
  std::vector<AttemptName> attempts_;  // Still to be looked at, in attempts/ or failed/.
  std::set<std::string> retired_ids_;
  AttemptRecord record_;
  std::optional<Decide> decide_;
  std::optional<PutBack> put_back_;
  std::optional<DropRetired> drop_retired_;
  std::optional<FinishFailed> finish_failed_;

  absl::Status status_;
  std::vector<Manifest> committed_;
  std::vector<Outcome> failed_;
  std::vector<AttemptRecord> waiting_;
  std::vector<std::pair<AttemptRecord, Failure>> unknown_;
  std::vector<absl::Status> problems_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_RECOVER_H_
