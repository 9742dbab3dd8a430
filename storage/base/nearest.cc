#include "storage/base/nearest.h"

#include <algorithm>
#include <utility>

namespace ckptd {
namespace {

// Levenshtein's distance, one row at a time.
size_t Edits(absl::string_view from, absl::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Nearest(absl::string_view name, const std::vector<std::string>& candidates) {
  auto nearest = std::min_element(candidates.begin(), candidates.end(),
                                  [&](const std::string& left, const std::string& right) {
                                    return Edits(name, left) < Edits(name, right);
                                  });
  return nearest == candidates.end() ? "" : *nearest;
}

std::string LikelyMeant(absl::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest = Nearest(name, candidates);
  size_t edits = Edits(name, nearest);
  // As many edits as there are characters make anything of anything.
  bool likely = edits <= std::max<size_t>(2, name.size() / 3) && edits < name.size();
  return likely ? nearest : "";
}

}  // namespace ckptd
