#include "storage/commit/recover.h"

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

// Retired first and attempts last: a rename is on the disk when both its parents are, and the new
// place must be first.
std::array<std::string, 4> FoldersToSync(absl::string_view job) {
  return {RetiredDir(job), CheckpointsDir(job), FailedDir(job), AttemptsDir(job)};
}

// There is nothing of ours at that path: no such folder, a file in its place, or a folder of
// somebody else.
bool IsNotOurs(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsPermissionDenied(status) ||
         StatusErrno(status) == ENOTDIR;
}

std::vector<AttemptName> AttemptsIn(const std::vector<DirEntry>& entries) {
  std::vector<AttemptName> attempts;
  for (const DirEntry& entry : entries) {
    std::optional<AttemptName> name = ParseAttemptName(entry.name);
    if (name && entry.kind == FileKind::kFolder) attempts.push_back(*name);
  }
  return attempts;
}

}  // namespace

Recover::Recover(Options options) : options_(std::move(options)) {
  Go(State::kListJobs, ListAction(""));
}

void Recover::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

void Recover::Advance(ActionResult result) {
  const absl::Status& status = result.status;
  switch (state_) {
    case State::kListJobs:
      return OnJobs(result);
    case State::kSyncFolders:
      if (!status.ok() && !IsNotOurs(status)) return SkipJob(status);
      ++index_;
      return SyncNextFolder();
    case State::kListAttempts:
      if (!status.ok() && !IsNotOurs(status)) return SkipJob(status);
      attempts_ = AttemptsIn(result.entries);
      return NextAttempt();
    case State::kReadRecord:
      return OnRecord(result);
    case State::kListRetired:
      if (!status.ok() && !IsNotOurs(status)) return SkipJob(status);
      for (const DirEntry& entry : result.entries) {
        std::optional<RetiredName> name = ParseRetiredName(entry.name);
        if (name && entry.kind == FileKind::kFolder) retired_ids_.insert(name->id);
      }
      return NextRetired();
    case State::kListFailed:
      if (!status.ok() && !IsNotOurs(status)) return SkipJob(status);
      attempts_ = AttemptsIn(result.entries);
      return NextFailed();
    default:
      return AdvancePart(std::move(result));
  }
}

void Recover::AdvancePart(ActionResult result) {
  switch (state_) {
    case State::kDecide:
      decide_->Done(std::move(result));
      if (!DoNextOf(*decide_)) OnDecided();
      return;
    case State::kPutBack:
      put_back_->Done(std::move(result));
      if (DoNextOf(*put_back_)) return;
      Note(put_back_->status());
      return NextRetired();
    case State::kDropRetired:
      drop_retired_->Done(std::move(result));
      if (DoNextOf(*drop_retired_)) return;
      Note(drop_retired_->status());
      return Go(State::kListFailed, ListAction(FailedDir(job_)));
    default:  // kFinishFailed
      finish_failed_->Done(std::move(result));
      if (DoNextOf(*finish_failed_)) return;
      Note(finish_failed_->status());
      if (finish_failed_->written().has_value()) failed_.push_back(*finish_failed_->written());
      return NextFailed();
  }
}

void Recover::Note(const absl::Status& status) {
  if (!status.ok()) problems_.push_back(status);
}

void Recover::SkipJob(const absl::Status& status) {
  if (status_.ok()) status_ = status;
  NextJob();
}

void Recover::OnJobs(const ActionResult& result) {
  status_ = result.status;
  for (const DirEntry& entry : result.entries) {
    std::optional<std::string> job = DecodeName(entry.name);
    if (job && entry.kind == FileKind::kFolder && entry.name != kOwnDir) {
      jobs_.push_back(*std::move(job));
    }
  }
  NextJob();
}

void Recover::NextJob() {
  if (jobs_.empty()) return;
  job_ = std::move(jobs_.back());
  jobs_.pop_back();
  index_ = 0;
  SyncNextFolder();
}

