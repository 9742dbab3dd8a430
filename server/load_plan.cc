#include "server/load_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/status.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

using Key = std::pair<std::string, std::optional<uint32_t>>;  // Name; rank, if rank-local.

// The chunks of a tensor, found by the box that they hold. There may be as many as ranks, or more,
// and a load asks for as many boxes.
struct Tensor {
  struct Place {
    const StoredChunk* chunk = nullptr;
    uint32_t file = 0;  // Its number.
  };

  const StoredTensor* info = nullptr;
  std::vector<Place> chunks;  // Once indexed: by their begin along `dimension`.
  size_t dimension = 0;
  std::vector<uint64_t> reach;  // The furthest end, along it, of a chunk and those before.

  uint64_t Begin(const Box& box) const { return box.offsets.empty() ? 0 : box.offsets[dimension]; }
  uint64_t End(const Box& box) const {
    return box.offsets.empty() ? 0 : box.offsets[dimension] + box.sizes[dimension];
  }

  // Along the dimension that is cut most often.
  void Index() {
    size_t most = 0;
    for (size_t d = 0; d < info->shape.size(); ++d) {
      std::set<uint64_t> begins;
      for (const Place& place : chunks) begins.insert(place.chunk->box.offsets[d]);
      if (begins.size() <= most) continue;
      most = begins.size();
      dimension = d;
    }
    std::stable_sort(chunks.begin(), chunks.end(), [this](const Place& a, const Place& b) {
      return Begin(a.chunk->box) < Begin(b.chunk->box);
    });
    for (const Place& place : chunks)
      reach.push_back(std::max(reach.empty() ? 0 : reach.back(), End(place.chunk->box)));
  }

  // The first chunk that holds all of the box; null if there is none.
  const Place* Find(const Box& box) const {
    const Place* found = nullptr;
    auto after = std::upper_bound(
        chunks.begin(), chunks.end(), Begin(box),
        [this](uint64_t begin, const Place& place) { return begin < Begin(place.chunk->box); });
    for (size_t i = after - chunks.begin(); i > 0 && reach[i - 1] >= End(box); --i) {
      std::optional<Box> common = Intersect(chunks[i - 1].chunk->box, box);
      if (common && *common == box) found = &chunks[i - 1];
    }
    return found;
  }
};

class Planner {
 public:
  Planner(const std::vector<Fragment>& fragments, uint32_t rank, uint64_t read_bytes_max)
      : rank_(rank), read_bytes_max_(read_bytes_max) {
    for (const Fragment& fragment : fragments) {
      auto first_file = static_cast<uint32_t>(files_.size());
      for (const StoredFile& file : fragment.files) files_.push_back(&file);
      for (const StoredTensor& stored : fragment.tensors) {
        Tensor& tensor = tensors_[{stored.name, stored.rank_local}];
        tensor.info = &stored;
        for (const StoredChunk& chunk : stored.chunks)
          tensor.chunks.push_back({&chunk, first_file + chunk.file});
      }
      for (const StoredItem& item : fragment.items) {
        if (item.rank_local && *item.rank_local != rank) continue;
        plan_.items.push_back(item);
        plan_.item_files.push_back(item.bytes > kInlineItemBytesMax ? fragment.files[item.file].name
                                                                    : "");
      }
    }
    for (auto& [key, tensor] : tensors_) tensor.Index();
    needed_.resize(files_.size());
  }

