#include "storage/commit/look_at_checkpoint.h"

#include <optional>
#include <utility>

#include "storage/base/status.h"
#include "storage/catalog/verdict.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {

LookAtCheckpoint::LookAtCheckpoint(std::string job, std::string checkpoint_id)
    : job_(std::move(job)), checkpoint_id_(std::move(checkpoint_id)) {
  Do(ReadFileAction(Join(CheckpointDir(job_, checkpoint_id_), kManifestFile)));
}

void LookAtCheckpoint::Advance(ActionResult result) {
  absl::Status status;
  switch (state_) {
    case State::kReadManifest:
      status = TakeManifest(result);
      if (!status.ok()) break;
      if (Mutated(Mutation::kNewerMayBeDamaged)) break;
      state_ = State::kReadRecord;
      return Do(ReadFileAction(Join(CheckpointDir(job_, checkpoint_id_), kRecordFile)));
    case State::kReadRecord:
      status = CheckRecord(result);
      if (!status.ok()) break;
      state_ = State::kReadVerdict;
      return Do(ReadFileAction(VerdictFile(job_, manifest_.attempt)));
    case State::kReadVerdict:
      // Most have none; one that cannot be read says nothing.
      std::optional<Verdict> verdict;
      if (result.status.ok()) verdict = DecodeVerdict(result.bytes);
      if (verdict && !verdict->ok) status = absl::DataLossError("verified and found damaged");
      break;
  }
  if (status.ok()) {
    result_ = std::move(manifest_);
  } else {
    result_ = std::move(status);
  }
}

absl::Status LookAtCheckpoint::TakeManifest(const ActionResult& result) {
  RETURN_IF_ERROR(result.status);
  ASSIGN_OR_RETURN(manifest_, DecodeManifest(result.bytes));
  if (manifest_.job != job_ || manifest_.checkpoint_id != checkpoint_id_) {
    return absl::DataLossError("the manifest is of another checkpoint");
  }
  return absl::OkStatus();
}

absl::Status LookAtCheckpoint::CheckRecord(const ActionResult& result) const {
  RETURN_IF_ERROR(result.status);
  ASSIGN_OR_RETURN(AttemptRecord record, DecodeAttemptRecord(result.bytes));
  if (record.attempt != manifest_.attempt || record.job != job_ ||
      record.checkpoint_id != checkpoint_id_) {
    return absl::DataLossError("manifest and record are of two attempts");
  }
  return absl::OkStatus();
}

}  // namespace ckptd
