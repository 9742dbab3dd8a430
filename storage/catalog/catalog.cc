#include "storage/catalog/catalog.h"

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/catalog/verdict.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

// A place that changes while it is read is read again, so often at most.
constexpr int kLooksMax = 5;
constexpr size_t kNamedMax = 10;

bool IsAbsent(const absl::Status& status) {
  return absl::IsNotFound(status) || StatusErrno(status) == ENOTDIR;
}

// The folders in `path`; none if there is no such folder.
absl::StatusOr<std::vector<std::string>> FoldersIn(Disk& disk, const std::string& path) {
  absl::StatusOr<std::vector<DirEntry>> entries = disk.List(path);
  std::vector<std::string> names;
  if (!entries.ok()) {
    if (IsAbsent(entries.status())) return names;
    return entries.status();
  }
  for (DirEntry& entry : *entries) {
    if (entry.kind == FileKind::kFolder) names.push_back(std::move(entry.name));
  }
  return names;
}

absl::StatusOr<std::vector<AttemptName>> AttemptsIn(Disk& disk, const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(disk, path));
  std::vector<AttemptName> attempts;
  for (const std::string& name : names) {
    if (std::optional<AttemptName> attempt = ParseAttemptName(name)) attempts.push_back(*attempt);
  }
  std::sort(attempts.begin(), attempts.end());
  return attempts;
}

absl::StatusOr<AttemptRecord> ReadRecord(Disk& disk, const std::string& folder) {
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadSmallFile(disk, Join(folder, kRecordFile), kRecordFileBytesMax));
  absl::StatusOr<AttemptRecord> record = DecodeAttemptRecord(bytes);
  if (!record.ok()) return WithContext(record.status(), Join(folder, kRecordFile));
  return record;
}

absl::StatusOr<Manifest> ReadManifest(Disk& disk, const std::string& folder) {
  ASSIGN_OR_RETURN(std::string bytes,
                   ReadSmallFile(disk, Join(folder, kManifestFile), kRecordFileBytesMax));
  absl::StatusOr<Manifest> manifest = DecodeManifest(bytes);
  if (!manifest.ok()) return WithContext(manifest.status(), Join(folder, kManifestFile));
  return manifest;
}

// What is wrong with a folder of which both records can be read.
absl::Status CheckPlace(const CheckpointInfo& info) {
  const Manifest& manifest = info.manifest;
  if (manifest.job != info.job || manifest.checkpoint_id != info.id) {
    return absl::DataLossError(absl::StrCat(info.path, " holds checkpoint \"",
                                            manifest.checkpoint_id, "\" of job \"", manifest.job,
                                            "\""));
  }
  if (info.record.attempt != manifest.attempt || info.record.job != manifest.job ||
      info.record.checkpoint_id != manifest.checkpoint_id) {
    return absl::DataLossError(
        absl::StrCat(info.path, ": manifest and record are of two attempts"));
  }
  return absl::OkStatus();
}

// NotFound if there is no folder of ours.
absl::StatusOr<CheckpointInfo> ReadCheckpoint(Disk& disk, absl::string_view job,
                                              absl::string_view id, std::string path) {
  CheckpointInfo info;
  info.job = std::string(job);
  info.id = std::string(id);
  info.path = std::move(path);
  absl::StatusOr<Manifest> manifest = ReadManifest(disk, info.path);
  absl::StatusOr<AttemptRecord> record = ReadRecord(disk, info.path);
  // A folder with neither is not ours, or there is none.
  if (absl::IsNotFound(manifest.status()) && absl::IsNotFound(record.status())) {
    return manifest.status();
  }
  if (record.ok()) info.record = *std::move(record);
  if (manifest.ok()) info.manifest = *std::move(manifest);
  info.status = manifest.ok() ? record.status() : manifest.status();
  // In a folder of ours, a record that is missing is damage.
  if (absl::IsNotFound(info.status)) info.status = absl::DataLossError(info.status.message());
  if (!info.status.ok()) return info;
  info.status = CheckPlace(info);
  if (absl::StatusOr<FileInfo> file = disk.Stat(Join(info.path, kManifestFile)); file.ok()) {
    info.committed = file->modified;
  }
  info.verdict = ReadVerdict(disk, info.job, info.manifest.attempt);
  return info;
}

