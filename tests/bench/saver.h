// Saver: a daemon, the ranks of a workload and their session, ready to save again and again.
#ifndef CKPTD_TESTS_BENCH_SAVER_H_
#define CKPTD_TESTS_BENCH_SAVER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/daemon.h"
#include "tests/bench/ranks.h"
#include "tests/bench/row.h"

namespace ckptd::bench {

inline constexpr char kJob[] = "bench";

// For one thread. `ranks` and the setting outlive it; several savers may share ranks.
class Saver {
 public:
  // Prewarms. The session has a name of its own among the ranks'.
  static absl::StatusOr<std::unique_ptr<Saver>> Start(const Setting& setting, Ranks& ranks,
                                                      std::vector<std::string> flags = {});
  ~Saver();

  struct Result {
    double blocked_s = 0;
    double durable_s = 0;
    uint64_t bytes = 0;
  };
  // Saves on a settled disk and waits until it is committed. `keep`: the checkpoint stays, and its
  // id is last(); else it is removed.
  absl::StatusOr<Result> Save(bool keep = false);

  // The daemon is stopped and started again, with new sessions: no image is in memory.
  absl::Status Restart();

  const Daemon& daemon() const { return *daemon_; }
  Ranks& ranks() { return ranks_; }
  const std::string& session() const { return session_; }
  const std::string& last() const { return last_; }

 private:
  Saver(const Setting& setting, Ranks& ranks, std::vector<std::string> flags);
  absl::Status Open();

  const Setting& setting_;
  Ranks& ranks_;
  const std::vector<std::string> flags_;
  const std::string session_;
  std::unique_ptr<Daemon> daemon_;
  std::string last_;
  int saves_ = 0;
};

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_SAVER_H_
