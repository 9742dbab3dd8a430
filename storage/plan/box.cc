#include "storage/plan/box.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <queue>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/check.h"

namespace ckptd {
namespace {

using Indexes = std::vector<size_t>;
using IndexPair = std::optional<std::pair<size_t, size_t>>;

constexpr int kSlabDepthMax = 32;

uint64_t End(const Box& box, size_t d) { return box.offsets[d] + box.sizes[d]; }

bool IsEmpty(const Box& box) {
  return std::find(box.sizes.begin(), box.sizes.end(), 0) != box.sizes.end();
}

void SortByOffset(const std::vector<Box>& boxes, size_t d, Indexes& indexes) {
  std::sort(indexes.begin(), indexes.end(), [&](size_t a, size_t b) {
    return std::make_pair(boxes[a].offsets[d], a) < std::make_pair(boxes[b].offsets[d], b);
  });
}

// The dimensions in which the boxes differ.
std::vector<size_t> CutDimensions(const std::vector<Box>& boxes, const Indexes& indexes) {
  std::vector<size_t> cut;
  const Box& first = boxes[indexes.front()];
  for (size_t d = 0; d < first.sizes.size(); ++d) {
    const bool differ = std::any_of(indexes.begin(), indexes.end(), [&](size_t i) {
      return boxes[i].offsets[d] != first.offsets[d] || boxes[i].sizes[d] != first.sizes[d];
    });
    if (differ) cut.push_back(d);
  }
  return cut;
}

// Two boxes that overlap, of boxes that are alike in all dimensions but `along` and `across`: a
// line sweeps along one, and meets intervals in the other that must be disjoint.
IndexPair SweepLine(const std::vector<Box>& boxes, Indexes indexes, size_t along, size_t across) {
  SortByOffset(boxes, along, indexes);
  std::map<uint64_t, size_t> active;  // By offset in `across`.
  using ByEnd = std::pair<uint64_t, size_t>;
  std::priority_queue<ByEnd, std::vector<ByEnd>, std::greater<>> ends;
  for (size_t i : indexes) {
    while (!ends.empty() && ends.top().first <= boxes[i].offsets[along]) {
      active.erase(boxes[ends.top().second].offsets[across]);
      ends.pop();
    }
    auto next = active.lower_bound(boxes[i].offsets[across]);
    if (next != active.end() && next->first < End(boxes[i], across)) return {{next->second, i}};
    if (next != active.begin()) {
      const size_t before = std::prev(next)->second;
      if (End(boxes[before], across) > boxes[i].offsets[across]) return {{before, i}};
    }
    active.emplace_hint(next, boxes[i].offsets[across], i);
    ends.emplace(End(boxes[i], along), i);
  }
  return std::nullopt;
}

// Two boxes that overlap; compares each box with all that the sweep along one dimension meets.
IndexPair SweepPlane(const std::vector<Box>& boxes, Indexes indexes, size_t along) {
  SortByOffset(boxes, along, indexes);
  Indexes active;
  for (size_t i : indexes) {
    std::erase_if(active,
                  [&](size_t a) { return End(boxes[a], along) <= boxes[i].offsets[along]; });
    for (size_t a : active) {
      if (Intersect(boxes[a], boxes[i])) return {{a, i}};
    }
    active.push_back(i);
  }
  return std::nullopt;
}

// Groups of boxes that no plane across dimension d separates further.
std::vector<Indexes> Slabs(const std::vector<Box>& boxes, Indexes indexes, size_t d) {
  SortByOffset(boxes, d, indexes);
  std::vector<Indexes> slabs;
  uint64_t end = 0;
  for (size_t i : indexes) {
    if (slabs.empty() || boxes[i].offsets[d] >= end) slabs.emplace_back();
    slabs.back().push_back(i);
    end = std::max(end, End(boxes[i], d));
  }
  return slabs;
}

IndexPair FindOverlap(const std::vector<Box>& boxes, const Indexes& indexes, int depth) {
  if (indexes.size() < 2) return std::nullopt;
  const std::vector<size_t> cut = CutDimensions(boxes, indexes);
  if (cut.empty()) return {{indexes[0], indexes[1]}};
  if (cut.size() <= 2) return SweepLine(boxes, indexes, cut.front(), cut.back());
  std::vector<Indexes> best;
  for (size_t d : cut) {
    std::vector<Indexes> slabs = Slabs(boxes, indexes, d);
    if (slabs.size() > best.size()) best = std::move(slabs);
  }
  if (best.size() == 1 || depth == kSlabDepthMax) return SweepPlane(boxes, indexes, cut.front());
  for (const Indexes& slab : best) {
    if (IndexPair pair = FindOverlap(boxes, slab, depth + 1)) return pair;
  }
  return std::nullopt;
}

// A region that has no box, of disjoint boxes that leave one.
Box FindHole(const Shape& shape, const std::vector<Box>& boxes, Indexes active) {
  Box hole;
  for (size_t d = 0; d < shape.size(); ++d) {
    auto cross_section = [d](const std::vector<uint64_t>& sizes) {
      return std::accumulate(sizes.begin() + d + 1, sizes.end(), uint64_t{1},
                             std::multiplies<uint64_t>());
    };
    std::map<uint64_t, int64_t> change = {{0, 0}, {shape[d], 0}};  // Of the area that is covered.
    for (size_t i : active) {
      change[boxes[i].offsets[d]] += static_cast<int64_t>(cross_section(boxes[i].sizes));
      change[End(boxes[i], d)] -= static_cast<int64_t>(cross_section(boxes[i].sizes));
    }
    const int64_t full = static_cast<int64_t>(cross_section(shape));
    auto at = change.begin();
    for (int64_t covered = at->second; covered == full; covered += at->second) ++at;
    CKPT_CHECK(std::next(at) != change.end(), "boxes leave a hole");
    hole.offsets.push_back(at->first);
    hole.sizes.push_back(std::next(at)->first - at->first);
    std::erase_if(active, [&](size_t i) {
      return boxes[i].offsets[d] > at->first || End(boxes[i], d) <= at->first;
    });
  }
  return hole;
}

}  // namespace

Box WholeBox(const Shape& shape) { return {std::vector<uint64_t>(shape.size(), 0), shape}; }

bool IsWhole(const Box& box, const Shape& shape) { return box == WholeBox(shape); }

absl::StatusOr<uint64_t> CheckedBytes(const Shape& shape, uint64_t element_bytes) {
  if (shape.size() > kDimensionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shape of ", shape.size(), " dimensions, at most ", kDimensionsMax));
  }
  uint64_t bytes = element_bytes;
  bool empty = false;
  for (uint64_t size : shape) {
    empty |= size == 0;
    uint64_t product;
    if (__builtin_mul_overflow(bytes, std::max<uint64_t>(size, 1), &product) ||
        product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape ", ShapeString(shape), " does not fit into 63 bits"));
    }
    bytes = product;
  }
  return empty ? 0 : bytes;
}

uint64_t Elements(const Shape& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t{1}, std::multiplies<uint64_t>());
}

