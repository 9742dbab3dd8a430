// Core is everything the control loop owns, put together: sessions, arenas, attempts, loads, over
// the roots.
//
// Threads: built before any socket is open, then used on the control loop only. The table of roots,
// their disks and workers may be used from anywhere.
#ifndef CKPTD_SERVER_CORE_H_
#define CKPTD_SERVER_CORE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/arena_pool.h"
#include "server/attempts.h"
#include "server/control_loop.h"
#include "server/loads.h"
#include "server/log.h"
#include "server/roots.h"
#include "server/sessions.h"
#include "server/settings.h"
#include "server/tidier.h"

namespace ckptd {

class Core {
 public:
  struct Options {
    Config config;
    std::vector<Roots::Source> roots;  // At least one; the first is the default.
    absl::Duration root_patience = Roots::kStartPatience;
    uint64_t arena_limit_bytes = 0;
    std::function<void(absl::string_view)> on_point;  // May be null.
  };

  Core(Options options, Logger& logger);
  ~Core();  // Waits for the transfers in flight; a root that hangs holds it for ever.

  // Opens every root and settles what earlier lives left on it, before anything is listed.
  // Blocking, at most root_patience; before any socket is open. An error of opening one is
  // returned. A root that is late, or cannot be trusted afterwards, is unhealthy.
  absl::Status StartRoots();

  // A process says hello over the side socket. InvalidArgument for names and numbers that are none;
  // NotFound for a root label; what Sessions::Open() answers.
  absl::StatusOr<const Session*> OpenSession(SessionInfo info, uint64_t connection);

  // "" is the first. NotFound, naming those there are; Unavailable, with the reason, for one that
  // is not usable (yet). From any thread.
  absl::StatusOr<std::shared_ptr<Root>> FindRoot(const std::string& label) const {
    return roots_.Find(label);
  }

  // Stops taking saves, gives those in flight drain_timeout, fails the rest; then `done`, once.
  // What cannot be failed within seconds, because its root hangs, is left to the next start.
  void Drain(std::function<void()> done);
  bool draining() const { return draining_; }

  ControlLoop& loop() { return loop_; }
  Sessions& sessions() { return sessions_; }
  ArenaPool& arenas() { return arenas_; }
  Attempts& attempts() { return attempts_; }
  Loads& loads() { return loads_; }
  Tidier& tidier() { return tidier_; }
  Logger& logger() { return logger_; }
  const Config& config() const { return options_.config; }
  Roots& roots() { return roots_; }
  absl::Duration uptime() const { return loop_.clock().Monotonic() - started_; }
  void Point(absl::string_view name) const;

 private:
  void LogAttempt(absl::string_view event, const Attempt& attempt, std::optional<uint32_t> rank);
  void OnSessionEnd(const Session& session, SessionEnd end);
  void StopWriting();
  void OnRootStarted(const RootStart& start);

  const Options options_;
  Logger& logger_;
  ControlLoop loop_;
  const absl::Duration started_;
  Roots roots_;  // Outlives all that has memory attached to a disk.
  ArenaPool arenas_;
  AttemptContext context_;
  Attempts attempts_;
  Sessions sessions_;
  Loads loads_;
  Tidier tidier_;
  bool draining_ = false;
};

// 128 random bits from the kernel, as 32 hexadecimal digits.
std::string RandomToken();

}  // namespace ckptd

#endif  // CKPTD_SERVER_CORE_H_
