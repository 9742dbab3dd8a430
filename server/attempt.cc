#include "server/attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/mutation.h"
#include "server/retention.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "storage/commit/runner.h"
#include "storage/format/paths.h"

namespace ckptd {

struct Attempt::PlanResult {
  absl::Status status;
  uint64_t bytes = 0;          // That are about to be staged.
  bool disk_short = false;     // That is the status.
  const char* phase = "plan";  // Of the status.
  bool confirmed = false;
  std::map<uint32_t, std::vector<uint32_t>> ordinals;
  std::map<uint32_t, std::shared_ptr<const ImageLayout>> layouts;
};

Attempt::Attempt(AttemptContext& context, std::shared_ptr<Root> root, const SessionInfo& first,
                 const SaveOptions& options, std::function<void(Attempt&)> on_end)
    : context_(context),
      root_(std::move(root)),
      on_end_(std::move(on_end)),
      replicas_(options.replicas),
      umask_(first.umask) {
  record_.job = first.job;
  record_.checkpoint_id = options.checkpoint_id;
  record_.step = options.step;
  record_.incarnation = first.incarnation;
  record_.world_size = first.world_size;
  record_.coordinator_node = context_.node;
  record_.replace = options.replace;
  join_timeout_ =
      options.join_timeout > absl::ZeroDuration() ? options.join_timeout : context_.join_timeout;
  Progress();
}

Attempt::Attempt(AttemptContext& context, std::shared_ptr<Root> root, AttemptRecord record,
                 std::function<void(Attempt&)> on_end)
    : context_(context),
      root_(std::move(root)),
      on_end_(std::move(on_end)),
      record_(std::move(record)),
      join_timeout_(context.reattach_timeout),
      restarted_(true) {
  Progress();
}

void Attempt::Begin() {
  CKPT_CHECK(state_ == State::kWaiting, "an attempt begins once");
  state_ = State::kBeginning;
  reported_ = "joining";
  Point("admitted");
  auto self = shared_from_this();
  join_timer_ = context_.loop.After(join_timeout_, [self] { self->OnJoinTimeout(); });
  WatchProgress();
  job_running_ = true;
  BeginAttempt machine({.job = record_.job,
                        .checkpoint_id = record_.checkpoint_id,
                        .step = record_.step,
                        .incarnation = record_.incarnation,
                        .world_size = record_.world_size,
                        .coordinator_node = record_.coordinator_node,
                        .replace = record_.replace,
                        .random = context_.random(),
                        .begun = context_.loop.clock().Wall(),
                        .folder_mode = FolderMode(),
                        .file_mode = FileMode(),
                        .folders_synced = root_->folders_synced(record_.job)});
  root_->writers().Post([self, machine = std::move(machine)]() mutable {
    ActionRunner runner(self->root_->disk(), self->context_.on_point);
    runner.RunToEnd(machine);
    self->context_.loop.Post([self, result = machine.result()] { self->OnBegun(result); });
  });
  MaybePlan();
}

void Attempt::Restart() {
  state_ = State::kJoining;
  reported_ = "joining";
  auto self = shared_from_this();
  join_timer_ = context_.loop.After(join_timeout_, [self] { self->OnJoinTimeout(); });
  WatchProgress();
}

void Attempt::OnBegun(const absl::StatusOr<AttemptRecord>& result) {
  job_running_ = false;
  if (state_ == State::kEnded) return;
  Progress();
  if (result.ok()) {
    record_ = *result;
    root_->SetFoldersSynced(record_.job);
  }
  if (state_ == State::kAborting) return Abort();
  if (!result.ok()) return Fail(FailureOf(result.status(), std::nullopt, "admit"));
  state_ = State::kJoining;
  context_.on_change();
  Event("attempt.begun");
  for (auto& [rank, save] : ranks_) {
    Point("joined");
    Event("attempt.joined", rank);
    if (save.stream) save.stream->Admitted(record_.attempt);
  }
  patience_timer_ = context_.loop.After(kPlanPatience, [self = shared_from_this()] {
    self->impatient_ = true;
    self->MaybePlan();
  });
  if (early_plan_ != nullptr) {
    OnPlanned(std::move(*early_plan_));
    early_plan_ = nullptr;
  }
  MaybePlan();
}

absl::Status Attempt::CheckFits(const Session& session, const SaveOptions& options) const {
  const SessionInfo& info = session.info;
  if (info.world_size != record_.world_size) {
    return absl::FailedPreconditionError(absl::StrCat(
        "checkpoint \"", record_.checkpoint_id, "\" is being saved by ", record_.world_size,
        " ranks, and rank ", info.rank, " joins with a world size of ", info.world_size));
  }
  if (options.step != record_.step) {
    return absl::FailedPreconditionError(absl::StrCat("checkpoint \"", record_.checkpoint_id,
                                                      "\" is of step ", record_.step, ", and rank ",
                                                      info.rank, " gives step ", options.step));
  }
  if (options.replace != record_.replace) {
    return absl::FailedPreconditionError(
        absl::StrCat("checkpoint \"", record_.checkpoint_id, "\": rank ", info.rank,
                     " and the others differ in on_existing (refuse, replace)"));
  }
  return absl::OkStatus();
}

RankSave Attempt::NewRank(const Session& session, const SaveOptions& options,
                          std::shared_ptr<const RankPlan> plan,
                          std::shared_ptr<SaveStream> stream) const {
  RankSave save;
  save.rank = session.info.rank;
  save.pid = session.info.pid;
  save.token = session.token;
  save.request_id = options.request_id;
  save.plan = std::move(plan);
  save.stream = std::move(stream);
  return save;
}

absl::Status Attempt::Join(const Session& session, const SaveOptions& options,
                           std::shared_ptr<const RankPlan> plan,
                           std::shared_ptr<SaveStream> stream) {
  RETURN_IF_ERROR(CheckFits(session, options));
  uint32_t rank = session.info.rank;
  if (ranks_.contains(rank)) {
    return absl::AlreadyExistsError(absl::StrCat("checkpoint \"", record_.checkpoint_id,
                                                 "\" is in flight, and rank ", rank,
                                                 " has joined it already"));
  }
  ranks_[rank] = NewRank(session, options, std::move(plan), std::move(stream));
  AskToKeep(options);
  umask_ = session.info.umask;
  if (options.replicas == ReplicaPolicy::kLowestRank) replicas_ = ReplicaPolicy::kLowestRank;
  Progress();
  if (minted()) {
    Point("joined");
    Event("attempt.joined", rank);
    if (SaveStream* joined = ranks_[rank].stream.get()) joined->Admitted(record_.attempt);
  }
  MaybePlan();
  return absl::OkStatus();
}

void Attempt::AskToKeep(const SaveOptions& options) {
  uint32_t asked = KeepLastOf(options.keep_last, context_.keep_last);
  keep_last_ = keep_last_ ? KeepMore(*keep_last_, asked) : asked;
}

void Attempt::MaybePlan() {
  bool complete = ranks_.size() == record_.world_size;
  // If all are there, the plan is made while the attempt is minted; OnBegun() takes it up.
  if (state_ < (complete ? State::kBeginning : State::kJoining)) return;
  // Returning ranks may all be staged before the plan is confirmed.
  if (state_ > State::kWriting || planning_ || confirmed_) return;
  std::vector<uint32_t> to_assign;
  for (const auto& [rank, save] : ranks_) {
    if (!save.assigned) to_assign.push_back(rank);
  }
  bool alone = impatient_ && replicas_ == ReplicaPolicy::kError && !to_assign.empty();
  if (complete || alone) StartPlan(std::move(to_assign));
}

// What is about to be staged must fit: a full disk is better known before than after. Others may
// fill it all the same; then a write fails.
static absl::Status CheckSpace(Root& root, uint64_t bytes) {
  absl::StatusOr<DiskSpace> space = root.disk().Space();
  if (!space.ok() || space->free_bytes >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("root \"", root.label(), "\" (", root.path(),
                                                   ") has ", space->free_bytes,
                                                   " bytes free, and the save needs ", bytes));
}

void Attempt::StartPlan(std::vector<uint32_t> to_assign) {
  planning_ = true;
  std::map<uint32_t, std::shared_ptr<const RankPlan>> plans;
  OrdinalsByRank taken;
  for (const auto& [rank, save] : ranks_) {
    plans[rank] = save.plan;
    if (save.assigned) taken[rank] = save.ordinals;
  }
  bool complete = ranks_.size() == record_.world_size;
  root_->writers().Post([self = shared_from_this(), plans = std::move(plans),
                         taken = std::move(taken), to_assign = std::move(to_assign), complete,
                         policy = replicas_]() mutable {
    auto result = std::make_shared<PlanResult>();
    PlansByRank by_rank;
    for (const auto& [rank, plan] : plans) by_rank[rank] = plan.get();
    result->status = CheckAgreement(by_rank, policy);
    if (result->status.ok()) {
      result->ordinals = Assign(by_rank, taken, to_assign, policy);
      for (uint32_t rank : to_assign) {
        result->layouts[rank] =
            std::make_shared<ImageLayout>(LayOutImage(*plans[rank], result->ordinals[rank]));
        taken[rank] = result->ordinals[rank];
      }
      if (complete) result->status = CheckComplete(by_rank, taken);
      result->confirmed = complete;
    }
    if (result->status.ok()) {
      for (const auto& [rank, layout] : result->layouts) result->bytes += layout->image_bytes;
      result->status = CheckSpace(*self->root_, result->bytes);
      result->phase = "admit";
      result->disk_short = !result->status.ok();
    }
    self->context_.loop.Post([self, result] { self->OnPlanned(std::move(*result)); });
  });
}

// Deleted checkpoints whose grace is not over give way to a save; then it is looked once more.
void Attempt::MakeRoom(PlanResult result) {
  made_room_ = true;
  uint64_t bytes = result.bytes;
  context_.make_room(
      root_, bytes,
      [self = shared_from_this(), result = std::make_shared<PlanResult>(std::move(result))] {
        self->root_->writers().Post([self, result] {
          result->status = CheckSpace(*self->root_, result->bytes);
          self->context_.loop.Post([self, result] { self->OnPlanned(std::move(*result)); });
        });
      });
}

void Attempt::OnPlanned(PlanResult result) {
  if (result.disk_short && !made_room_ && context_.make_room) return MakeRoom(std::move(result));
  if (state_ == State::kBeginning) {
    early_plan_ = std::make_shared<PlanResult>(std::move(result));
    return;
  }
  planning_ = false;
  if (state_ > State::kWriting) return;
  if (!result.status.ok()) return Fail(FailureOf(result.status, std::nullopt, result.phase));
  made_room_ = false;
  confirmed_ = result.confirmed;
  if (confirmed_) Point("planned");
  Progress();
  if (state_ == State::kJoining) {
    state_ = State::kStaging;
    reported_ = "staging";
  }
  for (auto& [rank, layout] : result.layouts) {
    RankSave& save = ranks_.at(rank);
    save.ordinals = std::move(result.ordinals[rank]);
    save.layout = std::move(layout);
    StartStaging(save, {});
    if (state_ == State::kAborting) return;
    GrantBlocks(rank);
  }
  MaybePlan();  // Ranks that have joined meanwhile.
  MaybeFinish();
}

// Gives the rank its arena, unless it has one, and starts its writer. `held`: blocks that a
// returning rank has sealed already.
void Attempt::StartStaging(RankSave& rank, const std::vector<ResumedBlock>& held) {
  uint64_t generation = 0;
  if (rank.layout->image_bytes > 0) {
    if (rank.arena == nullptr) {
      auto arena = context_.arenas.Obtain(record_.job, rank.rank, record_.world_size,
                                          rank.layout->image_bytes, *root_);
      if (!arena.ok()) return Fail(FailureOf(arena.status(), rank.rank, "stage"));
      rank.arena = *arena;
    }
    generation = rank.arena->generation();
    rank.blocks.resize((rank.layout->image_bytes + rank.arena->block_bytes() - 1) /
                       rank.arena->block_bytes());
  }
  rank.assigned = true;
  rank.planned_bytes = rank.layout->image_bytes;
  rank.unsealed = rank.unwritten = static_cast<uint32_t>(rank.blocks.size());
  rank.state = RankSave::State::kStaging;
  if (rank.stream) rank.stream->Assigned(rank.ordinals, generation);
  StartWriter(rank);
  for (const ResumedBlock& block : held) {
    bool fits = block.image_block < rank.blocks.size() &&
                rank.blocks[block.image_block].state == ImageBlock::State::kNeeded &&
                block.arena_block < rank.arena->block_count() &&
                rank.arena->GrantBlock(block.arena_block);
    if (!fits) continue;
    rank.blocks[block.image_block].state = ImageBlock::State::kGranted;
    rank.blocks[block.image_block].arena_block = block.arena_block;
    SealBlock(rank, block.image_block, block.unit_crc32c, true);
    if (state_ == State::kAborting) return;
  }
  CheckStaged(rank);
}

void Attempt::StartWriter(RankSave& rank) {
  ShardWriter::Options options;
  options.attempt_dir = Dir();
  options.rank = rank.rank;
  options.world_size = record_.world_size;
  options.plan = rank.plan;
  options.layout = rank.layout;
  options.arena = rank.arena;
  options.file_mode = FileMode();
  options.replace_leftovers = restarted_;
  options.recheck_every = context_.recheck_every;
  options.on_point = context_.on_point;
  std::weak_ptr<Attempt> weak = weak_from_this();
  uint32_t number = rank.rank;
  ShardWriter::Callbacks callbacks;
  callbacks.progress = [weak, number](uint64_t bytes) {
    if (auto self = weak.lock()) {
      RankSave& save = self->ranks_.at(number);
      save.written_bytes = std::min(save.written_bytes + bytes, save.planned_bytes);
      self->Progress();
    }
  };
  callbacks.written = [weak, number](uint32_t image_block, uint32_t arena_block) {
    if (auto self = weak.lock()) self->OnBlockWritten(number, image_block, arena_block);
  };
  callbacks.finished = [weak, number] {
    if (auto self = weak.lock()) self->OnShardsWritten(number);
  };
  callbacks.failed = [weak, number](absl::Status status) {
    if (auto self = weak.lock()) self->Fail(self->FailureOf(status, number, "write"));
  };
  callbacks.idle = [weak, number] {
    if (auto self = weak.lock()) self->OnIdle(number);
  };
  rank.writer = std::make_shared<ShardWriter>(context_.loop, *root_, std::move(options),
                                              std::move(callbacks));
  rank.writer->Start();
}

void Attempt::GrantBlocks(uint32_t number) {
  auto found = ranks_.find(number);
  if (found == ranks_.end() || state_ == State::kAborting || state_ == State::kEnded) return;
  RankSave& rank = found->second;
  if (!rank.assigned || rank.arena == nullptr || context_.reserved(*this, rank)) return;
  std::vector<BlockGrant> grants;
  while (rank.next_block < rank.blocks.size()) {
    ImageBlock& block = rank.blocks[rank.next_block];
    if (block.state == ImageBlock::State::kNeeded) {
      std::optional<uint32_t> granted = rank.arena->Grant();
      if (!granted) break;
      block.state = ImageBlock::State::kGranted;
      block.arena_block = *granted;
      grants.push_back({rank.next_block, *granted});
    }
    ++rank.next_block;
  }
  if (!grants.empty() && rank.stream) rank.stream->Granted(grants);
}

void Attempt::Sealed(uint32_t number, uint32_t image_block, uint32_t arena_block,
                     std::vector<uint32_t> unit_crc32c) {
  auto found = ranks_.find(number);
  if (found == ranks_.end() || (state_ != State::kStaging && state_ != State::kJoining)) return;
  RankSave& rank = found->second;
  if (image_block >= rank.blocks.size() ||
      rank.blocks[image_block].state != ImageBlock::State::kGranted ||
      rank.blocks[image_block].arena_block != arena_block) {
    return Fail(FailureOf(absl::InvalidArgumentError(absl::StrCat(
                              "rank ", number, " sealed image block ", image_block,
                              " in arena block ", arena_block, ", which it was not granted")),
                          number, "stage"));
  }
  SealBlock(rank, image_block, std::move(unit_crc32c), false);
}

void Attempt::SealBlock(RankSave& rank, uint32_t image_block, std::vector<uint32_t> unit_crc32c,
                        bool taken_back) {
  ImageBlock& block = rank.blocks[image_block];
  uint64_t begin = image_block * rank.arena->block_bytes();
  size_t units = UnitsOf(*rank.layout, begin, begin + rank.BlockBytes(image_block)).size();
  if (unit_crc32c.size() != units) {
    return Fail(FailureOf(absl::InvalidArgumentError(absl::StrCat(
                              "rank ", rank.rank, " sealed image block ", image_block, " with ",
                              unit_crc32c.size(), " checksums, not ", units)),
                          rank.rank, "stage"));
  }
  if (rank.staged_bytes == 0) Point("first-seal");
  block.state = ImageBlock::State::kSealed;
  block.unit_crc32c = unit_crc32c;
  rank.arena->Seal(block.arena_block);
  rank.staged_bytes += rank.BlockBytes(image_block);
  --rank.unsealed;
  Progress();
  rank.writer->Write(image_block, block.arena_block, std::move(unit_crc32c), taken_back);
  if (Mutated(BlockMutation::kReuseBeforeCompletion)) {
    rank.arena->Written(block.arena_block);
    context_.arenas.NotifyFree(record_.job, rank.rank);
  }
  CheckStaged(rank);
}

void Attempt::CheckStaged(RankSave& rank) {
  if (rank.unsealed != 0 || rank.state != RankSave::State::kStaging) return;
  rank.state = RankSave::State::kStaged;
  if (rank.stream) rank.stream->Staged();
  Point("rank-staged");
  Event("attempt.staged", rank.rank);
  if (rank.unwritten == 0) rank.writer->Finish();
  size_t staged = std::count_if(ranks_.begin(), ranks_.end(),
                                [](const auto& entry) { return entry.second.staged(); });
  if (staged == record_.world_size) {
    context_.loop.Cancel(join_timer_);
    state_ = State::kWriting;
    reported_ = "writing";
    Point("all-staged");
    context_.on_change();
  }
}

void Attempt::OnBlockWritten(uint32_t number, uint32_t image_block, uint32_t arena_block) {
  RankSave& rank = ranks_.at(number);
  rank.blocks[image_block].state = ImageBlock::State::kWritten;
  if (!Mutated(BlockMutation::kReuseBeforeCompletion)) rank.arena->Written(arena_block);
  --rank.unwritten;
  Progress();
  if (rank.unwritten == 0 && rank.staged()) rank.writer->Finish();
  context_.arenas.NotifyFree(record_.job, number);
}

void Attempt::StreamGone(uint32_t rank, const SaveStream* stream) {
  auto found = ranks_.find(rank);
  if (found != ranks_.end() && found->second.stream.get() == stream) found->second.stream.reset();
}

void Attempt::RankEnded(const Session& session, SessionEnd end) {
  auto found = ranks_.find(session.info.rank);
  if (found == ranks_.end() || found->second.token != session.token) return;
  RankSave& rank = found->second;
  if (end == SessionEnd::kDead) rank.session_ended = session.ended;
  // One that lives without its connection may still listen here.
  if (end != SessionEnd::kLost) rank.stream.reset();
  rank.filler = end == SessionEnd::kLost ? RankSave::Filler::kLost : RankSave::Filler::kStopped;
  if (state_ == State::kEnded) return SettleArena(rank);
  if (rank.staged()) return;  // The daemon has all its bytes.
  rank.state = RankSave::State::kLost;
  absl::Status why;
  switch (end) {
    case SessionEnd::kDead:
      why = absl::AbortedError(
          absl::StrCat("rank ", rank.rank, " (process ", rank.pid, ") died before it was staged"));
      break;
    case SessionEnd::kLost:
      why = absl::AbortedError(
          absl::StrCat("rank ", rank.rank, " (process ", rank.pid,
                       ") has closed its connection and did not come back before it was staged"));
      break;
    case SessionEnd::kClosed:
      why = absl::CancelledError(
          absl::StrCat("rank ", rank.rank, " closed its session before it was staged"));
      break;
  }
  Fail(FailureOf(why, rank.rank, "stage"));
}

uint64_t Attempt::planned_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [rank, save] : ranks_) bytes += save.planned_bytes;
  return bytes;
}

