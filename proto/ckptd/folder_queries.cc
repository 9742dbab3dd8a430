#include "proto/ckptd/folder_queries.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/catalog/verdict.h"
#include "storage/catalog/verify.h"
#include "storage/format/paths.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {
namespace {

// By (sequence, attempt): the random part orders what one sequence has.
template <typename Messages>
void Sort(Messages& messages) {
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
    return std::pair(a.sequence(), a.attempt()) < std::pair(b.sequence(), b.attempt());
  });
}

// What is moved while it is read looks damaged, but is judged where it has come to. Nullopt if it
// was deleted or replaced.
std::optional<VerifyResult> VerifyWhereItIs(Disk& disk, CheckpointInfo info) {
  constexpr int kLooksMax = 5;
  VerifyResult result;
  for (int look = 0; look < kLooksMax; ++look) {
    result = Verify(disk, info, nullptr);
    if (result.ok()) break;
    absl::StatusOr<CheckpointInfo> now = FindCheckpoint(disk, info.job, info.id);
    if (absl::IsNotFound(now.status())) return std::nullopt;
    if (!now.ok()) break;
    if (now->manifest.attempt != info.manifest.attempt) return std::nullopt;
    if (now->path == info.path) break;
    info = *std::move(now);
  }
  return result;
}

}  // namespace

FolderQueries::FolderQueries(Disk& disk, std::string label, std::string path)
    : disk_(disk), label_(std::move(label)), path_(std::move(path)) {}

// Those that a verb about all jobs reads. NotFound, naming those there are, for one that has no
// folder; one that has, and nothing in it, may be asked for.
absl::StatusOr<std::vector<std::string>> FolderQueries::JobsOf(const std::string& job) {
  if (job.empty()) return ListJobs(disk_);
  ASSIGN_OR_RETURN(std::vector<std::string> folders, ListJobFolders(disk_));
  if (std::find(folders.begin(), folders.end(), job) == folders.end()) {
    ASSIGN_OR_RETURN(std::vector<std::string> jobs, ListJobs(disk_));
    return absl::NotFoundError(jobs.empty()
                                   ? absl::StrCat("nothing there: ", path_, " has no job")
                                   : absl::StrCat("no job ", QuoteName(job), " in ", path_,
                                                  "; there are: ", absl::StrJoin(jobs, ", ")));
  }
  return std::vector<std::string>{job};
}

absl::StatusOr<std::string> FolderQueries::OneJob(const std::string& job) {
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, JobsOf(job));
  if (jobs.empty())
    return absl::NotFoundError(absl::StrCat("nothing there: ", path_, " has no job"));
  if (jobs.size() == 1) return jobs.front();
  return absl::InvalidArgumentError(
      absl::StrCat("several jobs; name one with --job: ", absl::StrJoin(jobs, ", ")));
}

absl::StatusOr<v1::ListReply> FolderQueries::List(const std::string& job, bool failed) {
  v1::ListReply reply;
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, JobsOf(job));
  for (const std::string& name : jobs) {
    ASSIGN_OR_RETURN(std::vector<CheckpointInfo> checkpoints, ListCheckpoints(disk_, name));
    for (const CheckpointInfo& info : checkpoints) {
      if (info.status.ok()) {
        *reply.add_checkpoints() = ToProto(info, Name());
      } else {
        *reply.add_damaged() = ToDamaged(info, Name());
      }
    }
    ASSIGN_OR_RETURN(std::vector<UnfinishedAttempt> unfinished, ListUnfinished(disk_, name));
    for (const UnfinishedAttempt& attempt : unfinished) {
      v1::Attempt& message = *reply.add_attempts();
      message = ToProto(attempt, Name());
      message.clear_files();
    }
    if (!failed) continue;
    ASSIGN_OR_RETURN(std::vector<Outcome> outcomes, ListFailed(disk_, name));
    for (const Outcome& outcome : outcomes) *reply.add_attempts() = ToProto(outcome);
  }
  Sort(*reply.mutable_checkpoints());
  Sort(*reply.mutable_attempts());
  return reply;
}

absl::StatusOr<v1::Checkpoint> FolderQueries::Latest(const std::string& job) {
  ASSIGN_OR_RETURN(std::string name, OneJob(job));
  ASSIGN_OR_RETURN(CheckpointInfo info, ckptd::Latest(disk_, name));
  return ToProto(info, Name());
}

absl::StatusOr<v1::ShowReply> FolderQueries::Show(const std::string& job, const std::string& name) {
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  absl::StatusOr<CheckpointInfo> found = FindCheckpoint(disk_, one, name);
  if (found.ok()) return ShowCheckpoint(*found);
  bool none = absl::IsNotFound(found.status()) || absl::IsFailedPrecondition(found.status()) ||
              absl::IsInvalidArgument(found.status());
  if (!none) return found.status();
  return ShowAttempt(one, name, found.status());
}

