#include "server/fragment_builder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "storage/base/check.h"

namespace ckptd {
namespace {

// Where one ordinal of a rank lies.
struct Place {
  uint32_t file = 0;
  uint64_t file_offset_bytes = 0;
};

// The unit checksums of a section, gathered from the image's blocks.
std::vector<std::vector<uint32_t>> UnitChecksums(const RankSave& rank) {
  std::vector<std::vector<uint32_t>> by_section(rank.layout->sections.size());
  for (uint32_t i = 0; i < rank.blocks.size(); ++i) {
    uint64_t begin = i * rank.arena->block_bytes();
    uint64_t end = begin + rank.BlockBytes(i);
    std::vector<Unit> units = UnitsOf(*rank.layout, begin, end);
    CKPT_CHECK(units.size() == rank.blocks[i].unit_crc32c.size(), "one checksum per unit");
    for (size_t u = 0; u < units.size(); ++u) {
      by_section[units[u].section].push_back(rank.blocks[i].unit_crc32c[u]);
    }
  }
  return by_section;
}

class Builder {
 public:
  Builder(const AttemptRecord& record, const std::string& node) {
    fragment_.job = record.job;
    fragment_.checkpoint_id = record.checkpoint_id;
    fragment_.attempt = record.attempt;
    fragment_.node = node;
  }

  void AddRank(const RankSave& rank, const std::vector<uint32_t>& recorded) {
    fragment_.ranks.push_back(rank.rank);
    std::map<uint32_t, Place> places = AddFiles(rank);
    std::vector<PlanPart> parts = Parts(*rank.plan);
    for (uint32_t ordinal : recorded) {
      const PlanPart& part = parts[ordinal];
      auto found = places.find(ordinal);
      Place place = found == places.end() ? Place{} : found->second;
      if (part.tensor != nullptr) {
        AddChunk(rank.rank, part, place, found != places.end());
      } else {
        AddItem(rank.rank, *part.item, place);
      }
    }
  }

  Fragment Finish() { return std::move(fragment_); }

 private:
  std::map<uint32_t, Place> AddFiles(const RankSave& rank) {
    std::map<uint32_t, Place> places;
    std::vector<std::vector<uint32_t>> checksums = UnitChecksums(rank);
    for (size_t i = 0; i < rank.layout->sections.size(); ++i) {
      const Section& section = rank.layout->sections[i];
      auto file = static_cast<uint32_t>(fragment_.files.size());
      StoredFile stored;
      stored.name = rank.shards[i].name;
      stored.rank = rank.rank;
      stored.bytes = rank.shards[i].header_bytes + section.bytes;
      stored.header_bytes = rank.shards[i].header_bytes;
      stored.header_crc32c = rank.shards[i].header_crc32c;
      stored.image_offset_bytes = section.image_offset_bytes;
      stored.unit_crc32c = std::move(checksums[i]);
      for (const PlacedPart& part : section.parts) {
        places[part.ordinal] = {file, stored.header_bytes + part.offset_bytes};
      }
      fragment_.files.push_back(std::move(stored));
    }
    return places;
  }

  void AddChunk(uint32_t rank, const PlanPart& part, const Place& place, bool placed) {
    const TensorEntry& entry = *part.tensor;
    std::optional<uint32_t> local;
    if (entry.rank_local) local = rank;
    auto [position, added] = tensors_.try_emplace({entry.name, local}, fragment_.tensors.size());
    if (added) {
      StoredTensor tensor;
      tensor.name = entry.name;
      tensor.dtype = entry.dtype;
      tensor.shape = entry.shape;
      tensor.rank_local = local;
      fragment_.tensors.push_back(std::move(tensor));
    }
    if (!placed)
      return;  // A chunk without elements has no place; the tensor is recorded all the same.
    StoredChunk chunk;
    chunk.box = entry.chunks[part.chunk_index];
    chunk.file = place.file;
    chunk.file_offset_bytes = place.file_offset_bytes;
    chunk.bytes = part.bytes;
    fragment_.tensors[position->second].chunks.push_back(std::move(chunk));
  }

  void AddItem(uint32_t rank, const ItemEntry& entry, const Place& place) {
    StoredItem item;
    item.name = entry.name;
    item.kind = entry.kind;
    if (entry.rank_local) item.rank_local = rank;
    item.bytes = entry.bytes;
    item.crc32c = entry.crc32c;
    item.value = entry.value;
    item.file = place.file;
    item.file_offset_bytes = place.file_offset_bytes;
    fragment_.items.push_back(std::move(item));
  }

  Fragment fragment_;
  std::map<std::pair<std::string, std::optional<uint32_t>>, size_t> tensors_;
};

}  // namespace

Fragment BuildFragment(const AttemptRecord& record, const std::string& node,
                       const std::map<uint32_t, RankSave>& ranks) {
  PlansByRank plans;
  OrdinalsByRank written;
  for (const auto& [rank, save] : ranks) {
    plans[rank] = save.plan.get();
    written[rank] = save.ordinals;
  }
  Builder builder(record, node);
  OrdinalsByRank recorded = Recorded(plans, written);
  for (const auto& [rank, save] : ranks) builder.AddRank(save, recorded[rank]);
  return builder.Finish();
}

}  // namespace ckptd