AttemptName AttemptOf(const CheckpointInfo& info) {
  return std::max(info.manifest.attempt, info.record.attempt);
}

// The best of what lies in retired/ for one id: the good one of the highest attempt.
absl::StatusOr<std::optional<CheckpointInfo>> FindRetired(Disk& disk, absl::string_view job,
                                                          absl::string_view id) {
  std::optional<CheckpointInfo> best;
  ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(disk, RetiredDir(job)));
  for (const std::string& name : names) {
    std::optional<RetiredName> retired = ParseRetiredName(name);
    if (!retired || retired->id != id) continue;
    absl::StatusOr<CheckpointInfo> info =
        ReadCheckpoint(disk, job, id, Join(RetiredDir(job), name));
    if (!info.ok() || !info->status.ok()) continue;
    if (!best || AttemptOf(*best) < AttemptOf(*info)) best = *std::move(info);
  }
  return best;
}

// An id that is just being replaced is in checkpoints/, else in retired/, else in checkpoints/
// again. A folder that is moved while it is read looks damaged: damage counts if it is seen twice.
absl::StatusOr<std::optional<CheckpointInfo>> FindPublished(Disk& disk, absl::string_view job,
                                                            absl::string_view id) {
  std::optional<CheckpointInfo> damaged;
  bool absent = false;
  for (int look = 0; look < kLooksMax; ++look) {
    absl::StatusOr<CheckpointInfo> live = ReadCheckpoint(disk, job, id, CheckpointDir(job, id));
    if (live.ok()) {
      const bool again = damaged && damaged->status == live->status;
      if (live->status.ok() || again) return std::optional<CheckpointInfo>(*std::move(live));
      damaged = *std::move(live);
      continue;
    }
    if (!IsAbsent(live.status())) return live.status();
    if (absent) return std::optional<CheckpointInfo>();
    absent = true;
    ASSIGN_OR_RETURN(std::optional<CheckpointInfo> retired, FindRetired(disk, job, id));
    if (retired.has_value()) return retired;
  }
  return damaged;
}

std::string Describe(const UnfinishedAttempt& attempt) {
  std::string name = ToString(attempt.record.attempt);
  if (attempt.record.checkpoint_id.empty()) return name;
  return absl::StrCat(attempt.record.checkpoint_id, " (attempt ", name, ")");
}

std::string DescribeSome(std::vector<std::string> texts) {
  if (texts.size() > kNamedMax) {
    texts.resize(kNamedMax);
    texts.push_back("…");
  }
  return absl::StrJoin(texts, ", ");
}

// What cannot be read is not ours.
bool HoldsAttempts(Disk& disk, const std::string& folder) {
  absl::StatusOr<std::vector<AttemptName>> attempts = AttemptsIn(disk, folder);
  return attempts.ok() && !attempts->empty();
}

bool HoldsRecords(Disk& disk, const std::string& folder, bool (*is_ours)(const std::string& name)) {
  absl::StatusOr<std::vector<std::string>> names = FoldersIn(disk, folder);
  return names.ok() && std::any_of(names->begin(), names->end(), [&](const std::string& name) {
           const std::string path = Join(folder, name);
           return is_ours(name) && (disk.Stat(Join(path, kManifestFile)).ok() ||
                                    disk.Stat(Join(path, kRecordFile)).ok());
         });
}

