#include "storage/commit/check_attempt.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

constexpr size_t kNamedRanksMax = 10;

bool IsSafetensors(absl::string_view name) { return absl::EndsWith(name, ".safetensors"); }

}  // namespace

std::string TemporaryName(absl::string_view file_name, absl::string_view node) {
  return absl::StrCat(file_name, ".", EncodeName(node), ".tmp");
}

bool IsTemporaryName(absl::string_view name) {
  if (name == kManifestTemporaryFile) return true;
  return absl::EndsWith(name, ".tmp") &&
         (absl::StartsWith(name, absl::StrCat(kManifestFile, ".")) ||
          absl::StartsWith(name, "fragment-"));
}

bool IsOwnFile(absl::string_view name) {
  return IsShardFile(name) || NodeOfFragmentFile(name).has_value() || name == kManifestFile ||
         name == kRecordFile || name == kOutcomeFile || IsTemporaryName(name);
}

CheckAttempt::CheckAttempt(Options options) : options_(std::move(options)) {
  Do(ListAction(options_.folder));
}

void CheckAttempt::Advance(ActionResult result) {
  absl::Status status;
  switch (state_) {
    case State::kList:
      if (!result.status.ok()) return End(result.status);
      return OnListed(result);
    case State::kReadFragment:
      status = OnFragment(result);
      if (!status.ok()) return End(status);
      return ReadNextFragment();
    case State::kStatShard:
      status = OnShard(result);
      if (!status.ok()) return End(status);
      return StatNextShard();
  }
}

void CheckAttempt::End(absl::Status status) {
  status_ = WithContext(status, options_.folder);
  if (!status_.ok()) fragments_.clear();
}

void CheckAttempt::OnListed(const ActionResult& result) {
  entries_ = result.entries;
  for (const DirEntry& entry : entries_) {
    if (NodeOfFragmentFile(entry.name)) names_.push_back(entry.name);
  }
  ReadNextFragment();
}

void CheckAttempt::ReadNextFragment() {
  if (fragments_.size() < names_.size()) {
    state_ = State::kReadFragment;
    return Do(ReadFileAction(Join(options_.folder, names_[fragments_.size()])));
  }
  absl::Status status = CheckRanks();
  if (status.ok()) status = CheckReports();
  if (status.ok()) status = SortTheRest();
  if (!status.ok()) return End(status);
  StatNextShard();
}

absl::Status CheckAttempt::OnFragment(const ActionResult& result) {
  RETURN_IF_ERROR(result.status);
  const std::string& name = names_[fragments_.size()];
  absl::StatusOr<Fragment> fragment = DecodeFragment(result.bytes);
  if (!fragment.ok()) return WithContext(fragment.status(), name);
  const AttemptRecord& record = options_.record;
  if (fragment->attempt != record.attempt || fragment->job != record.job ||
      fragment->checkpoint_id != record.checkpoint_id || FragmentFileName(fragment->node) != name) {
    return absl::DataLossError(absl::StrCat(
        name, " belongs to attempt ", ToString(fragment->attempt), " and node ", fragment->node));
  }
  for (const StoredFile& file : fragment->files) shards_.push_back(file);
  fragments_.push_back({name, result.bytes, *std::move(fragment)});
  return absl::OkStatus();
}

absl::Status CheckAttempt::CheckRanks() const {
  std::set<uint32_t> there;
  for (const FragmentFile& file : fragments_) {
    there.insert(file.fragment.ranks.begin(), file.fragment.ranks.end());
  }
  uint32_t world_size = options_.record.world_size;
  if (there.size() == world_size) return absl::OkStatus();
  if (Mutated(Mutation::kCommitBeforeLastFragment) && !there.empty()) return absl::OkStatus();
  std::vector<std::string> missing;
  for (uint32_t rank = 0; rank < world_size && missing.size() <= kNamedRanksMax; ++rank) {
    if (!there.contains(rank)) missing.push_back(absl::StrCat(rank));
  }
  if (missing.size() > kNamedRanksMax) missing.back() = "…";
  return absl::NotFoundError(
      absl::StrCat("no bytes of rank ", absl::StrJoin(missing, ", "), " are durable"));
}

absl::Status CheckAttempt::CheckReports() const {
  for (const FragmentRef& ref : options_.durable) {
    auto there = std::find_if(fragments_.begin(), fragments_.end(), [&](const FragmentFile& file) {
      return file.fragment.node == ref.node;
    });
    if (there == fragments_.end()) {
      return absl::NotFoundError(absl::StrCat("node ", ref.node, " has reported ", ref.file,
                                              " durable, and it is not there"));
    }
    if (there->bytes.size() != ref.bytes || Crc32c(there->bytes) != ref.crc32c) {
      return absl::DataLossError(
          absl::StrCat(ref.file, " is not what node ", ref.node, " has reported durable"));
    }
  }
  return absl::OkStatus();
}

// What no fragment names: shards and temporaries of an earlier life are left over; a foreign
// safetensors file would be read by stock readers as a part of the checkpoint.
absl::Status CheckAttempt::SortTheRest() {
  std::set<std::string> named;
  std::set<std::string> temporaries = {
      TemporaryName(kManifestFile, options_.node),
      TemporaryName(FragmentFileName(options_.node), options_.node)};
  for (const StoredFile& shard : shards_) named.insert(shard.name);
  for (const DirEntry& entry : entries_) {
    if (named.contains(entry.name)) continue;
    if (temporaries.contains(entry.name) || IsShardFile(entry.name)) {
      leftovers_.push_back(entry.name);
    } else if (IsSafetensors(entry.name)) {
      return absl::FailedPreconditionError(
          absl::StrCat(entry.name, " is not ours, and readers would take it for a shard"));
    }
  }
  return absl::OkStatus();
}

void CheckAttempt::StatNextShard() {
  if (index_ == shards_.size()) return End(absl::OkStatus());
  state_ = State::kStatShard;
  Do(StatAction(Join(options_.folder, shards_[index_].name)));
}

absl::Status CheckAttempt::OnShard(const ActionResult& result) {
  RETURN_IF_ERROR(result.status);
  const StoredFile& shard = shards_[index_++];
  if (result.info.kind != FileKind::kFile) {
    return absl::DataLossError(absl::StrCat(shard.name, " is no file"));
  }
  if (result.info.size_bytes != shard.bytes) {
    return absl::DataLossError(absl::StrCat(shard.name, " of rank ", shard.rank, " has ",
                                            result.info.size_bytes, " bytes instead of ",
                                            shard.bytes));
  }
  return absl::OkStatus();
}

}  // namespace ckptd
