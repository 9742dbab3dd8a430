#include "client/cli/folder_source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/catalog/verdict.h"
#include "storage/catalog/verify.h"
#include "storage/disk/open_disk.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

// By (sequence, attempt): the random part orders what one sequence has.
template <typename Messages>
void Sort(Messages& messages) {
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
    return std::pair(a.sequence(), a.attempt()) < std::pair(b.sequence(), b.attempt());
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderSource>> FolderSource::Open(const std::string& root,
                                                                 bool for_verify) {
  DiskOptions options;
  options.engine = DiskOptions::Engine::kPosix;
  options.fixed_buffers = DiskOptions::Switch::kOff;
  options.direct = for_verify ? DiskOptions::Switch::kAuto : DiskOptions::Switch::kOff;
  absl::StatusOr<std::unique_ptr<Disk>> disk = OpenDisk(root, options);
  if (!disk.ok()) return WithContext(disk.status(), "--root");
  return std::unique_ptr<FolderSource>(new FolderSource(root, *std::move(disk)));
}

FolderSource::FolderSource(std::string root, std::unique_ptr<Disk> disk)
    : root_(std::move(root)), disk_(std::move(disk)) {}

// Those that a verb about all jobs reads. NotFound, naming those there are, for one that is not
// among them.
absl::StatusOr<std::vector<std::string>> FolderSource::JobsOf(const std::string& job) {
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, ListJobs(*disk_));
  if (job.empty()) return jobs;
  if (std::find(jobs.begin(), jobs.end(), job) == jobs.end()) {
    return absl::NotFoundError(jobs.empty()
                                   ? absl::StrCat("nothing there: ", root_, " has no job")
                                   : absl::StrCat("no job \"", job, "\" in ", root_,
                                                  "; there are: ", absl::StrJoin(jobs, ", ")));
  }
  return std::vector<std::string>{job};
}

absl::StatusOr<std::string> FolderSource::OneJob(const std::string& job) {
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, JobsOf(job));
  if (jobs.empty())
    return absl::NotFoundError(absl::StrCat("nothing there: ", root_, " has no job"));
  if (jobs.size() == 1) return jobs.front();
  return absl::InvalidArgumentError(
      absl::StrCat("several jobs; name one with --job: ", absl::StrJoin(jobs, ", ")));
}

absl::StatusOr<v1::ListReply> FolderSource::List(const std::string& job, bool failed) {
  v1::ListReply reply;
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, JobsOf(job));
  for (const std::string& name : jobs) {
    ASSIGN_OR_RETURN(std::vector<CheckpointInfo> checkpoints, ListCheckpoints(*disk_, name));
    for (const CheckpointInfo& info : checkpoints) {
      if (info.status.ok()) {
        *reply.add_checkpoints() = ToProto(info, Name());
      } else {
        *reply.add_damaged() = ToDamaged(info, Name());
      }
    }
    ASSIGN_OR_RETURN(std::vector<UnfinishedAttempt> unfinished, ListUnfinished(*disk_, name));
    for (const UnfinishedAttempt& attempt : unfinished) {
      v1::Attempt& message = *reply.add_attempts();
      message = ToProto(attempt, Name());
      message.clear_files();
    }
    if (!failed) continue;
    ASSIGN_OR_RETURN(std::vector<Outcome> outcomes, ListFailed(*disk_, name));
    for (const Outcome& outcome : outcomes) *reply.add_attempts() = ToProto(outcome);
  }
  Sort(*reply.mutable_checkpoints());
  Sort(*reply.mutable_attempts());
  return reply;
}

absl::StatusOr<v1::Checkpoint> FolderSource::Latest(const std::string& job) {
  ASSIGN_OR_RETURN(std::string name, OneJob(job));
  ASSIGN_OR_RETURN(CheckpointInfo info, ckptd::Latest(*disk_, name));
  return ToProto(info, Name());
}

absl::StatusOr<v1::ShowReply> FolderSource::Show(const std::string& job, const std::string& name) {
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  absl::StatusOr<CheckpointInfo> found = FindCheckpoint(*disk_, one, name);
  if (found.ok()) return ShowCheckpoint(*found);
  bool none = absl::IsNotFound(found.status()) || absl::IsFailedPrecondition(found.status()) ||
              absl::IsInvalidArgument(found.status());
  if (!none) return found.status();
  return ShowAttempt(one, name, found.status());
}

