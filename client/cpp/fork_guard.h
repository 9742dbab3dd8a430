// ForkGuard keeps a forked child away from what belongs to its parent: the child closes the
// descriptors that were named here, and Check() refuses every call in it. (Memory is kept away by
// MADV_DONTFORK.)
//
// Threads: thread-safe. The handlers run in fork(), not in vfork(), clone() or _Fork(); descriptors
// are close-on-exec besides.
#ifndef CKPTD_CLIENT_CPP_FORK_GUARD_H_
#define CKPTD_CLIENT_CPP_FORK_GUARD_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ckptd::inline client {

class ForkGuard {
 public:
  ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

  // FailedPrecondition in a child of the process that made this object.
  absl::Status Check() const;

  // Children close it. Forget it before the descriptor is closed.
  void Add(int fd);
  void Forget(int fd);

  // Children close every socket that is connected to this Unix socket: those of gRPC, whose numbers
  // nobody tells.
  void AddPeer(const std::string& socket);

  // FailedPrecondition in a child of a process that has had a guard: gRPC does not work there.
  static absl::Status CheckProcess();

  // Keeps an object for ever, whose destructor would wait for threads that a child does not have.
  static void Leak(std::shared_ptr<void> object);

 private:
  friend struct ForkRegistry;

  const pid_t process_;
  std::vector<int> fds_;  // Guarded by the registry's mutex, as the next.
  std::vector<std::string> peers_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_FORK_GUARD_H_
