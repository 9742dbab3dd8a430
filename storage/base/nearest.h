// The name that somebody meant and mistyped.
#ifndef CKPTD_STORAGE_BASE_NEAREST_H_
#define CKPTD_STORAGE_BASE_NEAREST_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ckptd {

// The candidate with the fewest edits (characters put in, taken out or replaced) to `name`; "" of
// none.
std::string Nearest(absl::string_view name, const std::vector<std::string>& candidates);

// The same, if the edits are at most 2 or a third of the name's length; else "".
std::string LikelyMeant(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_NEAREST_H_
