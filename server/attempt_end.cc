// How an attempt ends: durable and decided, or aborted and decided.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/attempt.h"
#include "server/failed_cleanup.h"
#include "server/fragment_builder.h"
#include "server/mutation.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/finish_node.h"
#include "storage/commit/runner.h"
#include "storage/format/paths.h"

namespace ckptd {

void Attempt::OnShardsWritten(uint32_t number) {
  RankSave& rank = ranks_.at(number);
  rank.shards = rank.writer->shards();
  rank.written_bytes = rank.planned_bytes;
  rank.state = RankSave::State::kWritten;
  Point("shard-complete");
  Progress();
  MaybeFinish();
}

void Attempt::MaybeFinish() {
  if (state_ != State::kWriting || !confirmed_) return;
  for (const auto& [rank, save] : ranks_) {
    if (save.state != RankSave::State::kWritten) return;
  }
  state_ = State::kFinishing;
  job_running_ = true;
  std::vector<std::pair<std::string, std::unique_ptr<File>>> files;
  for (auto& [rank, save] : ranks_) {
    for (auto& file : save.writer->TakeFiles()) files.push_back(std::move(file));
  }
  root_->writers().Post(
      [self = shared_from_this(), ranks = ranks_, files = std::move(files)]() mutable {
        FinishNode::Options options;
        options.attempt_dir = self->Dir();
        options.file_mode = self->FileMode();
        options.fragment = BuildFragment(self->record_, self->context_.node, ranks);
        if (self->restarted_) {  // The earlier life may have died while it wrote its own.
          self->root_->disk()
              .Unlink(ckptd::Join(self->Dir(), FragmentFileName(self->context_.node)))
              .IgnoreError();
        }
        ActionRunner runner(self->root_->disk(), self->context_.on_point);
        for (auto& [path, file] : files) {
          options.shards.push_back(path);
          runner.Adopt(path, std::move(file));
        }
        FinishNode machine(std::move(options));
        runner.RunToEnd(machine);
        self->context_.loop.Post([self, result = machine.result()] { self->OnDurable(result); });
      });
}

void Attempt::OnDurable(const absl::StatusOr<FragmentRef>& result) {
  job_running_ = false;
  if (state_ == State::kEnded) return;
  Progress();
  if (state_ == State::kAborting) return Abort();
  if (!result.ok()) return Fail(FailureOf(result.status(), std::nullopt, "sync"));
  state_ = State::kDurable;
  reported_ = "durable";
  node_durable_ = true;
  for (auto& [rank, save] : ranks_) {
    if (save.stream) save.stream->Durable();
  }
  Event("attempt.durable");
  context_.on_change();
  Point("durable-sent");
  Point("all-durable");
  Decide::Commit commit;
  commit.record = record_;
  commit.durable = {*result};
  commit.node = context_.node;
  commit.file_mode = FileMode();
  commit.otherwise = MakeOutcome();
  RunDecide(Decide(std::move(commit)));
}

void Attempt::Fail(Failure failure) {
  if (state_ == State::kDurable || state_ == State::kAborting || state_ == State::kEnded) return;
  CKPT_CHECK(!failure.status.ok(), "a failure has a reason");
  failure_ = std::move(failure);
  state_ = State::kAborting;
  Progress();  // The abort has its own attempt_timeout.
  for (auto& [rank, save] : ranks_) {
    if (save.writer) save.writer->Stop();
  }
  Abort();
}

// The ranks are not kept waiting for transfers that a slow disk still has: those go into files that
// are about to be deleted. Blocks and files are let go when the last one is reaped (Release).
void Attempt::Abort() {
  if (state_ != State::kAborting || job_running_) return;
  if (!minted()) return End(Result::kFailed);
  Decide::Abort abort;
  abort.record = record_;
  abort.node = context_.node;
  abort.file_mode = FileMode();
  abort.outcome = MakeOutcome();
  RunDecide(Decide(std::move(abort)));
}

// A root on which a sync has failed is asked for no decision: a sync that is tried once more may
// succeed and have written nothing. The next start decides.
void Attempt::RunDecide(Decide decide) {
  if (!root_->healthy()) return EndUnknown(RootFailure());
  job_running_ = true;
  root_->writers().Post([self = shared_from_this(), decide = std::move(decide)]() mutable {
    ActionRunner runner(self->root_->disk(), self->context_.on_point);
    runner.RunToEnd(decide);
    Decision decision = *decide.decision();
    bool open = decision.kind == Decision::Kind::kUnknown || decision.kind == Decision::Kind::kLeft;
    // At once: another attempt of this root may be about to be decided.
    if (open) self->root_->SetUnhealthy(self->UnknownText(decision.failure.status));
    CheckpointInfo checkpoint;
    if (decision.kind == Decision::Kind::kCommitted) {
      checkpoint.job = self->record_.job;
      checkpoint.id = self->record_.checkpoint_id;
      checkpoint.path = CheckpointDir(checkpoint.job, checkpoint.id);
      checkpoint.manifest = decision.manifest;
      checkpoint.record = self->record_;
      auto stat = self->root_->disk().Stat(ckptd::Join(checkpoint.path, kManifestFile));
      checkpoint.committed = stat.ok() ? stat->modified : self->context_.loop.clock().Wall();
    }
    self->context_.loop.Post(
        [self, decision = std::move(decision), checkpoint = std::move(checkpoint)]() mutable {
          self->OnDecided(std::move(decision), std::move(checkpoint));
        });
  });
}

void Attempt::OnDecided(Decision decision, CheckpointInfo checkpoint) {
  job_running_ = false;
  if (state_ == State::kEnded) return;  // Too late: the next start looks again.
  bool open = decision.kind == Decision::Kind::kUnknown || decision.kind == Decision::Kind::kLeft;
  if (!open && !root_->healthy()) return EndUnknown(RootFailure());
  switch (decision.kind) {
    case Decision::Kind::kCommitted:
      checkpoint_ = std::move(checkpoint);
      return End(Result::kCommitted);
    case Decision::Kind::kFailed:
      failure_ = std::move(decision.failure);
      return End(Result::kFailed);
    case Decision::Kind::kUnknown:
    case Decision::Kind::kLeft:
      return EndUnknown(std::move(decision.failure));
  }
}

// What is wrong with the root, which may be the failure of another attempt.
Failure Attempt::RootFailure() const {
  return FailureOf(absl::UnavailableError(root_->unhealthy_reason()), std::nullopt, "settle");
}

std::string Attempt::UnknownText(const absl::Status& why) const {
  return absl::StrCat("the outcome of attempt ", ToString(record_.attempt), " of job \"",
                      record_.job,
                      "\" is unknown until the next start of the daemon: ", why.message());
}

// The next start may find that it is committed: whatever the error was, none says "failed".
void Attempt::EndUnknown(Failure why) {
  failure_ = std::move(why);
  failure_.status = absl::UnknownError(UnknownText(failure_.status));
  root_->SetUnhealthy(std::string(failure_.status.message()));
  End(Result::kUnknown);
}

void Attempt::GiveUp() {
  failure_ = FailureOf(
      absl::UnknownError(absl::StrCat(
          "root \"", root_->label(), "\" (", root_->path(), ") has not answered for ",
          ckptd::FormatDuration(context_.attempt_timeout), ": what becomes of this save of \"",
          record_.checkpoint_id, "\" is unknown until the next start")),
      std::nullopt, state_ == State::kDurable ? "commit" : "settle");
  root_->SetUnhealthy(std::string(failure_.status.message()));
  End(Result::kUnknown);
}

void Attempt::End(Result result) {
  result_ = result;
  state_ = State::kEnded;
  reported_ = result == Result::kCommitted ? "committed"
              : result == Result::kFailed  ? "failed"
                                           : "unknown";
  ended_ = context_.loop.clock().Wall();
  context_.loop.Cancel(join_timer_);
  context_.loop.Cancel(patience_timer_);
  context_.loop.Cancel(progress_timer_);
  Event(result == Result::kCommitted ? "attempt.committed" : "attempt.failed");
  Tell();
  CleanUp();
  // Ended attempts are remembered, their plans are not; to take a large one apart takes a while.
  std::vector<std::shared_ptr<const void>> plans;
  for (auto& [rank, save] : ranks_) {
    plans.push_back(std::move(save.plan));
    plans.push_back(std::move(save.layout));
    save.ordinals = {};
    for (ImageBlock& block : save.blocks) block.unit_crc32c = {};
    Release(save);
  }
  root_->writers().Post([plans = std::move(plans)] {});
  on_end_(*this);
}

void Attempt::Tell() {
  for (auto& [rank, save] : ranks_) {
    std::shared_ptr<SaveStream> stream = std::move(save.stream);
    if (!stream) continue;
    if (result_ == Result::kCommitted) {
      stream->Committed(checkpoint_);
    } else {
      stream->Failed(failure_);
    }
  }
  Point("told");
}

// What nobody waits for: the shards of a failed attempt, the free space; what a commit leaves
// behind is another's (on_committed).
void Attempt::CleanUp() {
  if (!minted()) return;
  if (result_ == Result::kCommitted) {
    if (context_.on_committed) context_.on_committed(root_, *this);
    return;
  }
  if (result_ == Result::kFailed) {
    FinishFailed::Options options{.job = record_.job,
                                  .attempt = record_.attempt,
                                  .otherwise = MakeOutcome(),
                                  .file_mode = FileMode()};
    auto on_trouble = [&context = context_, job = record_.job,
                       attempt = record_.attempt](const absl::Status& status) {
      if (context.on_left) context.on_left(job, attempt, status);
    };
    return std::make_shared<FailedCleanUp>(context_.loop, root_, std::move(options), on_trouble)
        ->Try();
  }
  root_->readers().Post([root = root_, &loop = context_.loop] {
    auto space = root->disk().Space();
    loop.Post([root, space] {
      if (space.ok()) root->SetFreeBytes(space->free_bytes);
    });
  });
}

// After the end, once every transfer of this rank was reaped: sealed blocks that were never
// reported written are free, and the files can be closed.
void Attempt::Release(RankSave& rank) {
  if (rank.writer) {
    if (rank.writer->in_flight() > 0) return;
    root_->writers().Post([files = rank.writer->TakeFiles()]() mutable { files.clear(); });
    rank.writer.reset();
  }
  bool freed = false;
  for (ImageBlock& block : rank.blocks) {
    if (block.state != ImageBlock::State::kSealed) continue;
    block.state = ImageBlock::State::kWritten;
    if (!Mutated(BlockMutation::kReuseBeforeCompletion)) rank.arena->Written(block.arena_block);
    freed = true;
  }
  if (freed) context_.arenas.NotifyFree(record_.job, rank.rank);
  SettleArena(rank);
}

// A writer has no request in flight any more.
void Attempt::OnIdle(uint32_t rank) {
  if (state_ == State::kEnded) Release(ranks_.at(rank));
}

void Attempt::ReleaseGranted(const Session& session) {
  auto found = ranks_.find(session.info.rank);
  // A process of another life of the job says nothing about this one.
  if (found == ranks_.end() || found->second.token != session.token) return;
  if (found->second.filler == RankSave::Filler::kLiving)
    found->second.filler = RankSave::Filler::kStopped;
  SettleArena(found->second);
}

// An ended attempt holds no memory, except where a transfer is in flight or a living rank may still
// be filling it. Granted blocks are not free because the attempt has ended.
void Attempt::SettleArena(RankSave& rank) {
  if (rank.writer) return;
  bool freed = false;
  for (ImageBlock& block : rank.blocks) {
    if (block.state != ImageBlock::State::kGranted) continue;
    if (rank.filler == RankSave::Filler::kLiving) return;
    if (rank.filler == RankSave::Filler::kLost) continue;  // Its blocks are never free again.
    rank.arena->Abandon(block.arena_block);
    freed = true;
  }
  rank.blocks.clear();
  rank.arena.reset();
  if (freed) context_.arenas.NotifyFree(record_.job, rank.rank);
}

void Attempt::DropStreams() {
  for (auto& [rank, save] : ranks_) save.stream.reset();
}

bool Attempt::HoldsBlocks() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return entry.second.arena != nullptr; });
}

Outcome Attempt::MakeOutcome() const {
  Outcome outcome;
  outcome.record = record_;
  outcome.root_label = root_->label();
  outcome.failure = failure_;
  outcome.ended = ended_ == absl::InfinitePast() ? context_.loop.clock().Wall() : ended_;
  for (uint32_t number = 0; number < record_.world_size; ++number) {
    RankOutcome rank;
    rank.rank = number;
    auto found = ranks_.find(number);
    if (found == ranks_.end()) {
      rank.state = "missing";
    } else {
      rank.node = context_.node;
      rank.pid = found->second.pid;
      rank.state = RankStateName(found->second.state, node_durable_);
      rank.planned_bytes = found->second.planned_bytes;
      rank.staged_bytes = found->second.staged_bytes;
      rank.written_bytes = found->second.written_bytes;
    }
    outcome.ranks.push_back(std::move(rank));
  }
  return outcome;
}

const char* Attempt::StateName() const { return reported_; }

}  // namespace ckptd
