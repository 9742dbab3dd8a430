// All the JSON of the trainer: lines to print, and values of items.
#ifndef CKPTD_CLIENT_EXAMPLES_TRAINER_JSON_H_
#define CKPTD_CLIENT_EXAMPLES_TRAINER_JSON_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace ckptd {

// null, bool, number, text or list of texts.
using JsonValue = std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string,
                               std::vector<std::string>>;
using JsonObject = std::vector<std::pair<std::string, JsonValue>>;

// One line, fields in the order given, without the line break. Bytes that are not UTF-8 become
// U+FFFD.
std::string ToJsonLine(const JsonObject& object);

bool IsJson(absl::string_view text);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_EXAMPLES_TRAINER_JSON_H_
