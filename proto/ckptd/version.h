// The version of this source tree and of its protocol.
#ifndef CKPTD_PROTO_CKPTD_VERSION_H_
#define CKPTD_PROTO_CKPTD_VERSION_H_

#include <cstdint>

namespace ckptd {

inline constexpr char kVersion[] = "0.1.0";

// Client and daemon must have the same: raised with every change of proto/ckptd/v1 or of the image
// layout that the other side would misread.
inline constexpr uint32_t kProtocolVersion = 1;

inline constexpr char kTokenMetadataKey[] = "ckptd-token";

// Both sides of the Unix socket accept messages up to this size; streams are cut at
// kStreamPartBytes.
inline constexpr int kMessageBytesMax = 64 << 20;
inline constexpr uint64_t kStreamPartBytes = 256 << 10;

}  // namespace ckptd

#endif  // CKPTD_PROTO_CKPTD_VERSION_H_
