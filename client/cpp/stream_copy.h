// Copies past the caches: the target's lines are not read first and displace nothing. For memory
// that this processor will not read again soon, such as an arena.
#ifndef CKPTD_CLIENT_CPP_STREAM_COPY_H_
#define CKPTD_CLIENT_CPP_STREAM_COPY_H_

#include <cstddef>
#include <vector>

namespace ckptd::inline client {

enum class StoreKind { kPlain, kSse2, kAvx2, kAvx512 };

// What this processor can, the best last; kPlain always.
std::vector<StoreKind> SupportedStores();
StoreKind BestStores();

inline constexpr size_t kStreamAlignment = 64;

// Copies `bytes`. `to` and `bytes` are multiples of kStreamAlignment (CHECKed); `from` may have any
// alignment; no overlap. Other threads see the bytes only after StreamFence() by this one.
void StreamCopy(StoreKind kind, std::byte* to, const std::byte* from, size_t bytes);

// Orders all stores of this thread before what it does next.
void StreamFence();

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_STREAM_COPY_H_