// In the order in which things are moved, so that none is missed on its way.
bool HoldsAny(Disk& disk, const std::string& job) {
  return HoldsAttempts(disk, AttemptsDir(job)) ||
         HoldsRecords(disk, CheckpointsDir(job),
                      [](const std::string& name) { return DecodeName(name).has_value(); }) ||
         HoldsRecords(disk, RetiredDir(job),
                      [](const std::string& name) { return ParseRetiredName(name).has_value(); }) ||
         HoldsAttempts(disk, FailedDir(job));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListJobFolders(Disk& disk) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(disk, ""));
  std::vector<std::string> jobs;
  for (const std::string& name : names) {
    std::optional<std::string> job = DecodeName(name);
    if (!job || name == kOwnDir) continue;
    for (const std::string& folder : {CheckpointsDir(*job), AttemptsDir(*job), FailedDir(*job)}) {
      absl::StatusOr<FileInfo> info = disk.Stat(folder);
      if (!info.ok() || info->kind != FileKind::kFolder) continue;
      jobs.push_back(*std::move(job));
      break;
    }
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

absl::StatusOr<std::vector<std::string>> ListJobs(Disk& disk) {
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, ListJobFolders(disk));
  std::erase_if(jobs, [&disk](const std::string& job) { return !HoldsAny(disk, job); });
  return jobs;
}

absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(Disk& disk, absl::string_view job) {
  std::set<std::string> ids;
  auto add_live = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(disk, CheckpointsDir(job)));
    for (const std::string& name : names) {
      if (std::optional<std::string> id = DecodeName(name)) ids.insert(*std::move(id));
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(add_live());
  ASSIGN_OR_RETURN(std::vector<std::string> retired, FoldersIn(disk, RetiredDir(job)));
  for (const std::string& name : retired) {
    if (std::optional<RetiredName> parsed = ParseRetiredName(name)) ids.insert(parsed->id);
  }
  RETURN_IF_ERROR(add_live());

  std::vector<CheckpointInfo> result;
  for (const std::string& id : ids) {
    ASSIGN_OR_RETURN(std::optional<CheckpointInfo> info, FindPublished(disk, job, id));
    if (info.has_value()) result.push_back(*std::move(info));
  }
  std::sort(result.begin(), result.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return AttemptOf(a) < AttemptOf(b);
  });
  return result;
}

absl::Status SyncListed(Disk& disk, absl::string_view job) {
  for (const std::string& folder :
       {RetiredDir(job), CheckpointsDir(job), FailedDir(job), AttemptsDir(job)}) {
    absl::Status synced = disk.SyncDir(folder);
    if (!synced.ok() && !IsAbsent(synced)) return synced;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Outcome>> ListFailed(Disk& disk, absl::string_view job) {
  ASSIGN_OR_RETURN(std::vector<AttemptName> attempts, AttemptsIn(disk, FailedDir(job)));
  std::vector<Outcome> result;
  for (const AttemptName& attempt : attempts) {
    std::string path = Join(FailedAttemptDir(job, attempt), kOutcomeFile);
    absl::StatusOr<std::string> bytes = ReadSmallFile(disk, path, kRecordFileBytesMax);
    absl::StatusOr<Outcome> outcome =
        bytes.ok() ? DecodeOutcome(*bytes) : absl::StatusOr<Outcome>(bytes.status());
    if (!outcome.ok()) {
      outcome = Outcome();
      outcome->record.job = std::string(job);
      outcome->record.attempt = attempt;
      outcome->failure.status =
          absl::AbortedError("the attempt failed; why cannot be read from its outcome record");
      outcome->failure.phase = "settle";
    }
    result.push_back(*std::move(outcome));
  }
  return result;
}

absl::StatusOr<std::vector<UnfinishedAttempt>> ListUnfinished(Disk& disk, absl::string_view job) {
  ASSIGN_OR_RETURN(std::vector<AttemptName> attempts, AttemptsIn(disk, AttemptsDir(job)));
  std::vector<UnfinishedAttempt> result;
  for (const AttemptName& name : attempts) {
    std::string folder = AttemptDir(job, name);
    UnfinishedAttempt attempt;
    absl::StatusOr<AttemptRecord> record = ReadRecord(disk, folder);
    attempt.status = record.status();
    if (record.ok()) attempt.record = *std::move(record);
    attempt.record.job = std::string(job);
    attempt.record.attempt = name;
    absl::StatusOr<std::vector<DirEntry>> entries = disk.List(folder);
    // Ended while we looked.
    if (absl::IsNotFound(entries.status())) continue;
    if (!entries.ok()) return entries.status();
    for (const DirEntry& entry : *entries) {
      absl::StatusOr<FileInfo> info = disk.Stat(Join(folder, entry.name));
      if (info.ok() && info->kind == FileKind::kFile) {
        attempt.files.push_back({entry.name, info->size_bytes});
      }
    }
    result.push_back(std::move(attempt));
  }
  return result;
}

absl::StatusOr<std::vector<RetiredName>> ListTrash(Disk& disk, absl::string_view job) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, FoldersIn(disk, TrashDir(job)));
  std::vector<RetiredName> result;
  for (const std::string& name : names) {
    if (std::optional<RetiredName> parsed = ParseRetiredName(name)) result.push_back(*parsed);
  }
  return result;
}

