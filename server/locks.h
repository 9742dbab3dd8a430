// Locks that keep a second daemon away: one per socket, one per node name and root. Each is a lock
// on an open file, which the kernel lets go when the process ends in any way; the file stays and
// says who held it last (pid, host).
//
// Errors of Acquire(): AlreadyExists, naming pid and host, if another process holds it;
// PermissionDenied if the folder or file cannot be written. Blocking calls: SocketLock
// for the main thread, before anything else is started; NodeLock for the thread of its root.
#ifndef CKPTD_SERVER_LOCKS_H_
#define CKPTD_SERVER_LOCKS_H_

#include <sys/types.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

// OK if the folder is there already; else it has this mode whatever the umask is, which another
// thread may have set for a moment.
absl::Status MakeFolder(const std::string& path, mode_t mode);

// Taken before gRPC binds the socket, which would take over a living one without a word. Held until
// destruction.
class SocketLock {
 public:
  // `<socket>.lock`. Makes the socket's folder (mode 0700) where it is missing; PermissionDenied if
  // the folder belongs to another user than this one or root.
  static absl::StatusOr<SocketLock> Acquire(absl::string_view socket_path);

 private:
  explicit SocketLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// One node name on one root. Held until destruction.
class NodeLock {
 public:
  // `<root>/.ckptd/nodes/<node>.lock`, making the two folders where they are missing; `root`
  // exists. Where the file system has no locks, or no room for the holder's name, it succeeds
  // with a warning.
  static absl::StatusOr<NodeLock> Acquire(absl::string_view root, absl::string_view node);

  const std::string& warning() const { return warning_; }

 private:
  NodeLock(UniqueFd fd, std::string warning) : fd_(std::move(fd)), warning_(std::move(warning)) {}
  UniqueFd fd_;
  std::string warning_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_LOCKS_H_
