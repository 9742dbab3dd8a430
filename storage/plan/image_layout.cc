#include "storage/plan/image_layout.h"

#include <algorithm>

#include "storage/base/check.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

uint64_t ElementBytes(const PlanPart& part) {
  return part.tensor != nullptr ? Info(part.tensor->dtype).size_bytes : 1;
}

// Calls `piece(offset, bytes)` for each unit of [begin, end).
template <typename Piece>
void ForEachUnit(uint64_t begin, uint64_t end, Piece piece) {
  while (begin < end) {
    const uint64_t next = std::min(end, RoundUp(begin + 1, kUnitBytes));
    piece(begin, next - begin);
    begin = next;
  }
}

}  // namespace

ImageLayout LayOutImage(const RankPlan& plan, std::span<const uint32_t> ordinals) {
  const std::vector<PlanPart> parts = Parts(plan);
  std::vector<uint32_t> empty_tensors;
  std::vector<std::vector<uint32_t>> files;
  std::vector<uint32_t> chunks_so_far(plan.tensors.size());
  for (uint32_t ordinal : ordinals) {
    CKPT_CHECK(ordinal < parts.size(), "an ordinal is one of the rank's plan");
    const PlanPart& part = parts[ordinal];
    if (IsOfEmptyTensor(part)) empty_tensors.push_back(ordinal);
    if (!part.staged) continue;
    const uint32_t file = part.tensor != nullptr ? chunks_so_far[part.tensor_index]++ : 0;
    if (file >= files.size()) files.resize(file + 1);
    files[file].push_back(ordinal);
  }

  ImageLayout layout;
  for (std::vector<uint32_t>& file : files) {
    std::stable_sort(file.begin(), file.end(), [&parts](uint32_t a, uint32_t b) {
      return ElementBytes(parts[a]) > ElementBytes(parts[b]);
    });
    Section& section = layout.sections.emplace_back();
    section.image_offset_bytes = RoundUp(layout.image_bytes, kSectionAlignment);
    section.parts.reserve(file.size());
    for (uint32_t ordinal : file) {
      section.parts.push_back({ordinal, section.bytes, parts[ordinal].bytes});
      section.bytes += parts[ordinal].bytes;
    }
    layout.image_bytes = section.image_offset_bytes + section.bytes;
  }
  if (!empty_tensors.empty()) {
    if (layout.sections.empty()) layout.sections.emplace_back();
    layout.sections.front().empty_tensors = std::move(empty_tensors);
  }
  return layout;
}

std::vector<Unit> UnitsOf(const ImageLayout& layout, uint64_t begin_bytes, uint64_t end_bytes) {
  std::vector<Unit> units;
  // Sections are in ascending order; the last that starts at or before `begin` is the first to see.
  auto section = std::upper_bound(
      layout.sections.begin(), layout.sections.end(), begin_bytes,
      [](uint64_t offset, const Section& s) { return offset < s.image_offset_bytes; });
  if (section != layout.sections.begin()) --section;
  for (; section != layout.sections.end() && section->image_offset_bytes < end_bytes; ++section) {
    const uint64_t begin = std::max(begin_bytes, section->image_offset_bytes);
    const uint64_t end = std::min(end_bytes, section->image_offset_bytes + section->bytes);
    ForEachUnit(begin, end, [&](uint64_t offset, uint64_t bytes) {
      units.push_back({static_cast<uint32_t>(section - layout.sections.begin()), offset, bytes});
    });
  }
  return units;
}

std::vector<uint64_t> UnitSizes(uint64_t section_image_offset_bytes, uint64_t section_bytes) {
  std::vector<uint64_t> sizes;
  ForEachUnit(section_image_offset_bytes, section_image_offset_bytes + section_bytes,
              [&](uint64_t, uint64_t bytes) { sizes.push_back(bytes); });
  return sizes;
}

}  // namespace ckptd
