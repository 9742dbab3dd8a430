// Attempt is one try at producing a checkpoint, from its first join to its outcome: the coordinator
// of its commit and, for the ranks of this node, the participant.
//
//   kWaiting, Begin -> kBeginning -> kJoining -> kStaging -> kWriting -> kFinishing
//       -> kDurable -> kEnded
//   from each of them before kDurable: Fail -> kAborting -> kEnded
//
//  1. kWaiting: ranks may join; the table admits the attempt when there is room (attempts.h).
//  2. kBeginning: BeginAttempt mints sequence and folder on a worker. No rank stages before its
//     record is on stable storage.
//  3. kJoining: when every rank has joined, the plan is made: who writes which replica, and that
//     the chunks tile every tensor. A rank whose others do not come within kPlanPatience is
//     released alone: it writes everything it holds, so that its staging waits for nobody; late
//     ranks then leave out what is written already. (Under replicas=lowest_rank every rank waits
//     for all.)
//  4. kStaging: blocks are granted, filled by the clients, sealed, and written at once
//     (rank_save.h).
//  5. kWriting: every rank is staged. kFinishing: every shard is written; FinishNode makes the node
//     durable.
//  6. kDurable: Decide publishes it. Its answer alone is told.
//  Fail, at any time before 6: no new transfer, and Decide(abort); its answer is told, and if it
//  says committed after all, that is what is told. Blocks and files are let go when the last
//  transfer is reaped.
//
// Owned by the control loop, by shared_ptr; work in flight pins it.
#ifndef CKPTD_SERVER_ATTEMPT_H_
#define CKPTD_SERVER_ATTEMPT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/arena_pool.h"
#include "server/control_loop.h"
#include "server/rank_save.h"
#include "server/root.h"
#include "server/save_stream.h"
#include "server/sessions.h"
#include "storage/commit/begin_attempt.h"
#include "storage/commit/decide.h"
#include "storage/format/records.h"
#include "storage/plan/assignment.h"

namespace ckptd {

class Attempt;

// What all attempts share. Outlives them.
struct AttemptContext {
  ControlLoop& loop;
  ArenaPool& arenas;
  std::string node;
  absl::Duration join_timeout;
  absl::Duration attempt_timeout;
  absl::Duration reattach_timeout;
  uint32_t recheck_every = 1;
  std::function<uint64_t()> random;
  std::function<void(absl::string_view)> on_point;  // From loop and workers.
  // attempt.waiting .begun .joined .staged .durable .committed .failed, on the loop; `rank` if it
  // is about one. May be null.
  std::function<void(absl::string_view event, const Attempt& attempt, std::optional<uint32_t> rank)>
      on_event;
  // Filled by the table. An attempt has begun, is staged or durable:
  std::function<void()> on_change;
  // Do free blocks of that rank's arena hold what another attempt will come back for?
  std::function<bool(const Attempt& asking, const RankSave& rank)> reserved;
  uint32_t keep_last = 0;  // The daemon's; 0: all.
  // An attempt was committed, on stable storage and told. May be null.
  std::function<void(const std::shared_ptr<Root>& root, const Attempt& attempt)> on_committed =
      nullptr;
  // There is too little space: gives back what nobody needs until `bytes` are free, if there is so
  // much, then calls `done`. May be null.
  std::function<void(const std::shared_ptr<Root>& root, uint64_t bytes, std::function<void()> done)>
      make_room = nullptr;
  // What a failed attempt left could not be cleaned up; it is tried again. Once. May be null.
  std::function<void(const std::string& job, const AttemptName& attempt, const absl::Status& why)>
      on_left = nullptr;
};

// What a rank asks for, from SaveBegin.
struct SaveOptions {
  std::string checkpoint_id;
  int64_t step = 0;
  std::string request_id;
  bool replace = false;
  bool reject_overlap = false;
  ReplicaPolicy replicas = ReplicaPolicy::kError;
  absl::Duration join_timeout;  // Zero: the daemon's.
  uint32_t keep_last = 0;       // Zero: the daemon's.
};

struct ResumedBlock {
  uint32_t image_block = 0;
  uint32_t arena_block = 0;
  std::vector<uint32_t> unit_crc32c;
};

struct ResumeState {
  AttemptName attempt;
  std::vector<uint32_t> ordinals;
  std::vector<ResumedBlock> sealed;
  bool staged = false;  // Its tensors may have changed: what is not in `sealed` is gone.
};

class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  enum class State {
    kWaiting,
    kBeginning,
    kJoining,
    kStaging,
    kWriting,
    kFinishing,
    kDurable,
    kAborting,
    kEnded
  };
  enum class Result { kNone, kCommitted, kFailed, kUnknown };

