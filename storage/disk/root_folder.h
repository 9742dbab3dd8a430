// RootFolder is a root's folder on a real file system: every call that names a path, made with
// openat(2) and its like below one descriptor, so that a root may be moved while it is in use.
//
// Rules for paths, error texts and what each call promises are those of disk.h. Every call may
// block. Thread-safe.
#ifndef CKPTD_STORAGE_DISK_ROOT_FOLDER_H_
#define CKPTD_STORAGE_DISK_ROOT_FOLDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/base/unique_fd.h"
#include "storage/disk/disk.h"

namespace ckptd {

// Two descriptors of one file: `direct` has O_DIRECT and is not valid where the file cannot be
// opened so.
struct FileDescriptors {
  UniqueFd buffered;
  UniqueFd direct;
};

class RootFolder {
 public:
  // The folder must exist. `path` is the one path here that may be absolute.
  static absl::StatusOr<RootFolder> Open(const std::string& path);

  // OK if O_DIRECT works here with Disk::kDirectAlignment: tried by writing a block to a file
  // without a name. FailedPrecondition with the reason otherwise. A tmpfs counts as "no": it has no
  // disk to go to.
  absl::Status ProbeDirect() const;

  // "ext4", "xfs" …; "0x1234" for a type that we have no name for.
  const std::string& file_system() const { return file_system_; }

  absl::StatusOr<FileDescriptors> OpenForRead(absl::string_view path, bool direct) const;
  absl::StatusOr<FileDescriptors> Create(absl::string_view path, uint32_t mode, bool direct) const;
  absl::Status MakeDir(absl::string_view path, uint32_t mode) const;
  absl::Status Rename(absl::string_view from, absl::string_view to) const;
  absl::Status Unlink(absl::string_view path) const;
  absl::Status RemoveDir(absl::string_view path) const;
  absl::StatusOr<std::vector<DirEntry>> List(absl::string_view path) const;
  absl::StatusOr<FileInfo> Stat(absl::string_view path) const;
  absl::Status SyncDir(absl::string_view path) const;
  absl::StatusOr<DiskSpace> Space() const;

 private:
  RootFolder(UniqueFd fd, std::string file_system)
      : fd_(std::move(fd)), file_system_(std::move(file_system)) {}

  absl::StatusOr<UniqueFd> OpenFolder(absl::string_view call, absl::string_view path) const;
  UniqueFd OpenDirect(const std::string& path, int flags, int like_fd) const;
  absl::StatusOr<UniqueFd> OpenProbe() const;

  UniqueFd fd_;
  std::string file_system_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_ROOT_FOLDER_H_
