// Ranks: the processes of one workload, told what to do all at once. Times are the slowest rank's.
#ifndef CKPTD_TESTS_BENCH_RANKS_H_
#define CKPTD_TESTS_BENCH_RANKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/child.h"
#include "tests/bench/daemon.h"
#include "tests/bench/workload.h"

namespace ckptd::bench {

// For one thread. A session is named by the caller; there may be several at several daemons.
class Ranks {
 public:
  static absl::StatusOr<Ranks> Start(const std::string& workload, double scale);

  uint32_t count() const { return static_cast<uint32_t>(children_.size()); }
  const Workload& workload() const { return workload_; }

  // The first `ranks` of them copy their bytes with memcpy: seconds.
  absl::StatusOr<double> Copy(uint32_t ranks);

  absl::Status Open(const std::string& session, const Daemon& daemon, const std::string& job);
  absl::Status Prewarm(const std::string& session);
  absl::StatusOr<double> Save(const std::string& session, const std::string& id);  // Blocked.

  struct Saved {
    double durable_s = 0;
    uint64_t bytes = 0;  // Of all ranks.
  };
  absl::StatusOr<Saved> AwaitCommitted(const std::string& session);

  // The first `ranks` load their part from the disk: seconds. Internal if any came from memory.
  absl::StatusOr<double> Load(const std::string& session, const std::string& id, uint32_t ranks);
  absl::Status Close(const std::string& session);

 private:
  Ranks(Workload workload, std::vector<std::unique_ptr<Child>> children);

  // The figures of each rank's answer.
  absl::StatusOr<std::vector<std::vector<double>>> All(const std::string& line, uint32_t ranks);
  static std::string SoonText();

  Workload workload_;
  std::vector<std::unique_ptr<Child>> children_;
};

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_RANKS_H_
