#include "server/rpc/requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

constexpr size_t kRequestIdBytesMax = 200;

// Longer than anybody waits, and still far from what an int64 of nanoseconds holds.
constexpr uint64_t kWaitMsMax = uint64_t{100} * 365 * 24 * 3600 * 1000;

absl::Duration WaitOf(uint64_t ms) {
  return absl::Milliseconds(static_cast<int64_t>(std::min(ms, kWaitMsMax)));
}

Box FromProto(const v1::Box& box) {
  return Box{{box.offsets().begin(), box.offsets().end()},
             {box.sizes().begin(), box.sizes().end()}};
}

absl::StatusOr<DType> ParseDType(uint32_t number, absl::string_view name) {
  if (number > 255 || !IsDType(static_cast<int>(number))) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", QuoteName(name), ": ", number, " is no dtype"));
  }
  return static_cast<DType>(number);
}

absl::Status CheckSize(absl::string_view what, const PlanSize& size) {
  if (size.entries > kEntriesPerRankMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has at most ", kEntriesPerRankMax, " entries"));
  }
  if (size.bytes > kPlanBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has at most ", kPlanBytesMax, " bytes of description"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendPlanPart(const v1::PlanPart& part, RankPlan& plan, PlanSize& size) {
  size.entries += part.tensors_size() + part.items_size();
  for (const v1::TensorEntry& message : part.tensors()) size.entries += message.chunks_size();
  size.bytes += part.ByteSizeLong();
  RETURN_IF_ERROR(CheckSize("a plan", size));
  for (const v1::TensorEntry& message : part.tensors()) {
    TensorEntry entry;
    entry.name = message.name();
    ASSIGN_OR_RETURN(entry.dtype, ParseDType(message.dtype(), message.name()));
    entry.shape.assign(message.shape().begin(), message.shape().end());
    entry.rank_local = message.rank_local();
    for (const v1::Box& box : message.chunks()) entry.chunks.push_back(FromProto(box));
    if (message.has_content_crc32c()) entry.content_crc32c = message.content_crc32c();
    plan.tensors.push_back(std::move(entry));
  }
  for (const v1::ItemEntry& message : part.items()) {
    if (message.kind() < v1::ITEM_KIND_JSON || message.kind() > v1::ITEM_KIND_BYTES) {
      return absl::InvalidArgumentError(
          absl::StrCat("item ", QuoteName(message.name()), ": ", message.kind(), " is no kind"));
    }
    ItemEntry entry;
    entry.name = message.name();
    entry.kind = static_cast<ItemKind>(message.kind());
    entry.rank_local = message.rank_local();
    entry.bytes = message.bytes();
    entry.crc32c = message.crc32c();
    entry.value = message.value();
    plan.items.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::StatusOr<SaveOptions> ParseSaveBegin(const v1::SaveBegin& begin) {
  RETURN_IF_ERROR(CheckName("checkpoint id", begin.checkpoint_id()));
  if (begin.request_id().empty() || begin.request_id().size() > kRequestIdBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a request id has 1 to ", kRequestIdBytesMax, " bytes"));
  }
  if (!v1::OnExisting_IsValid(begin.on_existing()) || !v1::OnOverlap_IsValid(begin.on_overlap()) ||
      !v1::Replicas_IsValid(begin.replicas())) {
    return absl::InvalidArgumentError(
        absl::StrCat("a choice that this daemon does not know: on_existing ", begin.on_existing(),
                     ", on_overlap ", begin.on_overlap(), ", replicas ", begin.replicas()));
  }
  SaveOptions options;
  options.checkpoint_id = begin.checkpoint_id();
  options.step = begin.step();
  options.request_id = begin.request_id();
  options.replace = begin.on_existing() == v1::ON_EXISTING_REPLACE;
  options.reject_overlap = begin.on_overlap() == v1::ON_OVERLAP_REJECT;
  options.replicas = begin.replicas() == v1::REPLICAS_LOWEST_RANK ? ReplicaPolicy::kLowestRank
                                                                  : ReplicaPolicy::kError;
  options.join_timeout = WaitOf(begin.join_timeout_ms());
  options.keep_last = begin.keep_last();
  return options;
}

absl::StatusOr<ResumeState> ParseResume(const v1::Resume& resume) {
  std::optional<AttemptName> attempt = ParseAttemptName(resume.attempt());
  if (!attempt) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(resume.attempt()), " is no attempt's name"));
  }
  ResumeState state;
  state.attempt = *attempt;
  state.ordinals.assign(resume.ordinals().begin(), resume.ordinals().end());
  state.staged = resume.staged();
  for (const v1::SealedBlock& block : resume.sealed()) {
    state.sealed.push_back({block.image_block(),
                            block.arena_block(),
                            {block.unit_crc32c().begin(), block.unit_crc32c().end()}});
  }
  return state;
}

LoadRequest ParseLoadBegin(const v1::LoadBegin& begin) {
  LoadRequest request;
  request.checkpoint_id = begin.checkpoint_id();
  request.restore_id = begin.restore_id();
  request.items = begin.items();
  request.options.partial = begin.partial();
  request.options.strict = begin.strict();
  request.wait = WaitOf(begin.wait_ms());
  return request;
}

absl::Status AppendWants(const v1::LoadWants& part, std::vector<Want>& wants, PlanSize& size) {
  size.entries += part.wants_size();
  for (const v1::Want& message : part.wants()) size.entries += message.boxes_size();
  size.bytes += part.ByteSizeLong();
  RETURN_IF_ERROR(CheckSize("what a load wants", size));
  for (const v1::Want& message : part.wants()) {
    Want want;
    want.name = message.name();
    ASSIGN_OR_RETURN(want.dtype, ParseDType(message.dtype(), message.name()));
    want.shape.assign(message.shape().begin(), message.shape().end());
    absl::StatusOr<uint64_t> bytes = CheckedBytes(want.shape, Info(want.dtype).size_bytes);
    if (!bytes.ok())
      return WithContext(bytes.status(), absl::StrCat("tensor ", QuoteName(want.name)));
    want.rank_local = message.rank_local();
    for (const v1::Box& box : message.boxes()) want.boxes.push_back(FromProto(box));
    wants.push_back(std::move(want));
  }
  return absl::OkStatus();
}

v1::Box ToProto(const Box& box) {
  v1::Box message;
  message.mutable_offsets()->Add(box.offsets.begin(), box.offsets.end());
  message.mutable_sizes()->Add(box.sizes.begin(), box.sizes.end());
  return message;
}

v1::ItemEntry ToProto(const StoredItem& item) {
  v1::ItemEntry message;
  message.set_name(item.name);
  message.set_kind(static_cast<v1::ItemKind>(item.kind));
  message.set_rank_local(item.rank_local.has_value());
  message.set_bytes(item.bytes);
  message.set_crc32c(item.crc32c);
  message.set_value(item.value);
  if (item.rank_local) message.set_rank(*item.rank_local);
  return message;
}

}  // namespace ckptd