std::vector<uint32_t> Attempt::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < record_.world_size; ++rank) {
    if (!ranks_.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

void Attempt::OnJoinTimeout() {
  join_timer_ = ControlLoop::TimerId::kNone;
  std::vector<uint32_t> missing = MissingRanks();
  if (missing.empty()) return;
  std::string who =
      absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "));
  if (restarted_) {
    Fail(FailureOf(absl::AbortedError(
                       absl::StrCat("the daemon restarted, and ", who, " did not come back within ",
                                    ckptd::FormatDuration(join_timeout_), ": the bytes are gone")),
                   missing[0], "settle"));
  } else {
    Fail(FailureOf(absl::DeadlineExceededError(absl::StrCat(who, " did not join within ",
                                                            ckptd::FormatDuration(join_timeout_))),
                   missing[0], "join"));
  }
}

Failure Attempt::FailureOf(const absl::Status& status, std::optional<uint32_t> rank,
                           absl::string_view phase) const {
  return Failure{status, rank, context_.node, std::string(phase)};
}

void Attempt::Point(absl::string_view name) const {
  if (context_.on_point) context_.on_point(name);
}

void Attempt::Event(absl::string_view name, std::optional<uint32_t> rank) const {
  if (context_.on_event) context_.on_event(name, *this, rank);
}

void Attempt::Progress() { last_progress_ = context_.loop.clock().Monotonic(); }

// No progress for attempt_timeout fails the attempt. If the root does not even answer that, for as
// long again, or the commit, the ranks are told what is true: unknown.
void Attempt::WatchProgress() {
  absl::Duration quiet = context_.loop.clock().Monotonic() - last_progress_;
  if (quiet >= context_.attempt_timeout) {
    if (state_ == State::kAborting || state_ == State::kDurable) return GiveUp();
    quiet = absl::ZeroDuration();
    Progress();
    Fail(FailureOf(absl::DeadlineExceededError(absl::StrCat(
                       "no progress for ", ckptd::FormatDuration(context_.attempt_timeout))),
                   std::nullopt,
                   state_ == State::kWriting || state_ == State::kFinishing ? "write" : "stage"));
    if (state_ == State::kEnded) return;
  }
  progress_timer_ = context_.loop.After(context_.attempt_timeout - quiet,
                                        [self = shared_from_this()] { self->WatchProgress(); });
}

std::string Attempt::Dir() const { return AttemptDir(record_.job, record_.attempt); }

}  // namespace ckptd
