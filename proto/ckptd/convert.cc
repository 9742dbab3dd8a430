#include "proto/ckptd/convert.h"

#include <fnmatch.h>

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/ckptd/version.h"
#include "storage/base/status.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {
namespace {

std::string Text(absl::string_view text) {
  return CheckEntryName(text).ok() ? std::string(text) : absl::CHexEscape(text);
}

v1::Failure FailureOf(const absl::Status& status) {
  v1::Failure message;
  message.set_code(std::string(CodeName(status.code())));
  message.set_message(Text(status.message()));
  return message;
}

void SetRecord(const AttemptRecord& record, v1::Attempt& message) {
  message.set_job(Text(record.job));
  message.set_checkpoint_id(Text(record.checkpoint_id));
  message.set_step(record.step);
  message.set_sequence(record.attempt.sequence);
  message.set_attempt(ToString(record.attempt));
  message.set_incarnation(Text(record.incarnation));
  message.set_world_size(record.world_size);
  // A record that could not be read has no world size, and no time either.
  if (record.world_size > 0) message.set_begun_unix_ns(absl::ToUnixNanos(record.begun));
}

bool Matches(const std::string& glob, const std::string& name) {
  return glob.empty() || ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

v1::StoredChunk ToProto(const StoredChunk& chunk, const Fragment& fragment) {
  v1::StoredChunk message;
  message.mutable_box()->mutable_offsets()->Add(chunk.box.offsets.begin(), chunk.box.offsets.end());
  message.mutable_box()->mutable_sizes()->Add(chunk.box.sizes.begin(), chunk.box.sizes.end());
  message.set_file(fragment.files[chunk.file].name);
  message.set_file_offset_bytes(chunk.file_offset_bytes);
  message.set_bytes(chunk.bytes);
  return message;
}

// Collects parts of a size that a stream takes.
class ReplyParts {
 public:
  explicit ReplyParts(const v1::Checkpoint& checkpoint) {
    parts_.emplace_back();
    *parts_.back().mutable_checkpoint() = checkpoint;
  }
  void Add(v1::StoredTensor tensor) {
    MakeRoom(tensor.ByteSizeLong());
    *parts_.back().add_tensors() = std::move(tensor);
  }
  void Add(v1::ItemEntry item) {
    MakeRoom(item.ByteSizeLong());
    *parts_.back().add_items() = std::move(item);
  }
  std::vector<v1::DescribeReply> Take() { return std::move(parts_); }

 private:
  void MakeRoom(size_t bytes) {
    if (bytes_ > 0 && bytes_ + bytes > kStreamPartBytes) {
      parts_.emplace_back();
      bytes_ = 0;
    }
    bytes_ += bytes;
  }

  std::vector<v1::DescribeReply> parts_;
  size_t bytes_ = 0;  // In the last part.
};

using NameAndRank = std::pair<std::string, std::optional<uint32_t>>;

void AddTensors(const std::vector<Fragment>& fragments, const std::string& glob,
                ReplyParts& parts) {
  std::map<NameAndRank, std::vector<std::pair<const Fragment*, const StoredTensor*>>> by_name;
  for (const Fragment& fragment : fragments) {
    for (const StoredTensor& tensor : fragment.tensors) {
      if (!Matches(glob, tensor.name)) continue;
      by_name[{tensor.name, tensor.rank_local}].emplace_back(&fragment, &tensor);
    }
  }
  for (const auto& [key, stored] : by_name) {
    const StoredTensor& first = *stored.front().second;
    v1::StoredTensor message;
    message.set_name(first.name);
    message.set_dtype(static_cast<uint32_t>(first.dtype));
    message.mutable_shape()->Add(first.shape.begin(), first.shape.end());
    if (first.rank_local.has_value()) message.set_rank_local(*first.rank_local);
    for (const auto& [fragment, tensor] : stored) {
      for (const StoredChunk& chunk : tensor->chunks) {
        *message.add_chunks() = ToProto(chunk, *fragment);
      }
    }
    parts.Add(std::move(message));
  }
}

void AddItems(const std::vector<Fragment>& fragments, const std::string& glob, ReplyParts& parts) {
  std::map<NameAndRank, const StoredItem*> by_name;
  for (const Fragment& fragment : fragments) {
    for (const StoredItem& item : fragment.items) {
      if (Matches(glob, item.name)) by_name.emplace(NameAndRank{item.name, item.rank_local}, &item);
    }
  }
  for (const auto& [key, item] : by_name) {
    v1::ItemEntry message;
    message.set_name(item->name);
    message.set_kind(static_cast<v1::ItemKind>(item->kind));
    message.set_rank_local(item->rank_local.has_value());
    if (item->rank_local.has_value()) message.set_rank(*item->rank_local);
    message.set_bytes(item->bytes);
    message.set_crc32c(item->crc32c);
    message.set_value(item->value);
    parts.Add(std::move(message));
  }
}

}  // namespace

v1::Failure ToProto(const Failure& failure) {
  v1::Failure message = FailureOf(failure.status);
  if (failure.rank.has_value()) message.set_rank(*failure.rank);
  message.set_node(Text(failure.node));
  message.set_phase(failure.phase);
  return message;
}

Failure FromProto(const v1::Failure& message) {
  Failure failure;
  absl::StatusCode code = CodeFromName(message.code());
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kUnknown;
  failure.status = absl::Status(code, message.message());
  if (message.has_rank()) failure.rank = message.rank();
  failure.node = message.node();
  failure.phase = message.phase();
  return failure;
}

v1::Checkpoint ToProto(const CheckpointInfo& info, const RootName& root) {
  v1::Checkpoint message;
  const Manifest& manifest = info.manifest;
  message.set_job(Text(info.job));
  message.set_id(Text(info.id));
  message.set_step(manifest.step);
  message.set_sequence(manifest.attempt.sequence);
  message.set_attempt(ToString(manifest.attempt));
  message.set_world_size(manifest.world_size);
  for (const FragmentRef& fragment : manifest.fragments) message.add_nodes(Text(fragment.node));
  message.set_tensors(manifest.tensors);
  message.set_items(manifest.items);
  message.set_bytes(manifest.bytes);
  message.set_files(manifest.files);
  message.set_begun_unix_ns(absl::ToUnixNanos(info.record.begun));
  message.set_committed_unix_ns(absl::ToUnixNanos(info.committed));
  message.set_path(Text(absl::StrCat(root.path, "/", info.path)));
  if (info.verdict.has_value()) {
    message.mutable_verified()->set_at_unix_ns(absl::ToUnixNanos(info.verdict->at));
    message.mutable_verified()->set_ok(info.verdict->ok);
  }
  message.set_root(std::string(root.label));
  return message;
}

void AddFiles(const std::vector<Fragment>& fragments, v1::Checkpoint& checkpoint) {
  for (const Fragment& fragment : fragments) {
    for (const StoredFile& file : fragment.files) {
      v1::FileStatus& status = *checkpoint.add_file_list();
      status.set_name(file.name);
      status.set_bytes(file.bytes);
      status.set_rank(file.rank);
      status.set_node(Text(fragment.node));
    }
  }
}

v1::DamagedCheckpoint ToDamaged(const CheckpointInfo& info, const RootName& root) {
  v1::DamagedCheckpoint message;
  message.set_job(Text(info.job));
  message.set_id(Text(info.id));
  message.set_path(Text(absl::StrCat(root.path, "/", info.path)));
  *message.mutable_error() = FailureOf(info.status);
  return message;
}

v1::Attempt ToProto(const Outcome& outcome) {
  v1::Attempt message;
  SetRecord(outcome.record, message);
  message.set_root(Text(outcome.root_label));
  message.set_state("failed");
  for (const RankOutcome& rank : outcome.ranks) {
    v1::RankStatus& status = *message.add_ranks();
    status.set_rank(rank.rank);
    status.set_node(Text(rank.node));
    status.set_pid(rank.pid);
    status.set_state(rank.state);
    status.set_planned_bytes(rank.planned_bytes);
    status.set_staged_bytes(rank.staged_bytes);
    status.set_written_bytes(rank.written_bytes);
    message.set_planned_bytes(message.planned_bytes() + rank.planned_bytes);
    message.set_staged_bytes(message.staged_bytes() + rank.staged_bytes);
    message.set_written_bytes(message.written_bytes() + rank.written_bytes);
    if (rank.state == "missing") message.add_ranks_missing(rank.rank);
  }
  if (outcome.record.world_size > 0) message.set_ended_unix_ns(absl::ToUnixNanos(outcome.ended));
  *message.mutable_error() = ToProto(outcome.failure);
  return message;
}

v1::Attempt ToProto(const UnfinishedAttempt& attempt, const RootName& root) {
  v1::Attempt message;
  SetRecord(attempt.record, message);
  message.set_root(std::string(root.label));
  message.set_state("unknown");
  for (const UnfinishedAttempt::FileSize& file : attempt.files) {
    v1::FileStatus& status = *message.add_files();
    status.set_name(Text(file.name));
    status.set_bytes(file.bytes);
    if (IsShardFile(file.name)) message.set_written_bytes(message.written_bytes() + file.bytes);
  }
  if (!attempt.status.ok()) *message.mutable_error() = FailureOf(attempt.status);
  return message;
}

std::vector<v1::DescribeReply> DescribeParts(const std::vector<Fragment>& fragments,
                                             const v1::Checkpoint& checkpoint,
                                             absl::string_view glob) {
  ReplyParts parts(checkpoint);
  AddTensors(fragments, std::string(glob), parts);
  AddItems(fragments, std::string(glob), parts);
  return parts.Take();
}

v1::VerifyReply ToProto(const CheckpointInfo& info, const VerifyResult& result) {
  v1::VerifyReply message;
  message.set_job(Text(info.job));
  message.set_id(Text(info.id));
  message.set_ok(result.ok());
  message.set_bytes(result.bytes);
  for (const VerifyError& error : result.errors) {
    v1::VerifyError& entry = *message.add_errors();
    entry.set_file(Text(error.file));
    entry.set_tensor(error.tensor);
    entry.set_offset(error.offset_bytes);
    entry.set_bytes(error.bytes);
    entry.set_message(Text(error.message));
  }
  return message;
}

}  // namespace ckptd
