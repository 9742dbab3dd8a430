#include "client/cpp/stream_copy.h"

#include <atomic>
#include <cstdint>
#include <cstring>

#include "storage/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ckptd::inline client {
namespace {

#if defined(__x86_64__)

void CopySse2(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_loadu_si128(source);
    const __m128i b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2);
    const __m128i d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
}

__attribute__((target("avx2"))) void CopyAvx2(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    const auto* source = reinterpret_cast<const __m256i*>(from + i);
    auto* target = reinterpret_cast<__m256i*>(to + i);
    const __m256i a = _mm256_loadu_si256(source);
    const __m256i b = _mm256_loadu_si256(source + 1);
    _mm256_stream_si256(target, a);
    _mm256_stream_si256(target + 1, b);
  }
}

__attribute__((target("avx512f"))) void CopyAvx512(std::byte* to, const std::byte* from,
                                                   size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
  }
}

#endif

}  // namespace

std::vector<StoreKind> SupportedStores() {
  std::vector<StoreKind> kinds = {StoreKind::kPlain};
#if defined(__x86_64__)
  kinds.push_back(StoreKind::kSse2);
  if (__builtin_cpu_supports("avx2")) kinds.push_back(StoreKind::kAvx2);
  if (__builtin_cpu_supports("avx512f")) kinds.push_back(StoreKind::kAvx512);
#endif
  return kinds;
}

StoreKind BestStores() { return SupportedStores().back(); }

void StreamCopy(StoreKind kind, std::byte* to, const std::byte* from, size_t bytes) {
  CKPT_CHECK(
      reinterpret_cast<uintptr_t>(to) % kStreamAlignment == 0 && bytes % kStreamAlignment == 0,
      "streaming stores write whole aligned lines");
  switch (kind) {
#if defined(__x86_64__)
    case StoreKind::kSse2:
      return CopySse2(to, from, bytes);
    case StoreKind::kAvx2:
      return CopyAvx2(to, from, bytes);
    case StoreKind::kAvx512:
      return CopyAvx512(to, from, bytes);
#endif
    default:
      std::memcpy(to, from, bytes);
  }
}

void StreamFence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace ckptd::inline client
