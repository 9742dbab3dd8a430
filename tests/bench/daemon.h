// The daemon under test: the production binary as its own process, with a root of its own.
#ifndef CKPTD_TESTS_BENCH_DAEMON_H_
#define CKPTD_TESTS_BENCH_DAEMON_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/child.h"

namespace ckptd::bench {

// For one thread. The destructor ends the daemon and leaves the root.
class Daemon {
 public:
  // `binary`: empty for the one that was built with this program. `root` is made if it is missing;
  // several daemons may share one. Sockets and log go to a folder below /tmp, since their paths are
  // short, which the destructor removes. Returns once the daemon serves; an error quotes its log.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(const std::string& binary,
                                                       const std::string& root,
                                                       const std::vector<std::string>& flags);
  ~Daemon();

  pid_t pid() const { return child_->pid(); }
  std::string socket() const { return folder_ + "/s"; }

  // The shard files of a checkpoint in their order.
  std::vector<std::string> ShardsOf(const std::string& job, const std::string& id) const;
  // Takes the checkpoint away without asking the daemon, which looks at the root each time.
  absl::Status Remove(const std::string& job, const std::string& id) const;

 private:
  Daemon(std::string root, std::string folder, std::unique_ptr<Child> child);
  absl::Status AwaitReady();

  const std::string root_;
  const std::string folder_;
  const std::unique_ptr<Child> child_;
};

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_DAEMON_H_
