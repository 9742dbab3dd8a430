#include "client/cpp/strided_view.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"

namespace ckptd::inline client {
namespace {

// `count` elements of a size known to the compiler: this loop is what a transposed tensor costs.
template <size_t kBytes>
void CopyStrided(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
                 uint64_t count) {
  for (uint64_t i = 0; i < count; ++i, to += to_stride, from += from_stride) {
    std::memcpy(to, from, kBytes);
  }
}

void CopyRuns(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride,
              uint64_t run_bytes, uint64_t count) {
  switch (run_bytes) {
    case 1:
      return CopyStrided<1>(to, to_stride, from, from_stride, count);
    case 2:
      return CopyStrided<2>(to, to_stride, from, from_stride, count);
    case 4:
      return CopyStrided<4>(to, to_stride, from, from_stride, count);
    case 8:
      return CopyStrided<8>(to, to_stride, from, from_stride, count);
    case 16:
      return CopyStrided<16>(to, to_stride, from, from_stride, count);
  }
  for (uint64_t i = 0; i < count; ++i, to += to_stride, from += from_stride) {
    std::memcpy(to, from, run_bytes);
  }
}

}  // namespace

absl::Status CheckStrides(const std::vector<uint64_t>& sizes,
                          const std::vector<int64_t>& strides_bytes, const void* data) {
  if (!strides_bytes.empty() && strides_bytes.size() != sizes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(strides_bytes.size(), " strides for a box of ", sizes.size(), " dimensions"));
  }
  const bool empty = std::find(sizes.begin(), sizes.end(), 0u) != sizes.end();
  if (data == nullptr && !empty) {
    return absl::InvalidArgumentError("a box with elements, but no data");
  }
  return absl::OkStatus();
}

StridedView::StridedView(std::byte* data, const std::vector<uint64_t>& sizes,
                         uint64_t element_bytes, const std::vector<int64_t>& strides_bytes)
    : data_(data), bytes_(element_bytes) {
  for (uint64_t size : sizes) bytes_ *= size;
  run_bytes_ = bytes_;
  if (bytes_ == 0 || strides_bytes.empty()) return;
  // From the innermost dimension outwards: what continues the run joins it, what continues the
  // dimension inside it joins that one.
  run_bytes_ = element_bytes;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (dimensions_.empty() && strides_bytes[i] == static_cast<int64_t>(run_bytes_)) {
      run_bytes_ *= sizes[i];
    } else if (!dimensions_.empty() &&
               strides_bytes[i] == dimensions_.back().stride_bytes *
                                       static_cast<int64_t>(dimensions_.back().size)) {
      dimensions_.back().size *= sizes[i];
    } else {
      dimensions_.push_back({sizes[i], strides_bytes[i]});
    }
  }
  std::reverse(dimensions_.begin(), dimensions_.end());
}

StridedView::Cursor StridedView::Seek(uint64_t offset) const {
  Cursor cursor{data_, offset % run_bytes_, std::vector<uint64_t>(dimensions_.size())};
  uint64_t run = offset / run_bytes_;
  for (size_t i = dimensions_.size(); i-- > 0;) {
    cursor.index[i] = run % dimensions_[i].size;
    run /= dimensions_[i].size;
    cursor.run += static_cast<int64_t>(cursor.index[i]) * dimensions_[i].stride_bytes;
  }
  return cursor;
}

void StridedView::Advance(Cursor& cursor, uint64_t runs_of_last_dimension) const {
  uint64_t step = runs_of_last_dimension;
  for (size_t i = dimensions_.size(); i-- > 0 && step > 0;) {
    const Dimension& dimension = dimensions_[i];
    cursor.index[i] += step;
    cursor.run += static_cast<int64_t>(step) * dimension.stride_bytes;
    step = 0;
    if (cursor.index[i] == dimension.size) {
      cursor.run -= static_cast<int64_t>(dimension.size) * dimension.stride_bytes;
      cursor.index[i] = 0;
      step = 1;
    }
  }
}

std::span<const std::byte> StridedView::RunAt(uint64_t offset) const {
  CKPT_CHECK(offset < bytes_, "a run lies inside the view");
  if (dimensions_.empty()) return {data_ + offset, bytes_ - offset};
  const Cursor cursor = Seek(offset);
  return {cursor.run + cursor.in_run_bytes, run_bytes_ - cursor.in_run_bytes};
}

// Calls `copy(memory, stride, run_bytes, count)` for groups of equal runs, in row-major order.
template <typename Copy>
void StridedView::Walk(uint64_t offset, uint64_t bytes, Copy copy) const {
  CKPT_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "a copy stays inside the view");
  if (bytes == 0) return;
  if (dimensions_.empty()) return copy(data_ + offset, 0, bytes, 1);
  Cursor cursor = Seek(offset);
  while (bytes > 0) {
    const Dimension& last = dimensions_.back();
    uint64_t part = std::min(bytes, run_bytes_ - cursor.in_run_bytes);
    uint64_t runs = 1;
    if (part == run_bytes_) runs = std::min(bytes / run_bytes_, last.size - cursor.index.back());
    copy(cursor.run + cursor.in_run_bytes, last.stride_bytes, part, runs);
    bytes -= part * runs;
    cursor.in_run_bytes = 0;
    Advance(cursor, runs);
  }
}

void StridedView::Gather(uint64_t offset, std::span<std::byte> out) const {
  std::byte* to = out.data();
  Walk(offset, out.size(),
       [&to](const std::byte* from, int64_t stride, uint64_t run_bytes, uint64_t count) {
         CopyRuns(to, static_cast<int64_t>(run_bytes), from, stride, run_bytes, count);
         to += run_bytes * count;
       });
}

void StridedView::Scatter(uint64_t offset, std::span<const std::byte> in) const {
  const std::byte* from = in.data();
  Walk(offset, in.size(),
       [&from](std::byte* to, int64_t stride, uint64_t run_bytes, uint64_t count) {
         CopyRuns(to, stride, from, static_cast<int64_t>(run_bytes), run_bytes, count);
         from += run_bytes * count;
       });
}

}  // namespace ckptd::inline client
