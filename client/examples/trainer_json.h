// All the JSON of the trainer: lines to print, and the header of a safetensors file.
#ifndef CKPTD_CLIENT_EXAMPLES_TRAINER_JSON_H_
#define CKPTD_CLIENT_EXAMPLES_TRAINER_JSON_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/plan/box.h"
#include "storage/plan/dtype.h"

namespace ckptd {

// null, bool, number, text or list of texts.
using JsonValue = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string,
                               std::vector<std::string>>;
using JsonObject = std::vector<std::pair<std::string, JsonValue>>;

// One line, fields in the order given, without the line break. Bytes that are not UTF-8 become
// U+FFFD.
std::string ToJsonLine(const JsonObject& object);

bool IsJson(absl::string_view text);

struct FileTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  uint64_t begin_bytes = 0;  // In the data section.
  uint64_t end_bytes = 0;
};

// The tensors of a safetensors header, in order of their data. InvalidArgument for what is none, or
// for a dtype that we do not know.
absl::StatusOr<std::vector<FileTensor>> ParseSafetensorsHeader(absl::string_view header);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_EXAMPLES_TRAINER_JSON_H_
