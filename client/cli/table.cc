#include "client/cli/table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "storage/base/check.h"

namespace ckptd {
namespace {

// Of UTF-8 text, as most terminals show it: one column a character.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

std::string Printable(absl::string_view text) {
  bool plain =
      std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; });
  return plain ? std::string(text) : absl::Utf8SafeCHexEscape(text);
}

Table::Table(const std::vector<std::string>& titles) {
  std::vector<std::string> row;
  for (absl::string_view title : titles) {
    right_.push_back(absl::ConsumePrefix(&title, ">"));
    row.emplace_back(title);
  }
  rows_.push_back(std::move(row));
}

void Table::Add(std::vector<std::string> row) {
  CKPT_CHECK(row.size() == right_.size(), "a row has one text per column");
  for (std::string& text : row) text = Printable(text);
  rows_.push_back(std::move(row));
}

std::string Table::Text(int indent) const {
  std::vector<size_t> widths(right_.size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::string line(indent, ' ');
    for (size_t i = 0; i < row.size(); ++i) {
      std::string space(widths[i] - Width(row[i]), ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  ", right_[i] ? space : "", row[i],
                      right_[i] ? "" : space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&text, line, "\n");
  }
  return text;
}

}  // namespace ckptd
