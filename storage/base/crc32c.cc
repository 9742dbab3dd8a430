#include "storage/base/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace ckptd {

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data) {
  constexpr size_t kCallMax = size_t{1} << 30;  // ISA-L takes the length as an int.
  while (!data.empty()) {
    std::span<const std::byte> part = data.first(std::min(data.size(), kCallMax));
    // crc32_iscsi neither inverts its seed nor its result; the standard does both. It does not
    // write to the buffer.
    auto* bytes = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(part.data()));
    crc = ~crc32_iscsi(bytes, static_cast<int>(part.size()), ~crc);
    data = data.subspan(part.size());
  }
  return crc;
}

}  // namespace ckptd
