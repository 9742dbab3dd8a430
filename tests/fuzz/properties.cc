#include "tests/fuzz/properties.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "absl/strings/match.h"
#include "storage/base/check.h"
#include "storage/plan/rank_plan.h"

#if defined(__SANITIZE_ADDRESS__)
#define CKPTD_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CKPTD_ADDRESS_SANITIZER
#endif
#endif
#ifdef CKPTD_ADDRESS_SANITIZER
// Of sanitizer/allocator_interface.h, which GCC does not bring.
extern "C" int __sanitizer_install_malloc_and_free_hooks(
    void (*allocated)(const volatile void* memory, size_t bytes),
    void (*freed)(const volatile void* memory));
extern "C" size_t __sanitizer_get_allocated_size(const volatile void* memory);
#endif

namespace ckptd {
namespace {

constexpr size_t kTrailerBytesMax = 7000;  // Of gRPC's 8 KiB; code and names take some.
constexpr int64_t kNoBound = INT64_MAX;

std::atomic<int64_t> held_bytes = 0;  // From operator new.
std::atomic<int64_t> bound_bytes = kNoBound;

size_t TrailerBytes(absl::string_view text) {
  size_t bytes = 0;
  for (char c : text) bytes += c < ' ' || c > '~' || c == '%' ? 3 : 1;
  return bytes;
}

}  // namespace

void Allocated(size_t bytes) {
  const int64_t held = held_bytes += static_cast<int64_t>(bytes);
  if (held <= bound_bytes) return;
  bound_bytes = kNoBound;
  std::fprintf(stderr, "an allocation of %zu bytes\n", bytes);
  CheckFailed(__FILE__, __LINE__, "memory", "input takes no more memory than its size allows");
}

void CheckAnswer(const absl::Status& status, std::initializer_list<absl::StatusCode> codes) {
  if (status.ok()) return;
  const bool known = std::find(codes.begin(), codes.end(), status.code()) != codes.end();
  const bool text = !status.message().empty() && CheckEntryName(status.message()).ok();
  const bool fits = TrailerBytes(status.message()) <= kTrailerBytesMax;
  if (!known || !text || !fits) {
    std::fprintf(stderr, "the answer: %s\n", std::string(status.ToString()).c_str());
  }
  CKPT_CHECK(known, "the code is one that this answer may have");
  CKPT_CHECK(text, "the message is a text");
  CKPT_CHECK(fits, "the message fits a trailer");
}

void CheckAnswerNames(const absl::Status& status, std::initializer_list<absl::StatusCode> codes,
                      absl::string_view thing) {
  CheckAnswer(status, codes);
  if (status.ok()) return;
  const bool named = absl::StrContains(status.message(), thing);
  if (!named) std::fprintf(stderr, "the answer: %s\n", std::string(status.ToString()).c_str());
  CKPT_CHECK(named, "the error names the thing");
}

MemoryBound::MemoryBound(size_t input_bytes, size_t factor, size_t slack_bytes) {
  bound_bytes = held_bytes + static_cast<int64_t>(slack_bytes + input_bytes * factor);
}

MemoryBound::~MemoryBound() { bound_bytes = kNoBound; }

}  // namespace ckptd

#ifdef CKPTD_ADDRESS_SANITIZER

// Its allocator has hooks, and minds a replacement.
[[maybe_unused]] const int installed = __sanitizer_install_malloc_and_free_hooks(
    [](const volatile void*, size_t bytes) { ckptd::Allocated(bytes); },
    [](const volatile void* memory) {
      ckptd::held_bytes -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
    });

#else

// Those for arrays, and those that do not fail, come here too; aligned ones are not counted.
void* operator new(size_t bytes) {
  if (bytes > static_cast<size_t>(ckptd::bound_bytes - ckptd::held_bytes)) ckptd::Allocated(bytes);
  void* memory = std::malloc(bytes);
  CKPT_CHECK(memory != nullptr, "there is memory");
  ckptd::Allocated(malloc_usable_size(memory));
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) ckptd::held_bytes -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

#endif
