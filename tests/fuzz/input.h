// Input takes the bytes of one fuzz input apart, from the front. Numbers are little-endian; past
// the end there are zeros.
#ifndef CKPTD_TESTS_FUZZ_INPUT_H_
#define CKPTD_TESTS_FUZZ_INPUT_H_

#include <google/protobuf/message_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace ckptd {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }

  uint64_t Number(size_t bytes) {
    uint64_t number = 0;
    const absl::string_view taken = Take(bytes);
    for (size_t i = 0; i < taken.size(); ++i) {
      number |= uint64_t{static_cast<uint8_t>(taken[i])} << (8 * i);
    }
    return number;
  }

  // The next one of a sequence of messages, each after two bytes with its length.
  absl::string_view Message() { return Take(Number(2)); }

  // False if the bytes are no such message: nobody else gets to see them then.
  static bool Parse(absl::string_view bytes, google::protobuf::MessageLite& message) {
    google::protobuf::SetLogHandler(nullptr);  // It prints a line for each text that is none.
    return message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }

 private:
  absl::string_view Take(size_t bytes) {
    const absl::string_view taken = rest_.substr(0, std::min(bytes, rest_.size()));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  absl::string_view rest_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_FUZZ_INPUT_H_
