// Daemon builds the object graph and opens the sockets. What main.cc and tests share.
//
// Start order: socket lock, core, roots (each on its own thread: folder, node lock, disk,
// recovery), gRPC server, side socket. Stop order is the reverse. A root that is not ready within
// Roots::kStartPatience does not keep the sockets closed: it is unhealthy until it is.
#ifndef CKPTD_SERVER_DAEMON_H_
#define CKPTD_SERVER_DAEMON_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/log.h"
#include "server/settings.h"
#include "storage/disk/disk.h"
#include "storage/disk/open_disk.h"

namespace ckptd {

class Daemon {
 public:
  struct Options {
    Config config;
    // Opens a root; null: OpenDisk().
    std::function<absl::StatusOr<std::unique_ptr<Disk>>(const std::string& path,
                                                        const DiskOptions& options)>
        open_disk;
    // Called with each point of the life of a save or load that is passed, from any thread; may be
    // null.
    std::function<void(absl::string_view point)> on_point;
  };

  // On an error the process should end: work on a root that hangs may be left behind.
  // AlreadyExists if socket or node name is held, naming pid and host; PermissionDenied for a root
  // or socket folder that cannot be written; FailedPrecondition for I/O that was asked for and
  // cannot be had.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(Options options, Logger& logger);
  virtual ~Daemon() = default;

  // Not ready from now on: no new saves, those in flight get drain_timeout. `done` is called from
  // another thread.
  virtual void Drain(std::function<void()> done) = 0;

  // Answers the calls that wait and removes the sockets; takes at most two seconds. The process
  // ends next: a root that hangs would hold the destructor for ever.
  virtual void Close() = 0;
};

// What --arena-limit means on this machine: bytes, or a percentage of the available memory, within
// the memory limits of this process's cgroups, of which `reserve_bytes` are left for loads.
uint64_t ArenaLimitBytes(const ArenaLimit& limit, uint64_t reserve_bytes);

}  // namespace ckptd

#endif  // CKPTD_SERVER_DAEMON_H_