absl::StatusOr<v1::ShowReply> FolderSource::ShowCheckpoint(const CheckpointInfo& info) {
  v1::ShowReply reply;
  *reply.mutable_checkpoint() = ToProto(info, Name());
  ASSIGN_OR_RETURN(std::vector<Fragment> fragments, LoadFragments(*disk_, info));
  AddFiles(fragments, *reply.mutable_checkpoint());
  return reply;
}

// The attempt of that name, or the last one of that checkpoint id.
absl::StatusOr<v1::ShowReply> FolderSource::ShowAttempt(const std::string& job,
                                                        const std::string& name,
                                                        const absl::Status& otherwise) {
  std::vector<v1::Attempt> candidates;
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> checkpoints, ListCheckpoints(*disk_, job));
  for (const CheckpointInfo& info : checkpoints) {
    if (info.status.ok() && ToString(info.manifest.attempt) == name) return ShowCheckpoint(info);
  }
  ASSIGN_OR_RETURN(std::vector<UnfinishedAttempt> unfinished, ListUnfinished(*disk_, job));
  for (const UnfinishedAttempt& attempt : unfinished) {
    candidates.push_back(ToProto(attempt, Name()));
  }
  ASSIGN_OR_RETURN(std::vector<Outcome> outcomes, ListFailed(*disk_, job));
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

absl::StatusOr<v1::DescribeReply> FolderSource::Describe(const std::string& job,
                                                         const std::string& id,
                                                         const std::string& glob) {
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  ASSIGN_OR_RETURN(CheckpointInfo info, FindCheckpoint(*disk_, one, id));
  ASSIGN_OR_RETURN(std::vector<Fragment> fragments, LoadFragments(*disk_, info));
  v1::DescribeReply reply;
  for (const v1::DescribeReply& part : DescribeParts(fragments, ToProto(info, Name()), glob)) {
    reply.MergeFrom(part);
  }
  return reply;
}

absl::StatusOr<std::vector<CheckpointInfo>> FolderSource::ToVerify(
    const std::string& job, const std::vector<std::string>& ids) {
  std::vector<CheckpointInfo> chosen;
  if (ids.empty()) {
    ASSIGN_OR_RETURN(std::vector<std::string> jobs, JobsOf(job));
    for (const std::string& name : jobs) {
      ASSIGN_OR_RETURN(std::vector<CheckpointInfo> listed, ListCheckpoints(*disk_, name));
      std::move(listed.begin(), listed.end(), std::back_inserter(chosen));
    }
    return chosen;
  }
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> listed, ListCheckpoints(*disk_, one));
  for (const std::string& id : ids) {
    auto found = std::find_if(listed.begin(), listed.end(),
                              [&id](const CheckpointInfo& info) { return info.id == id; });
    if (found == listed.end()) {
      absl::Status why = FindCheckpoint(*disk_, one, id).status();
      return why.ok() ? absl::NotFoundError(absl::StrCat("no checkpoint \"", id, "\"")) : why;
    }
    chosen.push_back(*found);
  }
  return chosen;
}

absl::StatusOr<std::vector<v1::VerifyReply>> FolderSource::Verify(
    const std::string& job, const std::vector<std::string>& ids) {
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> chosen, ToVerify(job, ids));
  std::vector<v1::VerifyReply> replies;
  for (const CheckpointInfo& info : chosen) {
    VerifyResult result = ckptd::Verify(*disk_, info, nullptr);
    if (!info.status.ok() && result.ok()) {
      result.errors.push_back({"", "", 0, 0, std::string(info.status.message())});
    }
    replies.push_back(ToProto(info, result));
    // Without a manifest there is no attempt to keep it for.
    if (info.manifest.world_size == 0) continue;
    absl::Status kept = WriteVerdict(*disk_, info.job, info.manifest.attempt,
                                     Verdict{SystemClock().Wall(), result.ok()});
    if (!kept.ok()) {
      warnings_.push_back(
          absl::StrCat("the verdict on ", info.id, " is not kept: ", std::string(kept.message())));
    }
  }
  return replies;
}

}  // namespace ckptd