  // How long a rank waits for the others to join before it is planned without them.
  static constexpr absl::Duration kPlanPatience = absl::Seconds(1);

  // `on_end` is called once, on the loop, after the outcome was told to the ranks.
  Attempt(AttemptContext& context, std::shared_ptr<Root> root, const SessionInfo& first,
          const SaveOptions& options, std::function<void(Attempt&)> on_end);
  // One that an earlier life of this daemon left incomplete: waits reattach_timeout for its ranks.
  Attempt(AttemptContext& context, std::shared_ptr<Root> root, AttemptRecord record,
          std::function<void(Attempt&)> on_end);

  // A rank joins with its plan. FailedPrecondition for another world size, step or on_existing than
  // the attempt's; AlreadyExists if the rank has joined already.
  absl::Status Join(const Session& session, const SaveOptions& options,
                    std::shared_ptr<const RankPlan> plan, std::shared_ptr<SaveStream> stream);
  // A rank that had joined comes back on a new stream, after a broken connection or a daemon
  // restart.
  absl::Status Resume(const Session& session, const SaveOptions& options,
                      std::shared_ptr<const RankPlan> plan, ResumeState resume,
                      std::shared_ptr<SaveStream> stream);

  void Begin();    // Admitted.
  void Restart();  // Instead, for one that was left incomplete.

  // A client's message. InvalidArgument or FailedPrecondition if it does not fit what was granted;
  // the attempt then fails.
  void Sealed(uint32_t rank, uint32_t image_block, uint32_t arena_block,
              std::vector<uint32_t> unit_crc32c);
  void GrantBlocks(uint32_t rank);
  void StreamGone(uint32_t rank, const SaveStream* stream);  // The stream broke; the save goes on.
  void RankEnded(const Session& session, SessionEnd end);
  void Fail(Failure failure);
  // After the end: the rank's process has stopped writing to the blocks it was granted (it is dead,
  // or began a newer save).
  void ReleaseGranted(const Session& session);
  void DropStreams();        // The daemon ends: streams and attempts hold each other.
  bool HoldsBlocks() const;  // After the end: there are such blocks.

  // State, for status and the table.
  State state() const { return state_; }
  Result result() const { return result_; }
  const AttemptRecord& record() const { return record_; }
  bool minted() const { return record_.attempt.sequence != 0; }
  bool restarted() const { return restarted_; }  // Left by an earlier life of this daemon.
  bool AwaitsBlocksOf(uint32_t rank) const;      // Restarted, and that rank is not back yet.
  const std::map<uint32_t, RankSave>& ranks() const { return ranks_; }
  const Failure& failure() const { return failure_; }
  const CheckpointInfo& checkpoint() const { return checkpoint_; }
  absl::Time ended() const { return ended_; }
  bool admitted() const { return state_ != State::kWaiting; }
  const Root& root() const { return *root_; }
  // How many checkpoints of the job are kept once this one is committed: the most that any rank
  // asks for. 0: all.
  uint32_t keep_last() const { return keep_last_.value_or(0); }
  uint64_t planned_bytes() const;  // Of all ranks.
  Outcome MakeOutcome() const;     // As it stands.
  const char* StateName()
      const;  // waiting joining staging writing durable committed failed unknown
  std::vector<uint32_t> MissingRanks() const;

