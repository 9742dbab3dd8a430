// LookAtCheckpoint says whether a checkpoint can stand in for another that is to go: whether the
// catalog serves it, and no verification has found it damaged.
#ifndef CKPTD_STORAGE_COMMIT_LOOK_AT_CHECKPOINT_H_
#define CKPTD_STORAGE_COMMIT_LOOK_AT_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "storage/commit/action.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps: 1. Read the manifest in checkpoints/<id>. 2. Read the record beside it: it must be of the
// same attempt, job and id. 3. Read its verdict, if it has one.
class LookAtCheckpoint : public Machine {
 public:
  LookAtCheckpoint(std::string job, std::string checkpoint_id);

  // Valid once finished: its manifest, or why it does not count.
  const absl::StatusOr<Manifest>& result() const { return result_; }

 private:
  enum class State { kReadManifest, kReadRecord, kReadVerdict };

  void Advance(ActionResult result) override;
  absl::Status TakeManifest(const ActionResult& result);
  absl::Status CheckRecord(const ActionResult& result) const;

  std::string job_;
  std::string checkpoint_id_;
  State state_ = State::kReadManifest;
  Manifest manifest_;
  absl::StatusOr<Manifest> result_ = absl::UnknownError("not finished");
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_LOOK_AT_CHECKPOINT_H_