absl::StatusOr<v1::ShowReply> FolderQueries::ShowCheckpoint(const CheckpointInfo& info) {
  v1::ShowReply reply;
  *reply.mutable_checkpoint() = ToProto(info, Name());
  ASSIGN_OR_RETURN(std::vector<Fragment> fragments, LoadFragments(disk_, info));
  AddFiles(fragments, *reply.mutable_checkpoint());
  return reply;
}

// The attempt of that name, or the last one of that checkpoint id.
absl::StatusOr<v1::ShowReply> FolderQueries::ShowAttempt(const std::string& job,
                                                         const std::string& name,
                                                         const absl::Status& otherwise) {
  std::vector<v1::Attempt> candidates;
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> checkpoints, ListCheckpoints(disk_, job));
  for (const CheckpointInfo& info : checkpoints) {
    if (info.status.ok() && ToString(info.manifest.attempt) == name) return ShowCheckpoint(info);
  }
  ASSIGN_OR_RETURN(std::vector<UnfinishedAttempt> unfinished, ListUnfinished(disk_, job));
  for (const UnfinishedAttempt& attempt : unfinished) {
    candidates.push_back(ToProto(attempt, Name()));
  }
  ASSIGN_OR_RETURN(std::vector<Outcome> outcomes, ListFailed(disk_, job));
  for (const Outcome& outcome : outcomes) candidates.push_back(ToProto(outcome));
  Sort(candidates);
  for (auto attempt = candidates.rbegin(); attempt != candidates.rend(); ++attempt) {
    if (attempt->attempt() != name && attempt->checkpoint_id() != name) continue;
    v1::ShowReply reply;
    *reply.mutable_attempt() = *std::move(attempt);
    return reply;
  }
  return otherwise;
}

absl::StatusOr<std::vector<v1::DescribeReply>> FolderQueries::Describe(const std::string& job,
                                                                       const std::string& id,
                                                                       const std::string& glob) {
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  ASSIGN_OR_RETURN(CheckpointInfo info, FindCheckpoint(disk_, one, id));
  ASSIGN_OR_RETURN(std::vector<Fragment> fragments, LoadFragments(disk_, info));
  return DescribeParts(fragments, ToProto(info, Name()), glob);
}

absl::StatusOr<std::vector<CheckpointInfo>> FolderQueries::ToVerify(
    const std::string& job, const std::vector<std::string>& ids) {
  std::vector<CheckpointInfo> chosen;
  if (ids.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> jobs, JobsOf(job));
    for (const std::string& name : jobs) {
      ASSIGN_OR_RETURN(std::vector<CheckpointInfo> listed, ListCheckpoints(disk_, name));
      std::move(listed.begin(), listed.end(), std::back_inserter(chosen));
    }
    return chosen;
  }
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> listed, ListCheckpoints(disk_, one));
  for (const std::string& id : ids) {
    auto found = std::find_if(listed.begin(), listed.end(),
                              [&id](const CheckpointInfo& info) { return info.id == id; });
    if (found == listed.end()) {
      absl::Status why = FindCheckpoint(disk_, one, id).status();
      return why.ok() ? absl::NotFoundError(absl::StrCat("no checkpoint ", QuoteName(id))) : why;
    }
    chosen.push_back(*found);
  }
  return chosen;
}

absl::Status FolderQueries::Verify(const std::string& job, const std::vector<std::string>& ids,
                                   const std::function<void(v1::VerifyReply)>& each,
                                   const std::function<void(std::string)>& warn) {
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> chosen, ToVerify(job, ids));
  for (const CheckpointInfo& info : chosen) {
    std::optional<VerifyResult> found = VerifyWhereItIs(disk_, info);
    if (!found && ids.empty()) continue;
    if (!found) {
      return absl::NotFoundError(
          absl::StrCat("checkpoint \"", info.id, "\" was deleted or replaced while it was read"));
    }
    VerifyResult& result = *found;
    if (!info.status.ok() && result.ok()) {
      result.errors.push_back({"", "", 0, 0, std::string(info.status.message())});
    }
    each(ToProto(info, result));
    absl::Status kept = WriteVerdict(disk_, info.job, info.manifest.attempt,
                                     Verdict{SystemClock().Wall(), result.ok()});
    if (!kept.ok()) {
      warn(absl::StrCat("the verdict on ", info.id, " is not kept: ", std::string(kept.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace ckptd
