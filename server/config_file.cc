#include "server/config_file.h"

#include <errno.h>

#include <cstdio>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "toml++/toml.h"

namespace ckptd {
namespace {

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", path));
  absl::Cleanup close = [file] { std::fclose(file); };
  std::string text;
  char part[4096];
  while (size_t size = std::fread(part, 1, sizeof part, file)) text.append(part, size);
  if (std::ferror(file) != 0) return ErrnoStatus(errno, absl::StrCat("read ", path));
  return text;
}

std::optional<std::string> ScalarText(const toml::node& node) {
  if (auto text = node.as_string()) return text->get();
  if (auto number = node.as_integer()) return absl::StrCat(number->get());
  if (auto boolean = node.as_boolean()) return boolean->get() ? "on" : "off";
  return std::nullopt;
}

// Empty: not a kind of value that settings have.
std::optional<std::vector<std::string>> Texts(const toml::node& node) {
  std::vector<std::string> texts;
  const toml::array* array = node.as_array();
  if (array == nullptr) {
    std::optional<std::string> text = ScalarText(node);
    if (!text.has_value()) return std::nullopt;
    return std::vector<std::string>{*text};
  }
  for (const toml::node& element : *array) {
    std::optional<std::string> text = ScalarText(element);
    if (!text.has_value()) return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

}  // namespace

absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(absl::string_view path) {
  ASSIGN_OR_RETURN(std::string text, ReadText(std::string(path)));
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.source().begin.line, ": ", std::string(error.description())));
  }
  std::vector<ConfigFileEntry> entries;
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    std::optional<std::vector<std::string>> texts = Texts(node);
    if (!texts.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", node.source().begin.line, ": ", name,
                       " is neither a text, a whole number, true or false nor a list of those"));
    }
    entries.emplace_back(std::move(name), *std::move(texts));
  }
  return entries;
}

}  // namespace ckptd
