#include "client/examples/trainer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

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

absl::Status Malformed(absl::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat("not a safetensors header, at \"", name, "\""));
}

absl::StatusOr<FileTensor> ParseEntry(const std::string& name, const Json& entry) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return Malformed(name);
  }
  FileTensor tensor;
  tensor.name = name;
  const std::string dtype = entry["dtype"];
  const std::optional<DType> known = DTypeFromSafetensors(dtype);
  if (!known) {
    return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" has unknown dtype ", dtype));
  }
  tensor.dtype = *known;
  for (const Json& size : entry["shape"]) {
    if (!size.is_number_unsigned()) return Malformed(name);
    tensor.shape.push_back(size);
  }
  for (const Json& offset : entry["data_offsets"]) {
    if (!offset.is_number_unsigned()) return Malformed(name);
  }
  tensor.begin_bytes = entry["data_offsets"][0];
  tensor.end_bytes = entry["data_offsets"][1];
  const absl::StatusOr<uint64_t> bytes = CheckedBytes(tensor.shape, Info(tensor.dtype).size_bytes);
  if (!bytes.ok() || tensor.end_bytes - tensor.begin_bytes != *bytes) return Malformed(name);
  return tensor;
}

}  // namespace

std::string ToJsonLine(const JsonObject& object) {
  Json json = Json::object();
  for (const auto& [name, value] : object) json[name] = ToJson(value);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsJson(absl::string_view text) { return Json::accept(text.begin(), text.end()); }

absl::StatusOr<std::vector<FileTensor>> ParseSafetensorsHeader(absl::string_view header) {
  const Json json = Json::parse(header.begin(), header.end(), nullptr, false);
  if (!json.is_object()) return Malformed("the start");
  std::vector<FileTensor> tensors;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<FileTensor> tensor = ParseEntry(name, entry);
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(*std::move(tensor));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const FileTensor& a, const FileTensor& b) { return a.begin_bytes < b.begin_bytes; });
  return tensors;
}

}  // namespace ckptd
