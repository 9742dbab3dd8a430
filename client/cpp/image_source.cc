#include "client/cpp/image_source.h"

#include <algorithm>
#include <cstring>

#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/units.h"

namespace ckptd::inline client {

ImageSource::ImageSource(const ImageLayout& layout, std::span<const StridedView> views,
                         StoreKind stores)
    : stores_(stores) {
  for (const Section& section : layout.sections) {
    for (const PlacedPart& part : section.parts) {
      CKPT_CHECK(part.ordinal < views.size() && views[part.ordinal].bytes() == part.bytes,
                 "a part of the layout is a view of the state");
      sources_.push_back({section.image_offset_bytes + part.offset_bytes, &views[part.ordinal]});
    }
  }
}

uint32_t ImageSource::CopyUnit(const Unit& unit, std::byte* to) const {
  alignas(kStreamAlignment) std::byte gathered[kPieceBytes];
  auto source = std::prev(std::upper_bound(
      sources_.begin(), sources_.end(), unit.image_offset_bytes,
      [](uint64_t offset, const Source& s) { return offset < s.image_offset_bytes; }));
  const uint64_t end = unit.image_offset_bytes + unit.bytes;
  uint64_t at = unit.image_offset_bytes;
  uint32_t crc = 0;
  while (at < end) {
    const uint64_t piece_bytes = std::min(end - at, kPieceBytes);
    const std::byte* from = gathered;
    // A large contiguous tensor is read where it is.
    const uint64_t in_view = at - source->image_offset_bytes;
    const std::span<const std::byte> run = source->view->RunAt(in_view);
    if (piece_bytes == kPieceBytes && run.size() >= kPieceBytes) {
      from = run.data();
      if (in_view + kPieceBytes == source->view->bytes()) ++source;
    } else {
      uint64_t have = 0;
      while (have < piece_bytes) {
        const uint64_t offset = at + have - source->image_offset_bytes;
        const uint64_t part = std::min(piece_bytes - have, source->view->bytes() - offset);
        source->view->Gather(offset, std::span(gathered + have, part));
        have += part;
        if (offset + part == source->view->bytes()) ++source;
      }
      std::memset(gathered + have, 0, kPieceBytes - have);
    }
    crc = ExtendCrc32c(crc, std::span(from, piece_bytes));
    StreamCopy(stores_, to, from, kPieceBytes);
    at += piece_bytes;
    to += kPieceBytes;
  }
  StreamFence();
  return crc;
}

}  // namespace ckptd::inline client
