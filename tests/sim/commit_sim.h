// CommitSim searches what the production machines of storage/commit can do to a simulated disk.
//
// It runs one save (begin, write, finish on each node, decide) action by action. After every action
// it looks at the disk as any reader would, and it goes down every way in which the machine may die
// there: the daemons die (nothing is lost), or the power is cut (any subset of unsynced directory
// changes, unsynced data kept, lost or torn). After each it lets a daemon recover, or a participant
// that heard nothing abort, and may stop that once more at every action. Equal states are visited
// once.
//
// What must hold:
//   1. Committed and failed are never both told.
//   2. Told committed, or listed by a daemon: listed from then on, whole and byte-equal.
//   3. Told failed: never listed. What is listed is whole.
//   4. The latest checkpoint never goes back; a checkpoint that is replaced is readable, old or
//   new, at every moment.
//   5. Begun: the record stays. Durable on every node and no abort: recovery commits.
//   6. Recovering twice changes nothing, leaves no unfinished attempt and no shard of a failed one.
//   7. Foreign files stay as they are.
//   8. When the faults stop, the next save commits and is the latest.
//   9. A checkpoint of another id is listed until it is to be deleted, and never again once its
//      deletion was told. The newest that is whole is never deleted, so one is always listed.
#ifndef CKPTD_TESTS_SIM_COMMIT_SIM_H_
#define CKPTD_TESTS_SIM_COMMIT_SIM_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "storage/commit/action.h"
#include "storage/commit/begin_attempt.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/decide.h"
#include "storage/commit/delete_checkpoint.h"
#include "storage/commit/finish_node.h"
#include "storage/commit/recover.h"
#include "storage/commit/runner.h"
#include "storage/disk/sim_disk.h"
#include "tests/sim/oracle.h"

namespace ckptd {

class CommitSim {
 public:
  struct Options {
    uint32_t nodes = 1;  // 1 or 2: "a", the coordinator, and "b".
    uint32_t ranks_per_node = 1;
    bool replace = false;  // There is an older checkpoint of the same id.
    bool foreign = false;  // Foreign files and folders on every level.
    bool abort = false;    // The coordinator aborts instead of committing.
    int older = 0;    // Committed checkpoints of other ids, which are deleted once the save is.
    int crashes = 2;  // One after the other, at most.
  };

  // Two that act on one attempt at the same time, when both nodes are durable, unless said
  // otherwise.
  enum class Pair {
    kCommitAndAbort,    // The coordinator commits, a participant aborts.
    kCommitAndCommit,   // Two coordinators.
    kCommitAndRecover,  // The coordinator commits while another daemon starts.
    kAbortAndRecover,
    kAbortAndFinish,    // The second node is still at work when the coordinator aborts …
    kCommitAndFinish,   // … or tries to commit.
    kCommitAndDelete,   // The only older checkpoint is deleted as soon as the new one is seen …
    kReplaceAndDelete,  // … or the one that is just being replaced.
  };

  // An action of one save goes wrong.
  struct Fault {
    int error = 0;          // The errno.
    bool executed = false;  // The call has worked all the same (a lost reply).
    bool lasting = false;   // Every later action of the save fails too.
  };

  explicit CommitSim(const Options& options);

  void RunLife();
  void RunPair(Pair pair);
  // The newest whole one is to be deleted, beside a newer one that has lost its record. `older`
  // must be 1.
  void RunDeleteBesideDamaged();
  // Runs the save once for each of its actions, with the fault there. Gives the number of actions.
  int RunFaults(const Fault& fault);

  uint64_t states() const { return seen_.size(); }   // Different states that were looked at.
  uint64_t schedules() const { return schedules_; }  // Ways from a beginning to an end.
  // The first few, each with the actions that led there.
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct World {
    std::unique_ptr<SimDisk> disk;
    Told told;

    World Clone() const { return {disk->Clone(), told}; }
  };

  using AnyMachine =
      std::variant<Decide, FinishNode, Recover, DeleteCheckpoint, DropRetired, EmptyTrash>;

  static constexpr char kJob[] = "job";
  static constexpr char kId[] = "step-1";

  struct PairState {
    World world;
    std::array<std::optional<AnyMachine>, 2> machines;
    std::array<std::unique_ptr<ActionRunner>, 2> runners;
    std::array<std::string, 2> histories;

    PairState Clone() const;
  };

  // The beginning of every run.
  void PlantForeign(SimDisk& disk);
  // Gives the record of what it has committed.
  std::optional<AttemptRecord> SaveLinear(World& world, absl::string_view id, bool replace,
                                          uint64_t random);
  AttemptRecord Expect(const AttemptRecord& record);
  World NewWorld();

  // The parts of a save.
  BeginAttempt NewBegin(absl::string_view id, bool replace, uint64_t random) const;
  FinishNode NewFinish(const AttemptRecord& record, size_t node) const;
  Decide NewCommit(const AttemptRecord& record, absl::string_view node) const;
  Decide NewAbort(const AttemptRecord& record, absl::string_view node) const;
  Recover NewRecover(absl::string_view node) const;
  void WriteShards(World& world, ActionRunner& runner, const AttemptRecord& record, size_t node,
                   int crashes);

  // What retention does after a commit, and the sweep of the trash.
  static std::string OlderId(int index);
  DeleteCheckpoint NewDelete(World& world, absl::string_view id) const;
  void DeleteOlder(World& world, ActionRunner& runner, int crashes);
  void EmptyAllTrash(World& world, ActionRunner& runner, int crashes);

  // Runs a machine; after each action `tell` says what is told, then everything is checked.
  void Drive(World& world, ActionRunner& runner, Machine& machine, int crashes,
             const std::function<void()>& tell);
  ActionResult RunAction(ActionRunner& runner, const Action& action);
  static std::string TextOf(const Action& action);
  void TellDecision(World& world, const std::optional<Decision>& decision);
  void TellRecovered(World& world, const Recover& recover);
  void TellListed(World& world);
  void TellDeleted(World& world, const DeleteCheckpoint& deletion);

  void Crash(const World& world, int crashes);
  void AfterCrash(World world, int crashes);
  void LifeOfRecovery(World world, absl::string_view node, int crashes);
  void LifeOfAbort(World world, int crashes);
  void RecoverAndSettle(World& world, absl::string_view node, int crashes);
  void End(World world);

  void StepPair(const PairState& state);
  void RunSaveWithFaults(World& world);

  void Check(const World& world);
  void CheckNextSave(World& world);
  bool IsNew(const World& world, absl::string_view kind);
  void Violate(absl::string_view what);
  bool stopped() const { return !violations_.empty(); }

  const Options options_;
  Oracle oracle_;
  AttemptRecord record_;              // Of the save that is looked at.
  std::vector<FragmentRef> reports_;  // What its nodes have told the coordinator.

  std::optional<Fault> fault_;
  int fault_at_ = 0;
  int actions_ = 0;  // Of the save so far.
  bool counting_ = false;
  std::string first_fault_;      // The action that was the first to fail.
  bool others_at_work_ = false;  // Another process than the one that lists.

  std::set<size_t> seen_;
  uint64_t schedules_ = 0;
  std::vector<std::string> trail_;
  std::vector<std::string> violations_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SIM_COMMIT_SIM_H_
