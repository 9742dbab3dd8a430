// One daemon that is killed in the middle of a save of two ranks, again and again, and what has to
// hold each time.
#ifndef CKPTD_TESTS_CRASH_CRASH_ROUND_H_
#define CKPTD_TESTS_CRASH_CRASH_ROUND_H_

#include <optional>
#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace ckptd {

// For one thread. Checks with EXPECT.
class CrashRounds {
 public:
  CrashRounds();

  // Makes two new ranks of a new job, so that the next save is the job's first.
  void NewJob();

  // Saves once, undisturbed, and returns what the daemon logs of `plan` meanwhile.
  std::vector<Json> Watch(const std::string& plan);

  // Saves; `plan` kills the daemon meanwhile; a plain one is started in its place. Then:
  //  - both ranks hear the same outcome, and the list agrees with it;
  //  - what was listed before still is, and all of it verifies;
  //  - nothing is left in attempts/ and trash/, and no temporary anywhere;
  //  - the next save commits, and everything listed of this round loads byte for byte.
  // Afterwards a faulty daemon is back. True if the plan did kill it.
  bool Round(const std::string& plan);

  // Opens two new sessions; `plan` kills the daemon meanwhile. The sessions open all the same.
  bool RoundOfOpening(const std::string& plan);

  // Loads the last checkpoint; `plan` kills the daemon meanwhile. A load fails as Unavailable or
  // not at all, and works when the daemon is back.
  bool RoundOfLoading(const std::string& plan);

  // Kills the daemon in mid-save, and the next one while it settles what it finds.
  bool RoundOfSettling(const std::string& plan);
  bool settled() const { return settled_; }  // The last one was killed at settle-done.

  int committed() const { return committed_; }  // Of the rounds' first saves.
  int failed() const { return failed_; }

 private:
  void StartDaemon(bool faulty);
  bool AwaitKill(const std::string& plan);
  void CheckOutcome(const std::string& id, std::vector<std::string> listed_before);
  void StartRanks();
  std::string Save();  // Both ranks, another step; returns its id.
  std::string Outcome(const std::string& id);
  void CheckRoot(const std::vector<std::string>& listed_before);
  void CheckLoads(const std::string& id, int step);

  TestSite site_;
  std::optional<TestDaemon> daemon_;
  std::optional<TestTrainer> ranks_[2];
  std::string job_;
  int jobs_ = 0;
  int step_ = 0;
  int committed_ = 0;
  int failed_ = 0;
  bool settled_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_CRASH_CRASH_ROUND_H_
