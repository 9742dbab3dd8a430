// Tries on a root what a commit needs of its file system. Each probe works in a folder of its own
// with a name that nobody else uses, and removes it. Every call may block for as long as the file
// system does. Errors carry the errno and name the call.
#ifndef CKPTD_STORAGE_DISK_ROOT_PROBE_H_
#define CKPTD_STORAGE_DISK_ROOT_PROBE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/disk/root_folder.h"

namespace ckptd {

// Whether a folder takes a free name with all that is in it, and never that of a folder that is not
// empty: the commit. FailedPrecondition if the file system does something else.
absl::Status ProbeRename(const RootFolder& root);

// How long it takes to sync a small file and its folder.
absl::StatusOr<absl::Duration> ProbeSync(const RootFolder& root);

// Whether a lock on an open file keeps others out. FailedPrecondition if it does not.
absl::Status ProbeLocks(const RootFolder& root);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_ROOT_PROBE_H_
