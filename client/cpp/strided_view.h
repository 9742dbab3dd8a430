// StridedView: the elements of a box in somebody's memory, addressed by their position in row-major
// order. It owns nothing. Value; const methods are safe from several threads (Scatter() if the
// ranges differ).
#ifndef CKPTD_CLIENT_CPP_STRIDED_VIEW_H_
#define CKPTD_CLIENT_CPP_STRIDED_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace ckptd::inline client {

// InvalidArgument unless there are no strides or one per dimension, and data if there are elements.
absl::Status CheckStrides(const std::vector<uint64_t>& sizes,
                          const std::vector<int64_t>& strides_bytes, const void* data);

class StridedView {
 public:
  StridedView() = default;  // Of no bytes.

  // Strides as in ChunkView, and checked by CheckStrides(). Sizes times element_bytes fit into 63
  // bits.
  StridedView(std::byte* data, const std::vector<uint64_t>& sizes, uint64_t element_bytes,
              const std::vector<int64_t>& strides_bytes);

  uint64_t bytes() const { return bytes_; }

  // The memory from byte `offset` of the row-major order on, as far as it is contiguous: at least
  // one byte. offset < bytes().
  std::span<const std::byte> RunAt(uint64_t offset) const;

  // Copies `out.size()` bytes from `offset` on out of the view; offset + size <= bytes().
  void Gather(uint64_t offset, std::span<std::byte> out) const;

  // The other way.
  void Scatter(uint64_t offset, std::span<const std::byte> in) const;

 private:
  struct Dimension {
    uint64_t size;
    int64_t stride_bytes;
  };
  // A position: the run it lies in, and the index of that run in each of dimensions_.
  struct Cursor {
    std::byte* run;
    uint64_t in_run_bytes;
    std::vector<uint64_t> index;
  };

  Cursor Seek(uint64_t offset) const;
  void Advance(Cursor& cursor, uint64_t runs_of_last_dimension) const;
  template <typename Copy>
  void Walk(uint64_t offset, uint64_t bytes, Copy copy) const;

  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  uint64_t run_bytes_ = 0;             // Contiguous stretch; bytes_ if the whole is contiguous.
  std::vector<Dimension> dimensions_;  // Of runs, outermost first; none if there is one run.
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_STRIDED_VIEW_H_
