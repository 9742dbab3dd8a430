// Link keeps a session connected: it watches the side socket, and when the daemon goes away it
// connects again, for as long as the session lives (after 50 ms, then ever longer, up to 1 s).
#ifndef CKPTD_CLIENT_CPP_LINK_H_
#define CKPTD_CLIENT_CPP_LINK_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/connection.h"
#include "client/cpp/environment.h"
#include "client/cpp/fork_guard.h"
#include "storage/base/unique_fd.h"

namespace ckptd::inline client {

// Thread-safe.
class Link {
 public:
  struct Options {
    std::vector<SocketCandidate> candidates;
    Identity identity;
    std::string root;
    absl::Duration timeout;  // For the first connection, and for each answer.
    // On the link's thread, before anybody else sees a new connection. `same_daemon`: only the
    // connection had broken.
    std::function<void(Connection&, bool same_daemon)> on_connect;
    std::function<void(bool lost, const std::string& why)> on_change;
  };

  // Connects; errors are those of the first connection. The guard outlives the link.
  static absl::StatusOr<std::unique_ptr<Link>> Open(Options options, ForkGuard& guard);
  ~Link();  // Stop().

  // Null while the daemon is away.
  std::shared_ptr<Connection> current() const;

  // Waits for a connection. Unavailable, naming the sockets, after `timeout`; Cancelled once
  // stopped.
  absl::StatusOr<std::shared_ptr<Connection>> Wait(absl::Duration timeout) const;

  // The connection does not work although its socket is open: make another.
  void Distrust(const std::shared_ptr<Connection>& connection);

  // Cancels all calls and ends the thread, at once even if the daemon hangs. Not on the link's own
  // thread.
  void Stop();
  bool stopped() const;
  // Waits so long, or less. False once stopped.
  bool PauseUnlessStopped(absl::Duration pause) const;

 private:
  Link(Options options, ForkGuard& guard);

  absl::StatusOr<std::shared_ptr<Connection>> Connect(absl::Duration timeout,
                                                      absl::Duration answer_min);
  void Run();
  bool WatchUntilLost(Connection& connection);

  const Options options_;
  ForkGuard& guard_;
  UniqueFd wake_;  // An eventfd; readable once stopped.
  std::thread thread_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::shared_ptr<Connection> current_;  // Guarded by mutex_, as all below.
  absl::Status last_error_;
  std::string daemon_id_;
  bool stopped_ = false;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_LINK_H_
