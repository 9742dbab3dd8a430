// The client's side of a save, and of a prewarm, whose plans are the same. The input is a sequence
// of SaveRequests.
#include <cstdint>
#include <string>
#include <vector>

#include "proto/ckptd/v1/checkpoint.pb.h"
#include "server/rpc/requests.h"
#include "storage/base/check.h"
#include "storage/format/paths.h"
#include "storage/format/shard_header.h"
#include "storage/plan/assignment.h"
#include "storage/plan/image_layout.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/properties.h"

namespace ckptd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kPrecondition = absl::StatusCode::kFailedPrecondition;
constexpr size_t kSectionsChecked = 8;  // One shard for each chunk of a tensor; they are alike.

void CheckBegin(const v1::SaveBegin& begin) {
  const absl::StatusOr<SaveOptions> options = ParseSaveBegin(begin);
  CheckAnswer(options.status(), {kInvalid});
  if (options.ok()) {
    const std::string file_name = EncodeName(options->checkpoint_id);
    CKPT_CHECK(file_name.size() <= kEncodedNameBytesMax && DecodeName(file_name).has_value(),
               "an id is a file name");
    CKPT_CHECK(!options->request_id.empty(), "a request has an id");
    CKPT_CHECK(options->join_timeout >= absl::ZeroDuration() &&
                   options->join_timeout < absl::InfiniteDuration(),
               "a time-out is finite");
  }
  if (!begin.has_resume()) return;
  const absl::StatusOr<ResumeState> resume = ParseResume(begin.resume());
  CheckAnswer(resume.status(), {kInvalid});
  if (!resume.ok()) return;
  CKPT_CHECK(ToString(resume->attempt) == begin.resume().attempt(), "an attempt has one name");
  CKPT_CHECK(resume->sealed.size() == static_cast<size_t>(begin.resume().sealed_size()),
             "no block is lost");
}

// What is written of the plan is laid out inside the image, and its headers are read back.
void CheckLayout(const RankPlan& plan, const std::vector<uint32_t>& ordinals) {
  const ImageLayout layout = LayOutImage(plan, ordinals);
  const std::vector<PlanPart> parts = Parts(plan);
  uint64_t end = 0;
  size_t placed_parts = 0;
  for (uint32_t number = 0; number < layout.sections.size(); ++number) {
    const Section& section = layout.sections[number];
    CKPT_CHECK(section.image_offset_bytes >= end, "sections do not overlap");
    end = section.image_offset_bytes + section.bytes;
    uint64_t offset = 0;
    for (const PlacedPart& placed : section.parts) {
      CKPT_CHECK(placed.offset_bytes == offset, "parts lie one after the other");
      CKPT_CHECK(placed.bytes == parts[placed.ordinal].bytes, "a part has its size");
      offset += placed.bytes;
      ++placed_parts;
    }
    CKPT_CHECK(offset == section.bytes, "a section ends with its last part");
    if (number >= kSectionsChecked) continue;
    const absl::StatusOr<std::string> header = BuildShardHeader(plan, layout, number, 0);
    CheckAnswer(header.status(), {absl::StatusCode::kResourceExhausted});
    if (!header.ok()) continue;
    const auto read = ParseShardHeader(*header, header->size() + section.bytes);
    CKPT_CHECK(read.ok(), "our own headers are read");
    CKPT_CHECK(read->entries.size() == section.parts.size() + section.empty_tensors.size(),
               "a header has every part");
    for (const HeaderEntry& entry : read->entries) {
      CKPT_CHECK(entry.has_saved_offsets, "every entry has its place in the tensor");
    }
  }
  CKPT_CHECK(end == layout.image_bytes, "the image ends with its last section");
  for (uint32_t ordinal : ordinals) placed_parts -= parts[ordinal].staged ? 1 : 0;
  CKPT_CHECK(placed_parts == 0, "every part with bytes has one place");
}

void CheckPlan(const RankPlan& plan) {
  v1::PlanPart part;
  for (const TensorEntry& tensor : plan.tensors) Fill(tensor, *part.add_tensors());
  for (const ItemEntry& item : plan.items) Fill(item, *part.add_items());
  RankPlan again;
  PlanSize size;
  CKPT_CHECK(AppendPlanPart(part, again, size).ok() && again == plan, "a plan is read back");
  CKPT_CHECK(LayoutSignature(again) == LayoutSignature(plan), "equal plans have one signature");

  // Two ranks with the same plan: what is not rank-local is written once.
  const PlansByRank plans = {{0, &plan}, {1, &again}};
  const absl::Status agreed = CheckAgreement(plans, ReplicaPolicy::kError);
  CKPT_CHECK(agreed.ok(), "a plan agrees with itself");
  const OrdinalsByRank written = Assign(plans, {}, {0, 1}, ReplicaPolicy::kError);
  CheckAnswer(CheckComplete(plans, written), {kPrecondition});
  for (const auto& [rank, ordinals] : written) {
    for (size_t i = 0; i < ordinals.size(); ++i) {
      CKPT_CHECK(ordinals[i] < OrdinalCount(plan) && (i == 0 || ordinals[i - 1] < ordinals[i]),
                 "ordinals are ascending numbers of the plan");
    }
    CheckLayout(plan, ordinals);
  }
}

void Run(const uint8_t* data, size_t size) {
  const MemoryBound bound(size, 2000, kProtobufBytes);
  Input input(data, size);
  RankPlan plan;
  PlanSize plan_size;
  while (!input.empty()) {
    v1::SaveRequest request;
    if (!Input::Parse(input.Message(), request)) return;
    if (request.has_begin()) CheckBegin(request.begin());
    if (!request.has_plan()) continue;
    const absl::Status appended = AppendPlanPart(request.plan(), plan, plan_size);
    CheckAnswer(appended, {kInvalid});
    if (!appended.ok()) return;
    if (!request.plan().last()) continue;
    const absl::Status valid = ValidateRankPlan(plan);
    CheckAnswer(valid, {kInvalid});
    if (valid.ok()) CheckPlan(plan);
    return;
  }
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run(data, size);
  return 0;
}
