// ImageSource: where the bytes of a rank's image come from, and the one pass that copies and
// checksums them.
//
// A unit is copied in pieces of 4 KiB: checksum of the piece while it is in the first cache, then
// streaming stores of it. A piece that comes from several places (small tensors, strided views) is
// gathered in the first cache before.
//
// Threads: CopyUnit() may run for different units on several threads.
#ifndef CKPTD_CLIENT_CPP_IMAGE_SOURCE_H_
#define CKPTD_CLIENT_CPP_IMAGE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/stream_copy.h"
#include "client/cpp/strided_view.h"
#include "storage/plan/image_layout.h"

namespace ckptd::inline client {

inline constexpr uint64_t kPieceBytes = 4096;

class ImageSource {
 public:
  // `views` by ordinal, for all ordinals of the plan; the memory behind them must outlive this
  // object. `layout` of the ordinals that the rank writes.
  ImageSource(const ImageLayout& layout, std::span<const StridedView> views,
              StoreKind stores = BestStores());

  // Copies the unit to `to`, fills it up with zeros to a multiple of kPieceBytes (which stays in
  // the same block), fences, and returns the unit's CRC32C. `to` is a multiple of kStreamAlignment.
  uint32_t CopyUnit(const Unit& unit, std::byte* to) const;

 private:
  struct Source {
    uint64_t image_offset_bytes;
    const StridedView* view;
  };

  const StoreKind stores_;
  std::vector<Source> sources_;  // By offset; without a gap inside a section.
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_IMAGE_SOURCE_H_
