#include "client/cpp/state_plan.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd::inline client {
namespace {

absl::Status InTensor(const absl::Status& status, absl::string_view name) {
  return WithContext(status, absl::StrCat("tensor ", QuoteName(name)));
}

// Row-major content of a small tensor, whatever its strides.
uint32_t ContentCrc(const StridedView& view) {
  std::vector<std::byte> content(view.bytes());
  view.Gather(0, content);
  return Crc32c(content);
}

absl::Status PlanTensor(TensorView tensor, PlannedState& planned, std::vector<ChunkView>& chunks) {
  TensorEntry& entry = planned.plan.tensors.emplace_back();
  entry.name = std::move(tensor.name);
  entry.dtype = tensor.dtype;
  entry.shape = std::move(tensor.shape);
  entry.rank_local = tensor.rank_local;
  entry.chunks.reserve(tensor.chunks.size());
  for (ChunkView& chunk : tensor.chunks) {
    absl::Status status = CheckStrides(chunk.box.sizes, chunk.strides_bytes, chunk.data);
    if (!status.ok()) return InTensor(status, entry.name);
    entry.chunks.push_back(std::move(chunk.box));
    chunks.push_back(std::move(chunk));
  }
  return absl::OkStatus();
}

void PlanItem(ItemValue item, PlannedState& planned) {
  ItemEntry& entry = planned.plan.items.emplace_back();
  entry.name = std::move(item.name);
  entry.kind = item.kind;
  entry.rank_local = item.rank_local;
  entry.bytes = item.value.size();
  entry.crc32c = Crc32c(item.value);
  if (entry.bytes <= kInlineItemBytesMax) {
    entry.value = std::move(item.value);
    item.value.clear();
  }
  planned.item_values.push_back(std::move(item.value));
}

// The plan is valid: sizes can be multiplied.
void MakeViews(PlannedState& planned, std::vector<ChunkView>& chunks) {
  planned.views.reserve(chunks.size() + planned.item_values.size());
  for (TensorEntry& tensor : planned.plan.tensors) {
    for (const Box& box : tensor.chunks) {
      const ChunkView& chunk = chunks[planned.views.size()];
      // Views serve both directions; nothing writes through those of a save.
      auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(chunk.data));
      planned.views.emplace_back(data, box.sizes, Info(tensor.dtype).size_bytes,
                                 chunk.strides_bytes);
    }
    if (tensor.rank_local || tensor.chunks.size() != 1) continue;
    const StridedView& view = planned.views.back();
    if (IsWhole(tensor.chunks[0], tensor.shape) && view.bytes() <= kCheckedReplicaBytesMax) {
      tensor.content_crc32c = ContentCrc(view);
    }
  }
  for (std::string& value : planned.item_values) {
    planned.views.emplace_back(reinterpret_cast<std::byte*>(value.data()),
                               std::vector<uint64_t>{value.size()}, 1, std::vector<int64_t>{});
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<PlannedState>> PlanState(State state) {
  auto planned = std::make_unique<PlannedState>();
  std::vector<ChunkView> chunks;
  planned->plan.tensors.reserve(state.tensors.size());
  for (TensorView& tensor : state.tensors) {
    RETURN_IF_ERROR(PlanTensor(std::move(tensor), *planned, chunks));
  }
  for (ItemValue& item : state.items) PlanItem(std::move(item), *planned);
  RETURN_IF_ERROR(ValidateRankPlan(planned->plan));
  MakeViews(*planned, chunks);
  return planned;
}

absl::Status CheckTargets(const std::vector<TensorTarget>& targets) {
  absl::flat_hash_set<absl::string_view> names;
  for (const TensorTarget& target : targets) {
    absl::Status status = CheckEntryName(target.name);
    if (status.ok() && !names.insert(target.name).second) {
      status = absl::InvalidArgumentError("the name comes twice");
    }
    if (status.ok() && !IsDType(static_cast<int>(target.dtype))) {
      status = absl::InvalidArgumentError(
          absl::StrCat("unknown dtype ", static_cast<int>(target.dtype)));
    }
    if (status.ok()) {
      status = CheckedBytes(target.shape, Info(target.dtype).size_bytes).status();
    }
    for (const BoxTarget& box : target.boxes) {
      if (status.ok()) status = CheckInside(box.box, target.shape);
      if (status.ok()) status = CheckStrides(box.box.sizes, box.strides_bytes, box.data);
    }
    if (!status.ok()) return InTensor(status, target.name);
  }
  return absl::OkStatus();
}

absl::Status CheckText(absl::string_view what, absl::string_view text) {
  RETURN_IF_ERROR(CheckName(what, text));
  return WithContext(CheckEntryName(text), absl::StrCat(what, " ", QuoteName(text)));
}

}  // namespace ckptd::inline client
