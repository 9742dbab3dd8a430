// ImageLayout: where each part of a rank's image lies. A pure function of plan and ordinals,
// computed alike by client and daemon (their versions must agree, which the session checks).
//
// The image is the sequence of the data sections of the rank's shard files. Usually that is one; a
// file can hold only one chunk of a name (FORMAT.md), so the second chunk of a tensor goes to file
// 1, the third to file 2 … Each section starts at a multiple of 4096 in the image, the first at 0;
// the gap before it belongs to no file. Inside a section parts lie without padding, by element
// size, largest first (an item counts 1), then in plan order: so every tensor is aligned to its
// element size. (float4 and complex count the size of the whole element.)
//
// Checksums are kept per *unit*: the part of a section inside one MiB of the image, [k MiB, (k+1)
// MiB). So the first and the last unit of a section may be shorter, and no unit lies across two
// blocks.
#ifndef CKPTD_STORAGE_PLAN_IMAGE_LAYOUT_H_
#define CKPTD_STORAGE_PLAN_IMAGE_LAYOUT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "storage/plan/rank_plan.h"

namespace ckptd {

inline constexpr uint64_t kUnitBytes = 1 << 20;
inline constexpr uint64_t kSectionAlignment = 4096;

struct PlacedPart {
  uint32_t ordinal = 0;
  uint64_t offset_bytes = 0;  // In the section.
  uint64_t bytes = 0;         // At least 1.
};

struct Section {
  uint64_t image_offset_bytes = 0;
  uint64_t bytes = 0;
  std::vector<PlacedPart> parts;  // By offset, without a gap.
  // Tensors without elements, which the file's header names although they have no bytes: one
  // ordinal each, ascending. Only in section 0, which is there for them alone, with 0 bytes, if the
  // rank has nothing else to store.
  std::vector<uint32_t> empty_tensors;
};

struct ImageLayout {
  std::vector<Section> sections;  // Shard file i; none if the rank has nothing to put into one.
  uint64_t image_bytes = 0;       // End of the last section.
};

ImageLayout LayOutImage(const RankPlan& plan, std::span<const uint32_t> ordinals);

// One unit, in image coordinates.
struct Unit {
  uint32_t section = 0;
  uint64_t image_offset_bytes = 0;
  uint64_t bytes = 0;
};

// All units of [begin, end) of the image, both multiples of kUnitBytes or the image's end: what a
// sealed block's checksums are of, in order.
std::vector<Unit> UnitsOf(const ImageLayout& layout, uint64_t begin_bytes, uint64_t end_bytes);

// Bytes of the units of one section, in order: their number and sizes follow from these two figures
// alone.
std::vector<uint64_t> UnitSizes(uint64_t section_image_offset_bytes, uint64_t section_bytes);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_PLAN_IMAGE_LAYOUT_H_
