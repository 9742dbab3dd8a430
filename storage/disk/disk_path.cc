#include "storage/disk/disk_path.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

absl::Status Refuse(absl::string_view call, absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(call, " \"", absl::CEscape(path), "\": ", why));
}

}  // namespace

absl::Status CheckPath(absl::string_view call, absl::string_view path) {
  if (path.empty()) return absl::OkStatus();
  if (path.front() == '/') return Refuse(call, path, "the path is absolute");
  if (path.find('\0') != path.npos) return Refuse(call, path, "the path has a zero byte");
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty()) return Refuse(call, path, "the path has an empty part");
    if (part == "." || part == "..") {
      return Refuse(call, path, absl::StrCat("the path has a part \"", part, "\""));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPathBelowRoot(absl::string_view call, absl::string_view path) {
  if (path.empty()) return Refuse(call, path, "this is the root itself");
  return CheckPath(call, path);
}

}  // namespace ckptd
