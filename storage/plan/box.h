// Box: an N-d region of a tensor, and the arithmetic of regions. Pure functions; values, safe to
// share when const.
#ifndef CKPTD_STORAGE_PLAN_BOX_H_
#define CKPTD_STORAGE_PLAN_BOX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ckptd {

using Shape = std::vector<uint64_t>;  // Empty for a 0-d tensor, which has one element.

inline constexpr size_t kDimensionsMax = 64;  // What torch takes.

struct Box {
  std::vector<uint64_t> offsets;  // One per dimension.
  std::vector<uint64_t> sizes;    // One per dimension; 0 makes the box empty.

  friend bool operator==(const Box&, const Box&) = default;
  friend auto operator<=>(const Box&, const Box&) = default;
};

Box WholeBox(const Shape& shape);
bool IsWhole(const Box& box, const Shape& shape);

// Bytes of a tensor. InvalidArgument for more than kDimensionsMax dimensions, or if they do not fit
// into 63 bits, dimensions of 0 being counted as 1 (so that no reader's product overflows).
absl::StatusOr<uint64_t> CheckedBytes(const Shape& shape, uint64_t element_bytes);
uint64_t Elements(const Shape& sizes);  // Of a shape that CheckedBytes() accepted; 1 for 0-d.

// InvalidArgument unless the box has the shape's dimensions and lies inside it.
absl::Status CheckInside(const Box& box, const Shape& shape);

// The common region; nullopt if there is none. Same number of dimensions (CHECKed). Two 0-d boxes
// intersect.
std::optional<Box> Intersect(const Box& a, const Box& b);

// What is wrong with a tiling: two boxes have a region in common, or a region has no box.
struct TilingFault {
  std::optional<std::pair<size_t, size_t>> overlap;  // Indexes of the two, the lower one first.
  Box region;                                        // Covered twice, or not at all.
};

// Do the boxes cover the shape, each element exactly once? Nullopt if so. Near-linear in the number
// of boxes as long as they cut at most two dimensions, or cut the others in slabs (100 000 boxes
// take tens of milliseconds). Empty boxes do not count. A shape without elements needs no box. All
// boxes are inside the shape (CHECKed).
std::optional<TilingFault> FindTilingFault(const Shape& shape, const std::vector<Box>& boxes);

// The same as a status: FailedPrecondition that says which region is covered twice or not at all;
// InvalidArgument for a box that is not inside the shape.
absl::Status CheckTiling(const Shape& shape, const std::vector<Box>& boxes);

// Calls `run(outer_bytes, inner_bytes, length_bytes)` for each contiguous stretch that `inner`, a
// box inside `outer`, has in the row-major bytes of both: at outer_bytes in outer's, at inner_bytes
// in inner's. In ascending order, as long as possible.
void ForEachRun(
    const Box& outer, const Box& inner, uint64_t element_bytes,
    absl::FunctionRef<void(uint64_t outer_bytes, uint64_t inner_bytes, uint64_t length_bytes)> run);

std::string ToString(const Box& box);         // "[0:4, 16:32]"
std::string ShapeString(const Shape& shape);  // "[8, 32]"

}  // namespace ckptd

#endif  // CKPTD_STORAGE_PLAN_BOX_H_
