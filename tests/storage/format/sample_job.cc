#include "tests/storage/format/sample_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/format/shard_header.h"
#include "storage/plan/assignment.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

std::string ContentName(const std::string& name, bool rank_local, uint32_t rank) {
  return rank_local ? absl::StrCat(name, "@rank", rank) : name;
}

// The bytes of one part of a rank's plan.
std::string PartBytes(const PlanPart& part, uint32_t rank) {
  if (part.item != nullptr) {
    return SampleBytes(ContentName(part.item->name, part.item->rank_local, rank), 0, part.bytes);
  }
  const TensorEntry& tensor = *part.tensor;
  const std::string name = ContentName(tensor.name, tensor.rank_local, rank);
  std::string bytes;
  ForEachRun(WholeBox(tensor.shape), tensor.chunks[part.chunk_index], Info(tensor.dtype).size_bytes,
             [&](uint64_t from, uint64_t, uint64_t length) {
               bytes += SampleBytes(name, from, length, tensor.dtype == DType::kBool);
             });
  return bytes;
}

class Writer {
 public:
  Writer(const std::vector<RankPlan>& plans, const std::vector<std::string>& nodes)
      : plans_(plans), nodes_(nodes) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < plans.size(); ++rank) {
      CKPT_CHECK(ValidateRankPlan(plans[rank]).ok(), "the sample's plans are valid");
      by_rank_[rank] = &plans[rank];
      ranks.push_back(rank);
    }
    written_ = Assign(by_rank_, {}, ranks, ReplicaPolicy::kError);
    CKPT_CHECK(CheckComplete(by_rank_, written_).ok(), "the sample's plans are complete");
  }

  SampleFiles Write() {
    files_.record = {.job = "demo",
                     .checkpoint_id = "step-17",
                     .step = 17,
                     .attempt = {3, 0x00C0FFEE00C0FFEE},
                     .incarnation = "incarnation",
                     .world_size = static_cast<uint32_t>(plans_.size()),
                     .coordinator_node = nodes_[0],
                     .replace = false,
                     .begun = absl::FromUnixSeconds(1'700'000'000)};
    for (uint32_t rank = 0; rank < plans_.size(); ++rank) WriteRank(rank);
    for (auto& [node, fragment] : fragments_) {
      const std::string name = FragmentFileName(node);
      const std::string bytes = EncodeFragment(fragment);
      files_.bytes_by_name[name] = bytes;
      files_.fragments.push_back({name, bytes, fragment});
    }
    absl::StatusOr<Manifest> manifest = MakeManifest(files_.record, files_.fragments);
    CKPT_CHECK(manifest.ok(), manifest.status().ToString().c_str());
    files_.manifest = *manifest;
    files_.bytes_by_name[kManifestFile] = EncodeManifest(*manifest);
    files_.bytes_by_name[kRecordFile] = EncodeAttemptRecord(files_.record);
    return std::move(files_);
  }

 private:
  void WriteRank(uint32_t rank) {
    Fragment& fragment = fragments_[nodes_[rank]];
    fragment.job = files_.record.job;
    fragment.checkpoint_id = files_.record.checkpoint_id;
    fragment.attempt = files_.record.attempt;
    fragment.node = nodes_[rank];
    fragment.ranks.push_back(rank);
    const RankPlan& plan = plans_[rank];
    const ImageLayout layout = LayOutImage(plan, written_[rank]);
    const std::vector<PlanPart> parts = Parts(plan);
    std::map<uint32_t, StoredChunk> places;  // By ordinal.
    for (uint32_t section = 0; section < layout.sections.size(); ++section) {
      for (const PlacedPart& part : layout.sections[section].parts) {
        StoredChunk& chunk = places[part.ordinal];
        chunk.file = static_cast<uint32_t>(fragment.files.size());
        chunk.file_offset_bytes = part.offset_bytes;
        chunk.bytes = part.bytes;
      }
      fragment.files.push_back(WriteShard(rank, layout, section));
    }
    const OrdinalsByRank recorded = Recorded(by_rank_, written_);
    for (uint32_t ordinal : recorded.at(rank)) {
      StoredChunk chunk = places[ordinal];
      if (parts[ordinal].staged) chunk.file_offset_bytes += fragment.files[chunk.file].header_bytes;
      Record(parts[ordinal], rank, chunk, fragment);
    }
  }

  StoredFile WriteShard(uint32_t rank, const ImageLayout& layout, uint32_t section) {
    std::string bytes = *BuildShardHeader(plans_[rank], layout, section, rank);
    StoredFile file;
    file.name = ShardFile(rank, static_cast<uint32_t>(plans_.size()), section);
    file.rank = rank;
    file.header_bytes = bytes.size();
    file.header_crc32c = Crc32c(bytes);
    file.image_offset_bytes = layout.sections[section].image_offset_bytes;
    for (const PlacedPart& part : layout.sections[section].parts) {
      bytes += PartBytes(Parts(plans_[rank])[part.ordinal], rank);
    }
    file.bytes = bytes.size();
    uint64_t at = file.header_bytes;
    for (uint64_t unit : UnitSizes(file.image_offset_bytes, layout.sections[section].bytes)) {
      file.unit_crc32c.push_back(Crc32c(absl::string_view(bytes).substr(at, unit)));
      at += unit;
    }
    files_.bytes_by_name[file.name] = std::move(bytes);
    return file;
  }

  static void Record(const PlanPart& part, uint32_t rank, StoredChunk chunk, Fragment& fragment) {
    if (part.item != nullptr) {
      StoredItem& item = fragment.items.emplace_back();
      item.name = part.item->name;
      item.kind = part.item->kind;
      if (part.item->rank_local) item.rank_local = rank;
      item.bytes = part.item->bytes;
      item.crc32c = part.item->crc32c;
      item.value = part.item->value;
      if (part.staged) {
        item.file = chunk.file;
        item.file_offset_bytes = chunk.file_offset_bytes;
      }
      return;
    }
    const TensorEntry& entry = *part.tensor;
    std::optional<uint32_t> owner;
    if (entry.rank_local) owner = rank;
    auto found = std::find_if(
        fragment.tensors.begin(), fragment.tensors.end(),
        [&](const StoredTensor& t) { return t.name == entry.name && t.rank_local == owner; });
    if (found == fragment.tensors.end()) {
      fragment.tensors.push_back({entry.name, entry.dtype, entry.shape, owner, {}});
      found = fragment.tensors.end() - 1;
    }
    if (!part.staged) return;
    chunk.box = entry.chunks[part.chunk_index];
    found->chunks.push_back(std::move(chunk));
  }

  const std::vector<RankPlan>& plans_;
  const std::vector<std::string>& nodes_;
  PlansByRank by_rank_;
  OrdinalsByRank written_;
  std::map<std::string, Fragment> fragments_;  // By node.
  SampleFiles files_;
};

}  // namespace

std::string SampleBytes(const std::string& name, uint64_t begin, uint64_t bytes, bool is_bool) {
  const uint64_t seed = Crc32c(name);
  std::string content(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i) {
    const uint64_t byte = seed + 31 * (begin + i) + (begin + i) / 256;
    content[i] = static_cast<char>(is_bool ? byte & 1 : byte & 0xFF);
  }
  return content;
}

ItemEntry LargeItem(const std::string& name, uint64_t bytes) {
  ItemEntry item;
  item.name = name;
  item.kind = ItemKind::kBytes;
  item.bytes = bytes;
  item.crc32c = Crc32c(SampleBytes(name, 0, bytes));
  return item;
}

SampleFiles WriteSample(const std::vector<RankPlan>& plans, const std::vector<std::string>& nodes) {
  return Writer(plans, nodes).Write();
}

}  // namespace ckptd
