// CRC32C (Castagnoli, polynomial 0x1EDC6F41, RFC 3720 appendix B.4), by ISA-L's crc32_iscsi.
#ifndef CKPTD_STORAGE_BASE_CRC32C_H_
#define CKPTD_STORAGE_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"

namespace ckptd {

// The checksum of `a` followed by `b` is ExtendCrc32c(Crc32c(a), b). That of no bytes is 0; of
// "123456789" 0xE3069283.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> data);

inline uint32_t Crc32c(std::span<const std::byte> data) { return ExtendCrc32c(0, data); }
inline uint32_t Crc32c(absl::string_view data) { return Crc32c(std::as_bytes(std::span(data))); }

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_CRC32C_H_
