// What every fuzz target asserts of the code that reads hostile input, beside what it computes.
// A breach ends the process (CKPT_CHECK).
#ifndef CKPTD_TESTS_FUZZ_PROPERTIES_H_
#define CKPTD_TESTS_FUZZ_PROPERTIES_H_

#include <cstddef>
#include <initializer_list>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ckptd {

// An answer to input: OK, or an error with one of these codes and a text that reaches people whole.
// It is UTF-8, says something, and fits the 8 KiB of a gRPC trailer, where it is percent-encoded.
void CheckAnswer(const absl::Status& status, std::initializer_list<absl::StatusCode> codes);

// The same, and the error names this thing.
void CheckAnswerNames(const absl::Status& status, std::initializer_list<absl::StatusCode> codes,
                      absl::string_view thing);

// While it lives, the memory that this process has from operator new (from malloc() too, under the
// address sanitizer) grows by at most `slack_bytes` plus
// `factor` bytes for each byte of input: a length that the input claims allocates nothing. One at a
// time; counts every thread.
// What Protocol Buffers reserve for a text of any length before they see that it is not there.
inline constexpr size_t kProtobufBytes = 51 << 20;

class MemoryBound {
 public:
  explicit MemoryBound(size_t input_bytes, size_t factor = 400, size_t slack_bytes = 1 << 20);
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;
  ~MemoryBound();
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_FUZZ_PROPERTIES_H_
