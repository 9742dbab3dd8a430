// What the targets of the small files (storage/format/records.h) have in common.
#ifndef CKPTD_TESTS_FUZZ_RECORD_H_
#define CKPTD_TESTS_FUZZ_RECORD_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "tests/fuzz/properties.h"

namespace ckptd {

// The content of a file with the checksum that belongs to it: no fuzzer guesses one.
inline std::string Sealed(absl::string_view content) {
  std::string file(content);
  const uint32_t crc = Crc32c(file);
  file.push_back((15 << 3) | 5);
  for (int shift = 0; shift < 32; shift += 8) file.push_back(static_cast<char>(crc >> shift));
  return file;
}

// Reads `file` and, if it is one, sees that writing and reading give the same again.
template <typename Value>
std::optional<Value> CheckRecord(absl::string_view file,
                                 absl::StatusOr<Value> (*decode)(absl::string_view),
                                 std::string (*encode)(const Value&)) {
  absl::StatusOr<Value> value = decode(file);
  CheckAnswer(value.status(), {absl::StatusCode::kDataLoss, absl::StatusCode::kFailedPrecondition,
                               absl::StatusCode::kInvalidArgument});
  if (!value.ok()) return std::nullopt;
  const std::string written = encode(*value);
  const absl::StatusOr<Value> again = decode(written);
  CKPT_CHECK(again.ok(), "what was written is read");
  CKPT_CHECK(*again == *value, "what was written is what was read");
  CKPT_CHECK(encode(*again) == written, "equal values have equal bytes");
  return *std::move(value);
}

// The same for an input as it is, and for an input as the content of a file.
template <typename Value>
std::optional<Value> CheckRecordInput(absl::string_view input,
                                      absl::StatusOr<Value> (*decode)(absl::string_view),
                                      std::string (*encode)(const Value&)) {
  const MemoryBound bound(input.size(), 400, kProtobufBytes);
  CheckRecord(input, decode, encode);
  return CheckRecord(Sealed(input), decode, encode);
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_FUZZ_RECORD_H_
