// The rules that disk.h sets for paths, in one place for all disks.
#ifndef CKPTD_STORAGE_DISK_DISK_PATH_H_
#define CKPTD_STORAGE_DISK_DISK_PATH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ckptd {

// InvalidArgument "<call> <path>: why" if the path breaks a rule of disk.h. "" (the root) is
// allowed.
absl::Status CheckPath(absl::string_view call, absl::string_view path);

// The same for calls that cannot work on the root itself: "" is InvalidArgument too.
absl::Status CheckPathBelowRoot(absl::string_view call, absl::string_view path);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_DISK_PATH_H_