void Recover::SyncNextFolder() {
  auto folders = FoldersToSync(job_);
  if (index_ < folders.size() && !Mutated(Mutation::kListBeforeParentsSynced)) {
    return Go(State::kSyncFolders, SyncDirAction(folders[index_]));
  }
  Go(State::kListAttempts, ListAction(AttemptsDir(job_)));
}

void Recover::NextAttempt() {
  if (attempts_.empty()) return Go(State::kListRetired, ListAction(RetiredDir(job_)));
  Go(State::kReadRecord, ReadFileAction(Join(AttemptDir(job_, attempts_.back()), kRecordFile)));
}

void Recover::OnRecord(const ActionResult& result) {
  AttemptName attempt = attempts_.back();
  attempts_.pop_back();
  record_ = AttemptRecord();
  record_.job = job_;
  record_.attempt = attempt;
  absl::Status status = result.status;
  if (status.ok()) {
    absl::StatusOr<AttemptRecord> record = DecodeAttemptRecord(result.bytes);
    status = record.status();
    if (record.ok() && record->job == job_ && record->attempt == attempt) {
      record_ = *std::move(record);
      return StartCommit();
    }
    // One of a newer version is none of our business.
    if (absl::IsFailedPrecondition(status)) return NextAttempt();
    if (status.ok()) status = absl::DataLossError("the record belongs to another attempt");
  } else if (!absl::IsNotFound(status)) {
    unknown_.push_back({record_, NewOutcome(status).failure});
    return NextAttempt();
  }
  decide_.emplace(
      Decide::Abort{.record = record_,
                    .node = options_.node,
                    .file_mode = options_.file_mode,
                    .outcome = NewOutcome(absl::AbortedError(absl::StrCat(
                        "the attempt has no record that can be read: ", status.message())))});
  state_ = State::kDecide;
  DoNextOf(*decide_);
}

void Recover::StartCommit() {
  decide_.emplace(Decide::Commit{.record = record_,
                                 .durable = {},
                                 .node = options_.node,
                                 .file_mode = options_.file_mode,
                                 .otherwise = NewOutcome(absl::OkStatus()),
                                 .leave_incomplete = true});
  state_ = State::kDecide;
  DoNextOf(*decide_);
}

Outcome Recover::NewOutcome(absl::Status why) const {
  return {.record = {},
          .root_label = options_.root_label,
          .failure = {.status = std::move(why), .rank = {}, .node = "", .phase = "settle"},
          .ranks = {},
          .ended = options_.now};
}

void Recover::OnDecided() {
  const Decision& decision = *decide_->decision();
  switch (decision.kind) {
    case Decision::Kind::kCommitted:
      committed_.push_back(decision.manifest);
      break;
    case Decision::Kind::kFailed: {
      Outcome outcome = NewOutcome(absl::OkStatus());
      outcome.record = record_;
      outcome.failure = decision.failure;
      failed_.push_back(std::move(outcome));
      break;
    }
    case Decision::Kind::kLeft:
      if (record_.coordinator_node == options_.node) waiting_.push_back(record_);
      break;
    case Decision::Kind::kUnknown:
      unknown_.push_back({record_, decision.failure});
      break;
  }
  decide_.reset();
  NextAttempt();
}

void Recover::NextRetired() {
  if (retired_ids_.empty()) {
    drop_retired_.emplace(job_);
    state_ = State::kDropRetired;
    DoNextOf(*drop_retired_);
    return;
  }
  put_back_.emplace(job_, *retired_ids_.begin());
  retired_ids_.erase(retired_ids_.begin());
  state_ = State::kPutBack;
  DoNextOf(*put_back_);
}

void Recover::NextFailed() {
  if (attempts_.empty()) return NextJob();
  finish_failed_.emplace(FinishFailed::Options{
      .job = job_,
      .attempt = attempts_.back(),
      .otherwise = NewOutcome(absl::AbortedError("the attempt failed; why was not recorded")),
      .file_mode = options_.file_mode});
  attempts_.pop_back();
  state_ = State::kFinishFailed;
  DoNextOf(*finish_failed_);
}

}  // namespace ckptd