 private:
  struct PlanResult;

  absl::Status CheckFits(const Session& session, const SaveOptions& options) const;
  RankSave NewRank(const Session& session, const SaveOptions& options,
                   std::shared_ptr<const RankPlan> plan, std::shared_ptr<SaveStream> stream) const;
  void AskToKeep(const SaveOptions& options);
  void OnBegun(const absl::StatusOr<AttemptRecord>& result);
  void MaybePlan();
  void StartPlan(std::vector<uint32_t> to_assign);
  void OnPlanned(PlanResult result);
  void MakeRoom(PlanResult result);
  void StartStaging(RankSave& rank, const std::vector<ResumedBlock>& held);
  void Reattach(RankSave& rank, const ResumeState& resume, std::shared_ptr<SaveStream> stream);
  void TakeBack(uint32_t rank, const ResumeState& resume,
                std::shared_ptr<const ImageLayout> layout);
  void SealBlock(RankSave& rank, uint32_t image_block, std::vector<uint32_t> unit_crc32c,
                 bool taken_back);
  void StartWriter(RankSave& rank);
  void CheckStaged(RankSave& rank);
  void OnBlockWritten(uint32_t rank, uint32_t image_block, uint32_t arena_block);
  void OnShardsWritten(uint32_t rank);
  void MaybeFinish();
  void OnDurable(const absl::StatusOr<FragmentRef>& result);
  void Abort();
  void OnIdle(uint32_t rank);
  void RunDecide(Decide decide);
  void GiveUp();
  void End(Result result);
  void CleanUp();
  void OnDecided(Decision decision, CheckpointInfo checkpoint);
  Failure RootFailure() const;
  std::string UnknownText(const absl::Status& why) const;
  void EndUnknown(Failure why);
  void Tell();
  void Release(RankSave& rank);
  void SettleArena(RankSave& rank);
  Failure FailureOf(const absl::Status& status, std::optional<uint32_t> rank,
                    absl::string_view phase) const;
  void Point(absl::string_view name) const;
  void Event(absl::string_view name, std::optional<uint32_t> rank = std::nullopt) const;
  void Progress();
  void WatchProgress();
  void OnJoinTimeout();
  std::string Dir() const;
  uint32_t FileMode() const { return 0666 & ~umask_; }
  uint32_t FolderMode() const { return 0777 & ~umask_; }

  AttemptContext& context_;
  const std::shared_ptr<Root> root_;
  const std::function<void(Attempt&)> on_end_;
  AttemptRecord record_;
  ReplicaPolicy replicas_ = ReplicaPolicy::kError;
  uint32_t umask_ = 022;
  std::optional<uint32_t> keep_last_;  // Once a rank has said.
  absl::Duration join_timeout_;
  const bool restarted_ = false;

  State state_ = State::kWaiting;
  Result result_ = Result::kNone;
  std::map<uint32_t, RankSave> ranks_;  // That have joined.
  bool planning_ = false;
  std::shared_ptr<PlanResult> early_plan_;  // That came before the attempt was minted.
  bool made_room_ = false;
  bool confirmed_ = false;    // Every rank has joined, and what they write tiles every tensor.
  bool job_running_ = false;  // BeginAttempt, FinishNode or Decide on a worker.
  bool node_durable_ = false;
  const char* reported_ = "waiting";
  Failure failure_;
  CheckpointInfo checkpoint_;
  absl::Time ended_ = absl::InfinitePast();
  absl::Duration last_progress_;
  ControlLoop::TimerId join_timer_ = ControlLoop::TimerId::kNone;
  ControlLoop::TimerId patience_timer_ = ControlLoop::TimerId::kNone;
  ControlLoop::TimerId progress_timer_ = ControlLoop::TimerId::kNone;
  bool impatient_ = false;  // kPlanPatience is over.
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ATTEMPT_H_
