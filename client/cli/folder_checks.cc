#include "client/cli/folder_checks.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/default_paths.h"
#include "storage/base/status.h"
#include "storage/base/unique_fd.h"
#include "storage/base/units.h"
#include "storage/disk/root_folder.h"
#include "storage/disk/root_probe.h"

namespace ckptd {
namespace {

// How to mend what a folder's file system answers.
std::string FolderAdvice(const absl::Status& status, const std::string& folder) {
  switch (StatusErrno(status)) {
    case ENOENT:
      return absl::StrCat("mkdir -p ", folder, " (the daemon makes it itself where it may)");
    case EACCES:
    case EPERM:
      return absl::StrCat("give it to the user that trains: chown ", ::geteuid(), " ", folder);
    case EROFS:
      return absl::StrCat("mount it for writing: mount -o remount,rw; in a container: a volume");
    case ENOSPC:
    case EDQUOT:
      return "make room, or raise the quota";
    case ENOTDIR:
      return "name a folder";
    case ENOLCK:
    case ENOSYS:
    case EOPNOTSUPP:
      return "mount it with what it lacks (locks of NFS: local_lock=none and a lock service; "
             "Lustre: "
             "-o flock), or take another file system";
    default:
      return "look at the mount and the kernel's log";
  }
}

HostCheck Failed(const std::string& name, bool needed, const absl::Status& status,
                 const std::string& folder) {
  return {name, needed, false, std::string(status.message()), FolderAdvice(status, folder)};
}

HostCheck FileSystem(const RootFolder& root, const std::string& path) {
  absl::StatusOr<DiskSpace> space = root.Space();
  if (!space.ok()) return Failed("file_system", false, space.status(), path);
  HostCheck check{.name = "file_system", .ok = true};
  check.value = absl::StrCat(root.file_system(), ", ", HumanSize(space->free_bytes), " of ",
                             HumanSize(space->total_bytes), " free");
  if (root.file_system() == "tmpfs") {
    check.ok = false;
    check.advice = "take a disk for --root: what is here is gone with the machine's memory";
  } else if (root.file_system() == "overlayfs") {
    check.advice = "a container's own layer goes with the container: mount a volume for --root";
  }
  return check;
}

HostCheck DirectIo(const RootFolder& root, const std::string& path) {
  HostCheck check{.name = "direct_io", .ok = true, .value = "O_DIRECT works"};
  absl::Status probe = root.ProbeDirect();
  if (probe.ok()) return check;
  check.ok = false;
  check.value = std::string(probe.message());
  check.advice = absl::StrCat(
      "take a file system with O_DIRECT for ", path,
      " (ext4, xfs …); without it writing takes 3 to 5 times as long and the page cache competes "
      "with the trainers for memory");
  return check;
}

HostCheck Needed(const std::string& name, const absl::Status& status, const std::string& value,
                 const std::string& path) {
  if (!status.ok()) return Failed(name, true, status, path);
  return {name, true, true, value, ""};
}

bool Answers(const std::string& socket) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.data(), socket.size());
  return fd.valid() &&
         ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

// The daemon makes the missing folders itself.
absl::Status CanMakeFolder(const std::filesystem::path& folder) {
  std::filesystem::path above = folder;
  std::error_code error;
  while (!std::filesystem::exists(above, error) && above.has_relative_path()) {
    above = above.parent_path();
  }
  if (::access(above.c_str(), W_OK | X_OK) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("mkdir ", folder.string()));
}

absl::Status CanListen(const std::string& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info;
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("open ", folder));
  }
  if (::geteuid() != 0 && info.st_uid != ::geteuid() && info.st_uid != 0) {
    return ErrnoStatus(EPERM, absl::StrCat(folder, " belongs to uid ", info.st_uid));
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // By way of the descriptor: its own path may be as long as a socket's path can be.
  std::string name = absl::StrCat(".ckptd-probe-", ::getpid());
  std::string path = absl::StrCat("/proc/self/fd/", fd.get(), "/", name);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen in ", folder));
  }
  ::unlinkat(fd.get(), name.c_str(), 0);
  ASSIGN_OR_RETURN(RootFolder locks, RootFolder::Open(folder));
  return WithContext(ProbeLocks(locks), absl::StrCat("lock in ", folder));
}

}  // namespace

void CheckRoot(const std::string& path, const BoundedProbe::Emit& emit) {
  absl::StatusOr<RootFolder> root = RootFolder::Open(path);
  if (!root.ok()) {
    emit(Failed("file_system", false, root.status(), path));
    emit(Failed("direct_io", false, root.status(), path));
    for (const char* name : {"rename", "fsync", "locks"}) {
      emit(Failed(name, true, root.status(), path));
    }
    return;
  }
  emit(FileSystem(*root, path));
  emit(DirectIo(*root, path));
  emit(Needed("rename", ProbeRename(*root), "a folder takes a free name and no other", path));
  absl::StatusOr<absl::Duration> sync = ProbeSync(*root);
  emit(Needed("fsync", sync.status(),
              absl::StrCat("a small file and its folder in ",
                           sync.ok() ? absl::ToInt64Microseconds(*sync) : 0, " µs"),
              path));
  emit(Needed("locks", ProbeLocks(*root), "a lock keeps others out", path));
}

HostCheck CheckSocket(const std::string& socket) {
  HostCheck check{.name = "socket", .needed = true};
  absl::Status fits = CheckSocketPath(socket);
  if (!fits.ok()) {
    check.value = std::string(fits.message());
    check.advice = "name a shorter path with --socket";
    return check;
  }
  check.ok = true;
  if (Answers(socket)) {
    check.value = absl::StrCat("a daemon answers at ", socket);
    return check;
  }
  std::filesystem::path folder = std::filesystem::path(socket).parent_path();
  std::error_code error;
  bool there = std::filesystem::exists(folder, error);
  absl::Status can = there ? CanListen(folder.string()) : CanMakeFolder(folder);
  check.ok = can.ok();
  check.value = !can.ok() ? std::string(can.message())
                : there   ? absl::StrCat("a daemon can listen at ", socket)
                          : absl::StrCat("a daemon can make ", folder.string());
  if (!can.ok()) {
    check.advice = absl::StrCat(
        "name another place with --socket (daemon) and CKPTD_SOCKET "
        "(ranks and tools), or: ",
        FolderAdvice(can, folder.string()));
  }
  return check;
}

}  // namespace ckptd
