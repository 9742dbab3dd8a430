#include "client/cpp/fork_guard.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"

namespace ckptd::inline client {

// What pthread_atfork() needs: one per process, never destroyed. The mutex is held across fork().
struct ForkRegistry {
  static ForkRegistry& Get() {
    static ForkRegistry* const registry = [] {
      auto* made = new ForkRegistry;
      pthread_atfork([] { Get().mutex.lock(); }, [] { Get().mutex.unlock(); }, &InChild);
      return made;
    }();
    return *registry;
  }

  static void InChild() {
    ForkRegistry& registry = Get();
    if (!registry.guards.empty()) registry.parent = getppid();
    for (ForkGuard* guard : registry.guards) {
      for (int fd : guard->fds_) close(fd);
      guard->fds_.clear();
      for (const std::string& peer : guard->peers_) ClosePeer(peer);
      guard->peers_.clear();
    }
    registry.mutex.unlock();
  }

  static void ClosePeer(const std::string& socket_path) {
    DIR* folder = opendir("/proc/self/fd");
    if (folder == nullptr) return;
    std::vector<int> found;
    while (dirent* entry = readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      sockaddr_un address = {};
      socklen_t length = sizeof(address);
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
      if (address.sun_family != AF_UNIX || length <= offsetof(sockaddr_un, sun_path)) continue;
      const absl::string_view path(address.sun_path,
                                   strnlen(address.sun_path, sizeof(address.sun_path)));
      if (path == socket_path) found.push_back(fd);
    }
    closedir(folder);
    for (int fd : found) close(fd);
  }

  std::mutex mutex;
  std::vector<ForkGuard*> guards;
  pid_t parent = 0;  // Set in a child of a process that had guards.
  std::vector<std::shared_ptr<void>> leaked;
};

ForkGuard::ForkGuard() : process_(getpid()) {
  ForkRegistry& registry = ForkRegistry::Get();
  std::lock_guard lock(registry.mutex);
  registry.guards.push_back(this);
}

ForkGuard::~ForkGuard() {
  ForkRegistry& registry = ForkRegistry::Get();
  std::lock_guard lock(registry.mutex);
  std::erase(registry.guards, this);
}

absl::Status ForkGuard::Check() const {
  if (getpid() == process_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "this object belongs to process ", process_, ", which process ", getpid(),
      " was forked from: use it there, or start a new program (exec) and open one of its own"));
}

absl::Status ForkGuard::CheckProcess() {
  ForkRegistry& registry = ForkRegistry::Get();
  std::lock_guard lock(registry.mutex);
  if (registry.parent == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("process ", getpid(), " was forked from process ", registry.parent,
                   ", which has a connection to ckptd: gRPC does not survive that; start a new "
                   "program (exec) instead"));
}

void ForkGuard::Add(int fd) {
  std::lock_guard lock(ForkRegistry::Get().mutex);
  fds_.push_back(fd);
}

void ForkGuard::Forget(int fd) {
  std::lock_guard lock(ForkRegistry::Get().mutex);
  std::erase(fds_, fd);
}

void ForkGuard::AddPeer(const std::string& socket) {
  std::lock_guard lock(ForkRegistry::Get().mutex);
  if (std::find(peers_.begin(), peers_.end(), socket) == peers_.end()) peers_.push_back(socket);
}

void ForkGuard::Leak(std::shared_ptr<void> object) {
  ForkRegistry& registry = ForkRegistry::Get();
  std::lock_guard lock(registry.mutex);
  registry.leaked.push_back(std::move(object));
}

}  // namespace ckptd::inline client