  absl::Status AddWant(uint32_t index, const Want& want) {
    Key key{want.name, want.rank_local ? std::optional<uint32_t>(rank_) : std::nullopt};
    auto found = tensors_.find(key);
    if (found == tensors_.end()) {
      plan_.missing.push_back(want.name);
      return absl::OkStatus();
    }
    wanted_.insert(key);
    const Tensor& tensor = found->second;
    if (want.dtype != tensor.info->dtype || want.shape != tensor.info->shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", QuoteName(want.name), " is stored as ", Info(tensor.info->dtype).name, " ",
          ShapeString(tensor.info->shape), ", and the target is ", Info(want.dtype).name, " ",
          ShapeString(want.shape)));
    }
    for (uint32_t box = 0; box < want.boxes.size(); ++box) {
      RETURN_IF_ERROR(AddBox(index, box, want, tensor));
    }
    return absl::OkStatus();
  }

  void ListExtra() {
    for (const auto& [key, tensor] : tensors_) {
      if (key.second && *key.second != rank_) continue;
      if (!wanted_.contains(key)) plan_.extra.push_back(key.first);
    }
  }

  LoadPlan Finish() {
    for (uint32_t file = 0; file < files_.size(); ++file) AddReads(file);
    for (const StoredFile* file : files_) {
      StoredFile copy = *file;
      copy.unit_crc32c.clear();
      plan_.files.push_back(std::move(copy));
    }
    return std::move(plan_);
  }

  const LoadPlan& plan() const { return plan_; }

 private:
  absl::Status AddBox(uint32_t index, uint32_t box_index, const Want& want, const Tensor& tensor) {
    const Box& box = want.boxes[box_index];
    absl::Status inside = CheckInside(box, want.shape);
    if (!inside.ok()) return WithContext(inside, absl::StrCat("tensor ", QuoteName(want.name)));
    if (Elements(box.sizes) == 0) return absl::OkStatus();
    if (const Tensor::Place* place = tensor.Find(box)) {
      const StoredChunk& chunk = *place->chunk;
      plan_.pieces.push_back({index, box_index, chunk.box, place->file, chunk.file_offset_bytes});
      ForEachRun(chunk.box, box, Info(want.dtype).size_bytes,
                 [&](uint64_t at, uint64_t, uint64_t bytes) {
                   Need(place->file, chunk.file_offset_bytes + at, bytes);
                 });
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("tensor ", QuoteName(want.name), ": the box ",
                                                   ToString(box),
                                                   " does not lie inside one stored chunk"));
  }

  // Marks the units of [offset, offset + bytes).
  void Need(uint32_t number, uint64_t offset, uint64_t bytes) {
    const StoredFile& file = *files_[number];
    uint64_t base = file.image_offset_bytes -
                    file.header_bytes;  // Image offset of a file offset; wraps around, and back.
    uint64_t first_unit = file.image_offset_bytes / kUnitBytes;
    for (uint64_t unit = (offset + base) / kUnitBytes;
         unit <= (offset + base + bytes - 1) / kUnitBytes; ++unit) {
      needed_[number].insert(static_cast<uint32_t>(unit - first_unit));
    }
  }

  void AddReads(uint32_t number) {
    const StoredFile& file = *files_[number];
    if (needed_[number].empty()) return;
    std::vector<uint64_t> sizes =
        UnitSizes(file.image_offset_bytes, file.bytes - file.header_bytes);
    uint64_t offset = file.header_bytes;
    bool open = false;
    for (uint32_t unit = 0; unit < sizes.size(); offset += sizes[unit++]) {
      if (!needed_[number].contains(unit)) {
        open = false;
        continue;
      }
      if (!open || plan_.reads.back().bytes + sizes[unit] > read_bytes_max_) {
        plan_.reads.push_back(LoadRead{number, offset, 0, {}, {}});
        open = true;
      }
      LoadRead& read = plan_.reads.back();
      read.bytes += sizes[unit];
      read.unit_bytes.push_back(sizes[unit]);
      read.unit_crc32c.push_back(file.unit_crc32c[unit]);
      plan_.read_bytes += sizes[unit];
    }
  }

  const uint32_t rank_;
  const uint64_t read_bytes_max_;
  std::vector<const StoredFile*> files_;
  std::map<Key, Tensor> tensors_;
  std::set<Key> wanted_;
  std::vector<std::set<uint32_t>> needed_;  // Units, by file.
  LoadPlan plan_;
};

std::string Quoted(const std::vector<std::string>& names) {
  constexpr size_t kShown = 10;
  size_t shown = std::min(names.size(), kShown);
  std::string list = absl::StrJoin(
      names.begin(), names.begin() + shown, ", ",
      [](std::string* out, const std::string& name) { absl::StrAppend(out, QuoteName(name)); });
  if (shown < names.size()) absl::StrAppend(&list, " and ", names.size() - shown, " more");
  return list;
}

}  // namespace

absl::StatusOr<LoadPlan> PlanLoad(const std::vector<Fragment>& fragments,
                                  const std::vector<Want>& wants, uint32_t rank,
                                  const LoadOptions& options, uint64_t read_bytes_max) {
  Planner planner(fragments, rank, read_bytes_max);
  for (uint32_t i = 0; i < wants.size(); ++i) RETURN_IF_ERROR(planner.AddWant(i, wants[i]));
  planner.ListExtra();
  if (!planner.plan().missing.empty() && !options.partial) {
    return absl::NotFoundError(
        absl::StrCat("the checkpoint has no tensor ", Quoted(planner.plan().missing)));
  }
  if (!planner.plan().extra.empty() && options.strict) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the checkpoint has tensors that nobody asked for: ", Quoted(planner.plan().extra)));
  }
  return planner.Finish();
}

}  // namespace ckptd