absl::Status CheckInside(const Box& box, const Shape& shape) {
  bool inside = box.offsets.size() == shape.size() && box.sizes.size() == shape.size();
  for (size_t d = 0; inside && d < shape.size(); ++d) {
    inside = box.offsets[d] <= shape[d] && box.sizes[d] <= shape[d] - box.offsets[d];
  }
  if (inside) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("box ", ToString(box), " is not inside shape ", ShapeString(shape)));
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  CKPT_CHECK(a.sizes.size() == b.sizes.size(), "boxes of one tensor have its dimensions");
  Box common;
  common.offsets.reserve(a.sizes.size());
  common.sizes.reserve(a.sizes.size());
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    const uint64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const uint64_t end = std::min(End(a, d), End(b, d));
    if (begin >= end) return std::nullopt;
    common.offsets.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

std::optional<TilingFault> FindTilingFault(const Shape& shape, const std::vector<Box>& boxes) {
  Indexes indexes;
  unsigned __int128 covered = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    CKPT_CHECK(CheckInside(boxes[i], shape).ok(), "boxes lie inside the tensor");
    if (IsEmpty(boxes[i])) continue;
    indexes.push_back(i);
    covered += Elements(boxes[i].sizes);
  }
  if (IndexPair pair = FindOverlap(boxes, indexes, 0)) {
    const auto [low, high] = std::minmax(pair->first, pair->second);
    return TilingFault{{{low, high}}, *Intersect(boxes[low], boxes[high])};
  }
  if (covered == Elements(shape)) return std::nullopt;
  return TilingFault{std::nullopt, FindHole(shape, boxes, std::move(indexes))};
}

absl::Status CheckTiling(const Shape& shape, const std::vector<Box>& boxes) {
  for (const Box& box : boxes) {
    if (absl::Status status = CheckInside(box, shape); !status.ok()) return status;
  }
  const std::optional<TilingFault> fault = FindTilingFault(shape, boxes);
  if (!fault) return absl::OkStatus();
  if (!fault->overlap) {
    return absl::FailedPreconditionError(absl::StrCat("region ", ToString(fault->region), " of ",
                                                      ShapeString(shape), " is missing"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "region ", ToString(fault->region), " is in two boxes: ",
      ToString(boxes[fault->overlap->first]), " and ", ToString(boxes[fault->overlap->second])));
}

void ForEachRun(const Box& outer, const Box& inner, uint64_t element_bytes,
                absl::FunctionRef<void(uint64_t, uint64_t, uint64_t)> run) {
  const size_t dimensions = outer.sizes.size();
  CKPT_CHECK(inner.sizes.size() == dimensions, "boxes of one tensor have its dimensions");
  if (IsEmpty(inner)) return;
  // Dimensions from `split` on are contiguous in both: all but the first of them are whole.
  size_t split = dimensions;
  uint64_t run_bytes = element_bytes;
  while (split > 0) {
    --split;
    run_bytes *= inner.sizes[split];
    if (inner.sizes[split] != outer.sizes[split]) break;
  }
  uint64_t stride = element_bytes;  // Of one step in a dimension, in outer's bytes.
  uint64_t outer_bytes = 0;
  std::vector<uint64_t> strides(dimensions);
  for (size_t d = dimensions; d-- > 0;) {
    CKPT_CHECK(inner.offsets[d] >= outer.offsets[d] && End(inner, d) <= End(outer, d),
               "the inner box lies inside the outer one");
    strides[d] = stride;
    outer_bytes += (inner.offsets[d] - outer.offsets[d]) * stride;
    stride *= outer.sizes[d];
  }
  std::vector<uint64_t> index(split, 0);
  uint64_t inner_bytes = 0;
  while (true) {
    run(outer_bytes, inner_bytes, run_bytes);
    inner_bytes += run_bytes;
    size_t d = split;
    while (d > 0) {
      --d;
      outer_bytes += strides[d];
      if (++index[d] < inner.sizes[d]) break;
      outer_bytes -= index[d] * strides[d];
      index[d] = 0;
      if (d == 0) return;
    }
    if (split == 0) return;
  }
}

std::string ToString(const Box& box) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < box.sizes.size() && d < box.offsets.size(); ++d) {
    ranges.push_back(absl::StrCat(box.offsets[d], ":", box.offsets[d] + box.sizes[d]));
  }
  return absl::StrCat("[", absl::StrJoin(ranges, ", "), "]");
}

std::string ShapeString(const Shape& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace ckptd
