#include "client/cpp/wire.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/version.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

void Assign(const Box& box, v1::Box* out) {
  out->mutable_offsets()->Add(box.offsets.begin(), box.offsets.end());
  out->mutable_sizes()->Add(box.sizes.begin(), box.sizes.end());
}

void Assign(const TensorEntry& tensor, v1::TensorEntry* out) {
  out->set_name(tensor.name);
  out->set_dtype(static_cast<uint32_t>(tensor.dtype));
  out->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  out->set_rank_local(tensor.rank_local);
  for (const Box& chunk : tensor.chunks) Assign(chunk, out->add_chunks());
  if (tensor.content_crc32c) out->set_content_crc32c(*tensor.content_crc32c);
}

void Assign(const ItemEntry& item, v1::ItemEntry* out) {
  out->set_name(item.name);
  out->set_kind(static_cast<v1::ItemKind>(item.kind));
  out->set_rank_local(item.rank_local);
  out->set_bytes(item.bytes);
  out->set_crc32c(item.crc32c);
  out->set_value(item.value);
}

void Assign(const TensorTarget& target, v1::Want* out) {
  out->set_name(target.name);
  out->set_dtype(static_cast<uint32_t>(target.dtype));
  out->mutable_shape()->Add(target.shape.begin(), target.shape.end());
  out->set_rank_local(target.rank_local);
  for (const BoxTarget& box : target.boxes) Assign(box.box, out->add_boxes());
}

// Collects entries in a message and sends it when it is full.
template <typename Part>
class PartSender {
 public:
  explicit PartSender(absl::FunctionRef<bool(Part&)> send) : send_(send) {}

  Part& part() { return part_; }

  // After an entry of about `bytes` was added; false to stop.
  bool Added(uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ < kStreamPartBytes) return true;
    const bool go_on = send_(part_);
    part_.Clear();
    bytes_ = 0;
    return go_on;
  }

  void SendLast() {
    part_.set_last(true);
    send_(part_);
  }

 private:
  absl::FunctionRef<bool(Part&)> send_;
  Part part_;
  uint64_t bytes_ = 0;
};

absl::Time FromUnixNanos(int64_t ns) { return absl::FromUnixNanos(ns); }

}  // namespace

void ForEachPlanPart(const RankPlan& plan, absl::FunctionRef<bool(v1::PlanPart&)> send) {
  PartSender<v1::PlanPart> sender(send);
  for (const TensorEntry& tensor : plan.tensors) {
    v1::TensorEntry* entry = sender.part().add_tensors();
    Assign(tensor, entry);
    if (!sender.Added(entry->ByteSizeLong())) return;
  }
  for (const ItemEntry& item : plan.items) {
    v1::ItemEntry* entry = sender.part().add_items();
    Assign(item, entry);
    if (!sender.Added(entry->ByteSizeLong())) return;
  }
  sender.SendLast();
}

void ForEachWantsPart(const std::vector<TensorTarget>& targets,
                      absl::FunctionRef<bool(v1::LoadWants&)> send) {
  PartSender<v1::LoadWants> sender(send);
  for (const TensorTarget& target : targets) {
    v1::Want* want = sender.part().add_wants();
    Assign(target, want);
    if (!sender.Added(want->ByteSizeLong())) return;
  }
  sender.SendLast();
}

Box FromProto(const v1::Box& box) {
  return {{box.offsets().begin(), box.offsets().end()}, {box.sizes().begin(), box.sizes().end()}};
}

CheckpointInfo FromProto(const v1::Checkpoint& checkpoint) {
  CheckpointInfo info;
  info.job = checkpoint.job();
  info.id = checkpoint.id();
  info.step = checkpoint.step();
  info.sequence = checkpoint.sequence();
  info.attempt = checkpoint.attempt();
  info.world_size = checkpoint.world_size();
  info.nodes.assign(checkpoint.nodes().begin(), checkpoint.nodes().end());
  info.tensor_count = checkpoint.tensors();
  info.item_count = checkpoint.items();
  info.bytes = checkpoint.bytes();
  info.file_count = checkpoint.files();
  info.begun = FromUnixNanos(checkpoint.begun_unix_ns());
  info.committed = FromUnixNanos(checkpoint.committed_unix_ns());
  info.path = checkpoint.path();
  return info;
}

FailureInfo FromProto(const v1::Failure& failure) {
  FailureInfo info;
  absl::StatusCode code = CodeFromName(failure.code());
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kInternal;
  info.status = absl::Status(code, failure.message());
  if (failure.has_rank()) info.rank = failure.rank();
  info.node = failure.node();
  info.phase = failure.phase();
  return info;
}

AttemptInfo FromProto(const v1::Attempt& attempt) {
  AttemptInfo info;
  info.job = attempt.job();
  info.id = attempt.checkpoint_id();
  info.step = attempt.step();
  info.sequence = attempt.sequence();
  info.attempt = attempt.attempt();
  info.world_size = attempt.world_size();
  info.state = attempt.state();
  info.planned_bytes = attempt.planned_bytes();
  info.staged_bytes = attempt.staged_bytes();
  info.written_bytes = attempt.written_bytes();
  info.ranks_missing.assign(attempt.ranks_missing().begin(), attempt.ranks_missing().end());
  if (attempt.has_error()) info.error = FromProto(attempt.error());
  return info;
}

StoredItemInfo FromProto(const v1::ItemEntry& item) {
  StoredItemInfo info;
  info.name = item.name();
  info.kind = static_cast<ItemKind>(item.kind());
  if (item.has_rank()) info.rank = item.rank();
  info.bytes = item.bytes();
  info.value = item.value();
  return info;
}

absl::StatusOr<StoredTensorInfo> FromProto(const v1::StoredTensor& tensor) {
  if (!IsDType(static_cast<int>(tensor.dtype()))) {
    return absl::DataLossError(absl::StrCat("tensor ", QuoteName(tensor.name()),
                                            " has the unknown dtype ", tensor.dtype()));
  }
  StoredTensorInfo info;
  info.name = tensor.name();
  info.dtype = static_cast<DType>(tensor.dtype());
  info.shape.assign(tensor.shape().begin(), tensor.shape().end());
  if (tensor.has_rank_local()) info.rank_local = tensor.rank_local();
  for (const v1::StoredChunk& chunk : tensor.chunks()) {
    info.chunks.push_back(
        {FromProto(chunk.box()), chunk.file(), chunk.file_offset_bytes(), chunk.bytes()});
  }
  return info;
}

}  // namespace ckptd::inline client
