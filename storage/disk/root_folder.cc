#include "storage/disk/root_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "storage/base/status.h"
#include "storage/disk/disk_path.h"

namespace ckptd {
namespace {

constexpr uint32_t kPermissionBits = 0777;
constexpr uint32_t kSpecialBits = 07000;  // Set-user-id, set-group-id, sticky.

struct FileSystemName {
  uint64_t magic;
  const char* name;
};
constexpr FileSystemName kFileSystems[] = {
    {EXT4_SUPER_MAGIC, "ext4"},
    {XFS_SUPER_MAGIC, "xfs"},
    {BTRFS_SUPER_MAGIC, "btrfs"},
    {TMPFS_MAGIC, "tmpfs"},
    {OVERLAYFS_SUPER_MAGIC, "overlayfs"},
    {NFS_SUPER_MAGIC, "nfs"},
    {FUSE_SUPER_MAGIC, "fuse"},
    {F2FS_SUPER_MAGIC, "f2fs"},
    {CEPH_SUPER_MAGIC, "ceph"},
    {0x0BD00BD0, "lustre"},
    {0x2FC12FC1, "zfs"},
    {0x47504653, "gpfs"},
    {0x19830326, "beegfs"},
};

std::string NameFileSystem(uint64_t magic) {
  for (const FileSystemName& entry : kFileSystems) {
    if (entry.magic == magic) return entry.name;
  }
  return absl::StrFormat("0x%x", magic);
}

// `call` again for as long as a signal interrupts it.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

absl::Status Failed(absl::string_view call, absl::string_view path) {
  int error = errno;
  return ErrnoStatus(error, absl::StrCat(call, " ", path.empty() ? "." : path));
}

FileKind KindOf(mode_t mode) {
  if (S_ISREG(mode)) return FileKind::kFile;
  if (S_ISDIR(mode)) return FileKind::kFolder;
  return FileKind::kOther;
}

// The path as system calls below a folder's descriptor take it.
std::string Relative(absl::string_view path) {
  return path.empty() ? std::string(".") : std::string(path);
}

}  // namespace

absl::StatusOr<RootFolder> RootFolder::Open(const std::string& path) {
  UniqueFd fd(Retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!fd.valid()) return Failed("open root", path);
  struct statfs info;
  if (Retry([&] { return ::fstatfs(fd.get(), &info); }) < 0) return Failed("statfs root", path);
  return RootFolder(std::move(fd), NameFileSystem(static_cast<uint32_t>(info.f_type)));
}

// A file without a name where the file system has such; else one that is unlinked at once.
absl::StatusOr<UniqueFd> RootFolder::OpenProbe() const {
  constexpr int kFlags = O_RDWR | O_DIRECT | O_CLOEXEC;
  UniqueFd fd(Retry([&] { return ::openat(fd_.get(), ".", O_TMPFILE | kFlags, 0600); }));
  if (fd.valid() || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) {
    if (!fd.valid()) return Failed("open with O_DIRECT", "");
    return fd;
  }
  // The process id is not enough: other hosts may open the same root.
  std::string name = absl::StrCat(".ckptd-probe-", ::getpid(), "-", std::random_device()());
  UniqueFd named(
      Retry([&] { return ::openat(fd_.get(), name.c_str(), O_CREAT | O_EXCL | kFlags, 0600); }));
  if (!named.valid()) {
    absl::Status failed = Failed("open with O_DIRECT", "");
    // A refused O_DIRECT leaves the created file behind on some file systems.
    if (StatusErrno(failed) != EEXIST) ::unlinkat(fd_.get(), name.c_str(), 0);
    return failed;
  }
  ::unlinkat(fd_.get(), name.c_str(), 0);
  return named;
}

absl::Status RootFolder::ProbeDirect() const {
  if (file_system_ == "tmpfs") {
    return absl::FailedPreconditionError("a tmpfs keeps its files in memory");
  }
  absl::StatusOr<UniqueFd> fd = OpenProbe();
  if (!fd.ok()) return absl::FailedPreconditionError(fd.status().message());
  std::unique_ptr<void, decltype(&std::free)> block(
      std::aligned_alloc(Disk::kDirectAlignment, Disk::kDirectAlignment), &std::free);
  std::fill_n(static_cast<char*>(block.get()), Disk::kDirectAlignment, 0);
  ssize_t moved =
      Retry([&] { return ::pwrite(fd->get(), block.get(), Disk::kDirectAlignment, 0); });
  if (moved < 0) {
    return absl::FailedPreconditionError(Failed("write with O_DIRECT", "").message());
  }
  return absl::OkStatus();
}

// The second descriptor of a file that is open already. Not valid if that cannot be, or if the name
// meanwhile means another file: the first descriptor does everything then.
UniqueFd RootFolder::OpenDirect(const std::string& path, int flags, int like_fd) const {
  UniqueFd fd(Retry([&] {
    return ::openat(fd_.get(), path.c_str(),
                    flags | O_DIRECT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  }));
  struct stat ours;
  struct stat like;
  if (!fd.valid() || ::fstat(fd.get(), &ours) < 0 || ::fstat(like_fd, &like) < 0 ||
      ours.st_ino != like.st_ino || ours.st_dev != like.st_dev) {
    return UniqueFd();
  }
  return fd;
}

absl::StatusOr<FileDescriptors> RootFolder::OpenForRead(absl::string_view path, bool direct) const {
  RETURN_IF_ERROR(CheckPathBelowRoot("open", path));
  std::string name(path);
  FileDescriptors files;
  // O_NONBLOCK: a named pipe that somebody put here must not hold us up.
  files.buffered = UniqueFd(Retry([&] {
    return ::openat(fd_.get(), name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  }));
  if (!files.buffered.valid()) return Failed("open", path);
  struct stat info;
  if (::fstat(files.buffered.get(), &info) < 0) return Failed("open", path);
  if (!S_ISREG(info.st_mode)) {
    return ErrnoStatus(S_ISDIR(info.st_mode) ? EISDIR : EINVAL,
                       absl::StrCat("open ", path, ": not a regular file"));
  }
  // Without the hint buffered reads reach half of the rate.
  ::posix_fadvise(files.buffered.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  if (direct) files.direct = OpenDirect(name, O_RDONLY, files.buffered.get());
  return files;
}

absl::StatusOr<FileDescriptors> RootFolder::Create(absl::string_view path, uint32_t mode,
                                                   bool direct) const {
  RETURN_IF_ERROR(CheckPathBelowRoot("create", path));
  std::string name(path);
  FileDescriptors files;
  // The mode comes last: the second open must work even if it has no permission for the owner.
  files.buffered = UniqueFd(Retry([&] {
    return ::openat(fd_.get(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  }));
  if (!files.buffered.valid()) return Failed("create", path);
  if (direct) files.direct = OpenDirect(name, O_RDWR, files.buffered.get());
  if (::fchmod(files.buffered.get(), mode) < 0) return Failed("create", path);
  return files;
}

absl::Status RootFolder::MakeDir(absl::string_view path, uint32_t mode) const {
  RETURN_IF_ERROR(CheckPathBelowRoot("mkdir", path));
  std::string name(path);
  if (::mkdirat(fd_.get(), name.c_str(), mode) < 0) return Failed("mkdir", path);
  struct stat info;
  if (::fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) < 0) {
    return Failed("mkdir", path);
  }
  if ((info.st_mode & kPermissionBits) == (mode & kPermissionBits)) return absl::OkStatus();
  // What the umask took comes back; a set-group-id bit inherited from the parent stays.
  mode_t wanted = (mode & kPermissionBits) | ((mode | info.st_mode) & kSpecialBits);
  if (::fchmodat(fd_.get(), name.c_str(), wanted, 0) < 0) return Failed("mkdir", path);
  return absl::OkStatus();
}

absl::Status RootFolder::Rename(absl::string_view from, absl::string_view to) const {
  RETURN_IF_ERROR(CheckPathBelowRoot("rename", from));
  RETURN_IF_ERROR(CheckPathBelowRoot("rename", to));
  std::string from_name(from);
  std::string to_name(to);
  if (::renameat(fd_.get(), from_name.c_str(), fd_.get(), to_name.c_str()) < 0) {
    return Failed("rename", absl::StrCat(from, " to ", to));
  }
  return absl::OkStatus();
}

absl::Status RootFolder::Unlink(absl::string_view path) const {
  RETURN_IF_ERROR(CheckPathBelowRoot("unlink", path));
  if (::unlinkat(fd_.get(), std::string(path).c_str(), 0) < 0) return Failed("unlink", path);
  return absl::OkStatus();
}

absl::Status RootFolder::RemoveDir(absl::string_view path) const {
  RETURN_IF_ERROR(CheckPathBelowRoot("rmdir", path));
  if (::unlinkat(fd_.get(), std::string(path).c_str(), AT_REMOVEDIR) < 0) {
    return Failed("rmdir", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> RootFolder::OpenFolder(absl::string_view call,
                                                absl::string_view path) const {
  RETURN_IF_ERROR(CheckPath(call, path));
  std::string name = Relative(path);
  UniqueFd fd(Retry([&] {
    return ::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  }));
  if (!fd.valid()) return Failed(call, path);
  return fd;
}

absl::StatusOr<std::vector<DirEntry>> RootFolder::List(absl::string_view path) const {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFolder("list", path));
  std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd.get()), &::closedir);
  if (stream == nullptr) return Failed("list", path);
  fd.release();
  std::vector<DirEntry> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return Failed("list", path);
      break;
    }
    absl::string_view name(entry->d_name);
    if (name == "." || name == "..") continue;
    FileKind kind = KindOf(DTTOIF(entry->d_type));
    if (entry->d_type == DT_UNKNOWN) {
      struct stat info;
      if (::fstatat(::dirfd(stream.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno == ENOENT) continue;  // Removed meanwhile.
        return Failed("list", path);
      }
      kind = KindOf(info.st_mode);
    }
    entries.push_back({std::string(name), kind});
  }
  std::sort(entries.begin(), entries.end(),
            [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return entries;
}

absl::StatusOr<FileInfo> RootFolder::Stat(absl::string_view path) const {
  RETURN_IF_ERROR(CheckPath("stat", path));
  struct stat info;
  if (::fstatat(fd_.get(), Relative(path).c_str(), &info, AT_SYMLINK_NOFOLLOW) < 0) {
    return Failed("stat", path);
  }
  return FileInfo{.kind = KindOf(info.st_mode),
                  .size_bytes = static_cast<uint64_t>(info.st_size),
                  .modified = absl::TimeFromTimespec(info.st_mtim)};
}

absl::Status RootFolder::SyncDir(absl::string_view path) const {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFolder("fsyncdir", path));
  if (Retry([&] { return ::fsync(fd.get()); }) < 0) return Failed("fsyncdir", path);
  return absl::OkStatus();
}

absl::StatusOr<DiskSpace> RootFolder::Space() const {
  struct statfs info;
  if (Retry([&] { return ::fstatfs(fd_.get(), &info); }) < 0) return Failed("statfs", "");
  uint64_t unit = static_cast<uint64_t>(info.f_frsize != 0 ? info.f_frsize : info.f_bsize);
  return DiskSpace{.free_bytes = info.f_bavail * unit, .total_bytes = info.f_blocks * unit};
}

}  // namespace ckptd
