#include "client/examples/trainer_json.h"

#include <nlohmann/json.hpp>

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;

Json ToJson(const JsonValue& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) {
          return nullptr;
        } else {
          return held;
        }
      },
      value);
}

}  // namespace

std::string ToJsonLine(const JsonObject& object) {
  Json json = Json::object();
  for (const auto& [name, value] : object) json[name] = ToJson(value);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsJson(absl::string_view text) { return Json::accept(text.begin(), text.end()); }

}  // namespace ckptd
