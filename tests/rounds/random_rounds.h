// A daemon and a job that is hit by one random fault after the other.
#ifndef CKPTD_TESTS_ROUNDS_RANDOM_ROUNDS_H_
#define CKPTD_TESTS_ROUNDS_RANDOM_ROUNDS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/rounds/round_plan.h"
#include "tests/support/processes.h"

namespace ckptd {

// For one thread. Checks with EXPECT; after a failure there is no use in going on.
class RandomRounds {
 public:
  // `seed` decides sizes and faults; the moments at which they strike are the machine's as well.
  explicit RandomRounds(uint64_t seed);
  ~RandomRounds();

  // Saves, something goes wrong, and everybody who died is started again. Then:
  //  - all ranks that live heard the same outcome in time, and the list agrees with it;
  //  - nothing else came to the list, and nothing but the oldest left it;
  //  - everything listed verifies, the newest loads byte for byte;
  //  - nothing is left over in attempts/, trash/, failed/, and no temporary file;
  //  - the daemon has died of nothing but our SIGKILL;
  //  - the next save commits.
  void Round();

  std::string Summary() const;  // How many rounds of which kind, and how their saves ended.

 private:
  struct Save {
    std::string id;
    int step;
    std::string outcome = {};  // "committed", "failed" or "unknown".
    std::string reason = {};   // What a rank was told of a failure.
  };

  void MountRoot();
  void StartDaemon(std::vector<std::string> more_flags = {});
  bool DaemonRuns() { return daemon_ && daemon_->process().Running(); }
  void StartJob();  // New ranks with a new incarnation; those before are killed.
  std::vector<Save> BeginSaves(int count);
  void Strike(const RoundPlan& plan);
  void Mend(const RoundPlan& plan);
  void FillDisk(int free_mib);
  void StrainMemory();
  void AwaitOutcome(Save& save);
  std::string OutcomeAt(TestTrainer& rank, Save& save);
  void CheckList(const std::vector<std::string>& before, const std::vector<Save>& saves);
  void CheckRoot();
  void CheckNewestLoads();
  std::vector<std::string> Leftovers();

  std::mt19937_64 random_;
  TestSite site_;
  bool mounted_ = false;  // The root is a small file system of its own.
  std::optional<TestDaemon> daemon_;
  std::deque<TestTrainer> ranks_;
  std::map<std::string, int> steps_;  // Of every id that was ever saved.
  int step_ = 0;
  int life_ = 0;
  std::map<std::string, int> counts_;
  std::string log_before_;  // The last lines of the daemon before this one.
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_ROUNDS_RANDOM_ROUNDS_H_
