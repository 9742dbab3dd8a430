#include "tests/sim/oracle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

constexpr char kJob[] = "job";

bool HasRecord(Disk& disk, const std::string& folder, const AttemptName& attempt) {
  absl::StatusOr<std::string> bytes =
      ReadSmallFile(disk, Join(folder, kRecordFile), kRecordFileBytesMax);
  if (!bytes.ok()) return false;
  absl::StatusOr<AttemptRecord> record = DecodeAttemptRecord(*bytes);
  return record.ok() && record->attempt == attempt;
}

}  // namespace

std::string Told::Text() const {
  std::string text = absl::StrCat(begun, durable_nodes, abort_asked, committed, failed, ",",
                                  absl::StrJoin(deleting, ","));
  for (const AttemptName& attempt : deleted) absl::StrAppend(&text, ",", ToString(attempt));
  return text;
}

bool IsListed(const std::vector<CheckpointInfo>& list, const AttemptName& attempt) {
  return std::any_of(list.begin(), list.end(), [&](const CheckpointInfo& info) {
    return info.status.ok() && info.manifest.attempt == attempt;
  });
}

void Oracle::Expect(const AttemptRecord& record, std::vector<TestNode> nodes) {
  expected_[record.attempt] = {record.checkpoint_id, record.world_size, std::move(nodes)};
}

void Oracle::Forget(absl::string_view checkpoint_id) {
  std::erase_if(expected_, [&](const auto& entry) { return entry.second.id == checkpoint_id; });
}

const std::vector<TestNode>& Oracle::Nodes(const AttemptName& attempt) const {
  return expected_.at(attempt).nodes;
}

void Oracle::AddForeign(std::string path, std::string content) {
  foreign_[std::move(path)] = std::move(content);
}

std::string Oracle::CheckAnyTime(Disk& disk, const Told& told, const AttemptRecord& record) const {
  absl::StatusOr<std::vector<CheckpointInfo>> list = ListCheckpoints(disk, kJob);
  if (!list.ok()) return absl::StrCat("no list: ", list.status().message());
  bool finds_damaged = false;
  for (const CheckpointInfo& info : *list) {
    if (!info.status.ok() && info.id == damaged_) {
      finds_damaged = true;
      continue;
    }
    if (!info.status.ok()) return absl::StrCat("listed and damaged: ", info.status.message());
    if (std::string wrong = CheckWhole(disk, info); !wrong.empty()) return wrong;
  }
  if (!damaged_.empty() && !finds_damaged) return "the damaged one is gone";
  if (std::string wrong = CheckList(*list, told, record.attempt); !wrong.empty()) return wrong;
  if (!told.begun || IsListed(*list, record.attempt) ||
      HasRecord(disk, AttemptDir(kJob, record.attempt), record.attempt) ||
      HasRecord(disk, FailedAttemptDir(kJob, record.attempt), record.attempt)) {
    return "";
  }
  return "begun, and the record is gone";
}

std::string Oracle::CheckList(const std::vector<CheckpointInfo>& list, const Told& told,
                              const AttemptName& attempt) const {
  bool is_new = IsListed(list, attempt);
  bool is_old = old_.has_value() && IsListed(list, *old_);
  if (told.committed && told.failed) return "committed and failed were told";
  if (told.committed && !is_new) return "committed was told, and it is not listed";
  if (told.failed && is_new) return "failed was told, and it is listed";
  if (is_new && is_old) return "both the old and the new one are listed";
  bool may_miss = old_.has_value() && told.deleting.contains(expected_.at(*old_).id);
  if (old_.has_value() && !is_new && !is_old && !may_miss) {
    return "a reader finds neither the old nor the new one";
  }
  return CheckDeleted(list, told);
}

std::string Oracle::CheckDeleted(const std::vector<CheckpointInfo>& list, const Told& told) const {
  for (const AttemptName& attempt : told.deleted) {
    if (IsListed(list, attempt)) return "deleted was told, and it is listed";
  }
  for (const AttemptName& attempt : older_) {
    if (!IsListed(list, attempt) && !told.deleting.contains(expected_.at(attempt).id)) {
      return "an older checkpoint is gone that nobody deletes";
    }
  }
  bool any = std::any_of(list.begin(), list.end(),
                         [](const CheckpointInfo& info) { return info.status.ok(); });
  if (!older_.empty() && !any) return "no checkpoint is left";
  return "";
}

std::string Oracle::CheckWhole(Disk& disk, const CheckpointInfo& info) const {
  auto expected = expected_.find(info.manifest.attempt);
  if (expected == expected_.end()) return "listed, and nobody has saved it";
  if (info.manifest.world_size != expected->second.world_size) {
    return "listed with another world size";
  }
  absl::StatusOr<std::vector<Fragment>> fragments = LoadFragments(disk, info);
  if (!fragments.ok()) {
    return absl::StrCat("listed and not whole: ", fragments.status().message());
  }
  for (const TestNode& node : expected->second.nodes) {
    for (const TestNode::Shard& shard : node.shards) {
      absl::StatusOr<std::string> bytes =
          ReadSmallFile(disk, Join(info.path, shard.name), kRecordFileBytesMax);
      if (!bytes.ok()) return absl::StrCat("listed and not whole: ", bytes.status().message());
      if (*bytes != shard.bytes) return absl::StrCat("listed and not equal: ", shard.name);
    }
  }
  return "";
}

std::string Oracle::CheckForeign(Disk& disk) const {
  for (const auto& [path, content] : foreign_) {
    absl::StatusOr<std::string> bytes = ReadSmallFile(disk, path, kRecordFileBytesMax);
    if (!bytes.ok() || *bytes != content) return absl::StrCat("a foreign file changed: ", path);
  }
  return "";
}

std::string Oracle::CheckSettled(Disk& disk, const AttemptRecord& record) const {
  absl::StatusOr<std::vector<UnfinishedAttempt>> unfinished = ListUnfinished(disk, kJob);
  if (!unfinished.ok() || !unfinished->empty()) return "an unfinished attempt stays";
  absl::StatusOr<std::vector<DirEntry>> kept = disk.List(FailedAttemptDir(kJob, record.attempt));
  if (kept.ok()) {
    for (const DirEntry& entry : *kept) {
      if (entry.name != kRecordFile && entry.name != kOutcomeFile) {
        return absl::StrCat("a failed attempt keeps ", entry.name);
      }
    }
  }
  return CheckForeign(disk);
}

}  // namespace ckptd