absl::StatusOr<CheckpointInfo> FindCheckpoint(Disk& disk, absl::string_view job,
                                              absl::string_view id) {
  ASSIGN_OR_RETURN(std::optional<CheckpointInfo> found, FindPublished(disk, job, id));
  if (found.has_value()) {
    if (!found->status.ok()) return found->status;
    return *std::move(found);
  }
  ASSIGN_OR_RETURN(std::vector<UnfinishedAttempt> unfinished, ListUnfinished(disk, job));
  std::vector<std::string> names;
  for (const UnfinishedAttempt& attempt : unfinished) {
    if (attempt.record.checkpoint_id == id) names.push_back(ToString(attempt.record.attempt));
  }
  if (names.empty()) {
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint \"", id, "\" of job \"", job, "\""));
  }
  return absl::FailedPreconditionError(absl::StrCat("checkpoint \"", id, "\" of job \"", job,
                                                    "\" is not committed yet: attempt ",
                                                    DescribeSome(std::move(names))));
}

absl::StatusOr<CheckpointInfo> Latest(Disk& disk, absl::string_view job) {
  ASSIGN_OR_RETURN(std::vector<CheckpointInfo> checkpoints, ListCheckpoints(disk, job));
  std::vector<std::string> damaged;
  for (auto info = checkpoints.rbegin(); info != checkpoints.rend(); ++info) {
    if (info->status.ok()) return std::move(*info);
    damaged.push_back(absl::StrCat(info->id, " (", info->status.message(), ")"));
  }
  if (!damaged.empty()) {
    return absl::DataLossError(absl::StrCat(
        "job \"", job, "\" has only damaged checkpoints: ", DescribeSome(std::move(damaged))));
  }
  ASSIGN_OR_RETURN(std::vector<UnfinishedAttempt> unfinished, ListUnfinished(disk, job));
  if (unfinished.empty()) {
    return absl::NotFoundError(absl::StrCat("job \"", job, "\" has no checkpoint"));
  }
  std::vector<std::string> names;
  for (const UnfinishedAttempt& attempt : unfinished) names.push_back(Describe(attempt));
  return absl::FailedPreconditionError(absl::StrCat(
      "job \"", job,
      "\" has only unfinished checkpoints, not committed yet: ", DescribeSome(std::move(names))));
}

absl::StatusOr<std::vector<Fragment>> LoadFragments(Disk& disk, const CheckpointInfo& info) {
  std::vector<Fragment> result;
  for (const FragmentRef& ref : info.manifest.fragments) {
    std::string path = Join(info.path, ref.file);
    ASSIGN_OR_RETURN(std::string bytes, ReadSmallFile(disk, path, kRecordFileBytesMax));
    if (bytes.size() != ref.bytes || Crc32c(bytes) != ref.crc32c) {
      return absl::DataLossError(absl::StrCat(path,
                                              " is not what the manifest names: ", bytes.size(),
                                              " bytes of ", ref.bytes, ", or another checksum"));
    }
    absl::StatusOr<Fragment> fragment = DecodeFragment(bytes);
    if (!fragment.ok()) return WithContext(fragment.status(), path);
    result.push_back(*std::move(fragment));
  }
  return result;
}

}  // namespace ckptd
