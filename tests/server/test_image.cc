#include "tests/server/test_image.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "storage/base/crc32c.h"

namespace ckptd {

std::string TestBytes(absl::string_view seed, uint64_t count) {
  uint64_t state = Crc32c(seed) + 1;
  std::string bytes(count, '\0');
  for (uint64_t at = 0; at < count; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t word = state ^ (state >> 29);
    std::memcpy(bytes.data() + at, &word, std::min<uint64_t>(sizeof word, count - at));
  }
  return bytes;
}

std::string BoxBytes(const TensorEntry& tensor, const Box& box, uint32_t rank) {
  uint64_t element = Info(tensor.dtype).size_bytes;
  std::string seed = tensor.rank_local ? absl::StrCat(tensor.name, "|", rank) : tensor.name;
  std::string whole = TestBytes(seed, Elements(tensor.shape) * element);
  std::string bytes(Elements(box.sizes) * element, '\0');
  ForEachRun(WholeBox(tensor.shape), box, element,
             [&](uint64_t outer, uint64_t inner, uint64_t length) {
               std::memcpy(bytes.data() + inner, whole.data() + outer, length);
             });
  return bytes;
}

std::string ImageBytes(const RankPlan& plan, const ImageLayout& layout, uint32_t rank) {
  std::string image(layout.image_bytes, '\xEE');  // Gaps hold anything.
  std::vector<PlanPart> parts = Parts(plan);
  for (const Section& section : layout.sections) {
    for (const PlacedPart& placed : section.parts) {
      const PlanPart& part = parts[placed.ordinal];
      std::string bytes = part.tensor != nullptr
                              ? BoxBytes(*part.tensor, part.tensor->chunks[part.chunk_index], rank)
                              : TestBytes(part.item->name, part.item->bytes);
      std::memcpy(image.data() + section.image_offset_bytes + placed.offset_bytes, bytes.data(),
                  bytes.size());
    }
  }
  return image;
}

std::vector<uint32_t> UnitChecksums(const ImageLayout& layout, const std::string& image,
                                    uint32_t image_block, uint64_t block_bytes) {
  uint64_t begin = image_block * block_bytes;
  std::vector<uint32_t> checksums;
  for (const Unit& unit :
       UnitsOf(layout, begin, std::min<uint64_t>(begin + block_bytes, layout.image_bytes))) {
    checksums.push_back(
        Crc32c(absl::string_view(image).substr(unit.image_offset_bytes, unit.bytes)));
  }
  return checksums;
}

std::vector<uint32_t> AllOrdinals(const RankPlan& plan) {
  std::vector<uint32_t> ordinals(OrdinalCount(plan));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return ordinals;
}

}  // namespace ckptd
