#include "server/locks.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "proto/ckptd/default_paths.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

absl::Status MakeFolders(const std::string& path, mode_t mode) {
  for (size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1)) {
    std::string parent = path.substr(0, slash);
    struct stat info;
    if (::stat(parent.c_str(), &info) == 0) continue;
    RETURN_IF_ERROR(MakeFolder(parent, mode));
  }
  return MakeFolder(path, mode);
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

// "pid 17 on host a". The holder writes it just after it has locked, so it may be missing for a
// moment.
std::string Holder(int fd) {
  for (int tries = 0; tries < 20; ++tries) {
    char text[512];
    ssize_t size = ::pread(fd, text, sizeof text, 0);
    if (size > 0 && text[size - 1] == '\n') {
      std::vector<std::string> words = absl::StrSplit(absl::string_view(text, size - 1), ' ');
      if (words.size() == 2) return absl::StrCat("pid ", words[0], " on host ", words[1]);
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  return "an unknown process";
}

struct Locked {
  UniqueFd fd;
  bool supported = true;
  bool named = true;  // Its file says who holds it.
};

// `what` says what the lock stands for, in the error.
absl::StatusOr<Locked> Lock(const std::string& path, absl::string_view what) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open ", path));
  bool supported = true;
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      return absl::AlreadyExistsError(
          absl::StrCat(what, " is held by another daemon, ", Holder(fd.get()), " (", path, ")"));
    }
    if (errno != ENOLCK && errno != ENOSYS && errno != EOPNOTSUPP && errno != EINVAL) {
      return ErrnoStatus(errno, absl::StrCat("lock ", path));
    }
    supported = false;
    break;
  }
  std::string holder = absl::StrCat(::getpid(), " ", HostName(), "\n");
  errno = 0;
  bool named = ::ftruncate(fd.get(), 0) == 0 && ::pwrite(fd.get(), holder.data(), holder.size(),
                                                         0) == static_cast<ssize_t>(holder.size());
  // The lock is what counts, and a full disk must not keep anybody from what is on it.
  if (!named && errno != 0 && errno != ENOSPC && errno != EDQUOT && errno != EFBIG) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  return Locked{std::move(fd), supported, named};
}

// Whoever owns the folder of a socket can put another one in its place: in /tmp that may be a
// stranger.
absl::Status CheckOwner(const std::string& folder) {
  struct stat info;
  if (::stat(folder.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", folder));
  if (::geteuid() == 0 || info.st_uid == ::geteuid() || info.st_uid == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the socket's folder ", folder,
                                                  " belongs to uid ", info.st_uid, ", not to uid ",
                                                  ::geteuid()));
}

}  // namespace

absl::Status MakeFolder(const std::string& path, mode_t mode) {
  if (::mkdir(path.c_str(), mode) != 0) {
    if (errno == EEXIST) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("mkdir ", path));
  }
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("stat ", path));
  // What the umask took comes back; a set-group-id bit inherited from the parent stays.
  if ((info.st_mode & 0777) == mode || ::chmod(path.c_str(), mode | (info.st_mode & 07000)) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("chmod ", path));
}

absl::StatusOr<SocketLock> SocketLock::Acquire(absl::string_view socket_path) {
  RETURN_IF_ERROR(CheckSocketPath(socket_path));
  size_t slash = socket_path.rfind('/');
  if (slash != socket_path.npos && slash > 0) {
    std::string folder(socket_path.substr(0, slash));
    RETURN_IF_ERROR(MakeFolders(folder, 0700));
    RETURN_IF_ERROR(CheckOwner(folder));
  }
  std::string path = SocketLockPath(socket_path);
  ASSIGN_OR_RETURN(Locked locked, Lock(path, absl::StrCat("the socket ", socket_path)));
  if (!locked.supported) {
    return absl::FailedPreconditionError(
        absl::StrCat("the socket's folder is on a file system without locks: ", path));
  }
  return SocketLock(std::move(locked.fd));
}

absl::StatusOr<NodeLock> NodeLock::Acquire(absl::string_view root, absl::string_view node) {
  RETURN_IF_ERROR(CheckName("node name", node));
  std::string own = absl::StrCat(root, "/", kOwnDir);
  RETURN_IF_ERROR(MakeFolder(own, 0700));
  RETURN_IF_ERROR(MakeFolder(absl::StrCat(own, "/nodes"), 0700));
  std::string path = absl::StrCat(root, "/", NodeLockFile(node));
  ASSIGN_OR_RETURN(Locked locked, Lock(path, absl::StrCat("the node name ", node)));
  std::string warning;
  if (!locked.supported) {
    warning = absl::StrCat("no locks on this file system, so a second daemon named ", node,
                           " would not be noticed: ", path);
  } else if (!locked.named) {
    warning = absl::StrCat("locked, but there is no room to write who holds it: ", path);
  }
  return NodeLock(std::move(locked.fd), std::move(warning));
}

}  // namespace ckptd
