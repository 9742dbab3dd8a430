// Reads a flat TOML file of settings.
#ifndef CKPTD_SERVER_CONFIG_FILE_H_
#define CKPTD_SERVER_CONFIG_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ckptd {

// One key with its values as texts: a string, a whole number or true/false (on, off), or an array
// of those.
using ConfigFileEntry = std::pair<std::string, std::vector<std::string>>;

// Errors name the file: NotFound or PermissionDenied if it cannot be read; InvalidArgument, with
// the line, if it is no TOML or has a table or another kind of value.
absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(absl::string_view path);

}  // namespace ckptd

#endif  // CKPTD_SERVER_CONFIG_FILE_H_
