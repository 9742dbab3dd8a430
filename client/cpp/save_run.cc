#include "client/cpp/save_run.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/rpc_channel.h"
#include "client/cpp/start_thread.h"
#include "client/cpp/wire.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd::inline client {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(50);
constexpr absl::Duration kPauseMax = absl::Seconds(1);
// How long the daemon may take to hand its arena over.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(30);
// How long the daemon may take to end the stream of a save that has ended.
constexpr absl::Duration kEndTimeout = absl::Seconds(5);
// Broken streams on a living connection before a save that is not staged gives up.
constexpr int kBreaksMax = 8;
// And of one that is staged, whose outcome is then unknown here: some five minutes.
constexpr int kStagedBreaksMax = 300;

// The daemon or the way to it, not the save: worth another stream.
bool IsBreak(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsUnauthenticated(status);
}

}  // namespace

SaveRun::SaveRun(SaveContext context, SaveSettings settings, uint64_t number, Turns::Turn turn,
                 std::unique_ptr<PlannedState> state, std::shared_ptr<SaveProgress> progress)
    : context_(context),
      settings_(std::move(settings)),
      number_(number),
      turn_(turn),
      progress_(std::move(progress)),
      state_(std::move(state)) {}

void SaveRun::Run() {
  absl::Cleanup end = [this] {
    progress_->Detach();
    EndStaging();
    // Here, not where the next save joins this thread: large plans take a while.
    state_.reset();
    layout_.sections.clear();
    finished_ = true;
  };
  if (!context_.turns.Await(turn_)) {
    return Fail(absl::CancelledError("the save was cancelled before its turn"));
  }
  absl::Duration pause = kPauseMin;
  for (int breaks = 0;; ++breaks) {
    absl::StatusOr<std::shared_ptr<Connection>> connection = context_.link.Wait(Patience());
    if (context_.link.stopped()) return;
    if (cancelled_ && progress_->attempt().empty() &&
        (!connection.ok() || (*connection)->daemon_id() != told_daemon_)) {
      return Fail(absl::CancelledError("the save was cancelled"));
    }
    if (!connection.ok()) return Fail(connection.status());
    const absl::Status status = RunStream(*connection);
    if (ended_ || context_.link.stopped()) return;
    if (!IsBreak(status)) return Fail(status);
    if ((*connection)->lost()) {
      breaks = 0;
      pause = kPauseMin;
      continue;
    }
    if (absl::IsUnauthenticated(status)) context_.link.Distrust(*connection);
    const bool staged = progress_->state() >= SaveState::kStaged;
    if (breaks >= (staged ? kStagedBreaksMax : kBreaksMax)) {
      return Fail(staged ? absl::UnknownError(absl::StrCat(
                               "staged, but the daemon does not go on with it: ", status.message()))
                         : status);
    }
    if (!context_.link.PauseUnlessStopped(pause)) return;
    pause = std::min(2 * pause, kPauseMax);
  }
}

absl::Duration SaveRun::Patience() const {
  switch (progress_->state()) {
    case SaveState::kQueued:
      return settings_.daemon_lost_timeout;
    case SaveState::kAdmitted:
      return settings_.reattach_timeout;
    default:
      return absl::InfiniteDuration();  // The daemon has all it needs to finish.
  }
}

absl::Status SaveRun::RunStream(const std::shared_ptr<Connection>& connection) {
  Connection::Call call(connection);
  std::unique_ptr<Stream> stream = connection->stub().Save(&call.context());
  arriving_ordinals_.clear();
  outbox_.Open();
  if (cancelled_) SendCancel();  // It came while no stream was open.
  absl::StatusOr<std::thread> sender =
      StartThread([this, &stream, begin = Begin()] { SendAll(*stream, begin); });
  if (!sender.ok()) {
    outbox_.Close();
    call.context().TryCancel();
    const Connection::Call::Limit limit(call, kEndTimeout);
    stream->Finish();
    return absl::UnavailableError(sender.status().message());  // There may be one again.
  }
  v1::SaveReply reply;
  auto read = [&] {
    const Connection::Call::Limit limit(call, ended_ ? kEndTimeout : absl::InfiniteDuration());
    return stream->Read(&reply);
  };
  while (read()) {
    // After we have given up, only the daemon's own end of the stream matters.
    if (!ended_) Handle(reply, *connection);
  }
  outbox_.Close();
  const Connection::Call::Limit limit(call, kEndTimeout);
  sender->join();
  if (plan_sent_) told_daemon_ = connection->daemon_id();
  const absl::Status status = FromGrpc(stream->Finish());
  if (ended_) return absl::OkStatus();
  if (status.ok()) return absl::UnavailableError("the daemon ended the save without an outcome");
  return status;
}

void SaveRun::SendAll(Stream& stream, const v1::SaveRequest& begin) {
  bool open = stream.Write(begin);
  v1::SaveRequest request;
  ForEachPlanPart(state_->plan, [&](v1::PlanPart& part) {
    // No attempt comes of a plan that never was complete; of others the daemon must know which.
    if (!open || (cancelled_ && !plan_sent_)) return false;
    if (part.last()) plan_sent_ = true;
    request.mutable_plan()->Swap(&part);
    open = stream.Write(request);
    request.mutable_plan()->Swap(&part);
    return open;
  });
  while (open) {
    std::optional<v1::SaveRequest> next = outbox_.Pop();
    if (!next) return;
    open = stream.Write(*next);
  }
}

v1::SaveRequest SaveRun::Begin() const {
  v1::SaveRequest request;
  v1::SaveBegin* begin = request.mutable_begin();
  begin->set_checkpoint_id(progress_->id());
  begin->set_step(progress_->step());
  begin->set_request_id(progress_->request_id());
  begin->set_on_existing(settings_.on_existing == OnExisting::kReplace ? v1::ON_EXISTING_REPLACE
                                                                       : v1::ON_EXISTING_REFUSE);
  begin->set_on_overlap(settings_.on_overlap == OnOverlap::kReject ? v1::ON_OVERLAP_REJECT
                                                                   : v1::ON_OVERLAP_WAIT);
  begin->set_replicas(settings_.replicas == Replicas::kLowestRank ? v1::REPLICAS_LOWEST_RANK
                                                                  : v1::REPLICAS_ERROR);
  begin->set_join_timeout_ms(absl::ToInt64Milliseconds(settings_.join_timeout));
  begin->set_rank(context_.rank);
  begin->set_keep_last(settings_.keep_last);
  if (!progress_->attempt().empty()) AddResume(begin);
  return request;
}

void SaveRun::AddResume(v1::SaveBegin* begin) const {
  v1::Resume* resume = begin->mutable_resume();
  resume->set_attempt(progress_->attempt());
  resume->mutable_ordinals()->Add(ordinals_.begin(), ordinals_.end());
  resume->set_staged(progress_->state() >= SaveState::kStaged);
  std::lock_guard lock(mutex_);
  if (arena_ == nullptr || arena_ != context_.arena.current()) return;
  for (const auto& [image_block, sealed] : sealed_) {
    if (!arena_->Holds(sealed.arena_block, number_, image_block)) continue;
    v1::SealedBlock* block = resume->add_sealed();
    block->set_image_block(image_block);
    block->set_arena_block(sealed.arena_block);
    block->mutable_unit_crc32c()->Add(sealed.unit_crc32c.begin(), sealed.unit_crc32c.end());
  }
}

void SaveRun::SendCancel() {
  v1::SaveRequest request;
  request.mutable_cancel();
  outbox_.Push(std::move(request));
}

void SaveRun::Cancel() {
  {
    std::lock_guard lock(copy_mutex_);
    cancelled_ = true;
  }
  context_.turns.EndUnlessFirst(turn_);
  SendCancel();
}

void SaveRun::AwaitCopies() {
  std::unique_lock lock(copy_mutex_);
  copied_.wait(lock, [this] { return copies_ == 0; });
}

void SaveRun::Handle(const v1::SaveReply& reply, Connection& connection) {
  switch (reply.message_case()) {
    case v1::SaveReply::kAdmitted:
      progress_->SetAttempt(reply.admitted().attempt());
      return progress_->Reach(SaveState::kAdmitted);
    case v1::SaveReply::kAssigned:
      return HandleAssigned(reply.assigned(), connection);
    case v1::SaveReply::kGranted:
      return Fill(reply.granted());
    case v1::SaveReply::kStaged:
      EndStaging();
      return progress_->Reach(SaveState::kStaged);
    case v1::SaveReply::kDurable:
      return progress_->Reach(SaveState::kDurable);
    case v1::SaveReply::kCommitted:
      ended_ = true;
      return progress_->Reach(SaveState::kCommitted);
    case v1::SaveReply::kFailed:
      ended_ = true;
      return progress_->Fail(FromProto(reply.failed()));
    case v1::SaveReply::MESSAGE_NOT_SET:
      return;  // Of a newer daemon.
  }
}

void SaveRun::HandleAssigned(const v1::Assigned& assigned, Connection& connection) {
  arriving_ordinals_.insert(arriving_ordinals_.end(), assigned.ordinals().begin(),
                            assigned.ordinals().end());
  if (!assigned.last()) return;
  if (assigned_ && arriving_ordinals_ != ordinals_) {
    return Fail(absl::InternalError("ckptd assigns a save twice, and not the same"));
  }
  if (!assigned_) {
    ordinals_ = std::move(arriving_ordinals_);
    const uint32_t count = OrdinalCount(state_->plan);
    if (std::any_of(ordinals_.begin(), ordinals_.end(), [&](uint32_t o) { return o >= count; })) {
      return Fail(absl::InternalError("ckptd assigns what the plan does not have"));
    }
    layout_ = LayOutImage(state_->plan, ordinals_);
    source_.emplace(layout_, state_->views);
    progress_->SetBytes(layout_.image_bytes);
    assigned_ = true;
  }
  if (layout_.image_bytes == 0) return;
  absl::StatusOr<std::shared_ptr<ArenaMap>> arena =
      context_.arena.Get(connection, assigned.arena_generation(), kAnswerTimeout);
  // The stream breaks, too, or says why the save failed before its arena was fetched.
  if (absl::IsUnavailable(arena.status()) || absl::IsNotFound(arena.status())) return;
  if (!arena.ok()) return Fail(arena.status());
  std::lock_guard lock(mutex_);
  arena_ = *std::move(arena);
}

uint32_t SaveRun::BlockCount() const {
  const uint64_t block_bytes = arena_->block_bytes();
  return static_cast<uint32_t>((layout_.image_bytes + block_bytes - 1) / block_bytes);
}

void SaveRun::Fill(const v1::Granted& granted) {
  if (arena_ == nullptr) return;  // Getting it failed; the stream breaks.
  if (progress_->state() >= SaveState::kStaged) {
    return Fail(absl::AbortedError(
        "the daemon has lost bytes that were staged, and the tensors may have changed since"));
  }
  std::vector<std::unique_ptr<Filling>> fillings;
  std::vector<std::pair<Filling*, size_t>> parts;
  for (const v1::BlockGrant& grant : granted.blocks()) {
    if (grant.image_block() >= BlockCount() || grant.arena_block() >= arena_->block_count()) {
      return Fail(absl::InternalError("ckptd grants a block that there is not"));
    }
    auto filling = std::make_unique<Filling>();
    filling->grant = grant;
    filling->enter_pages = arena_->Give(grant.arena_block(), number_, grant.image_block());
    const uint64_t begin = grant.image_block() * arena_->block_bytes();
    const uint64_t end = std::min(begin + arena_->block_bytes(), layout_.image_bytes);
    filling->units = UnitsOf(layout_, begin, end);
    filling->crcs.resize(filling->units.size());
    filling->left = filling->units.size();
    for (size_t i = 0; i < filling->units.size(); ++i) parts.push_back({filling.get(), i});
    fillings.push_back(std::move(filling));
  }
  context_.pool.Run(parts.size(), [&](size_t i) { CopyUnit(*parts[i].first, parts[i].second); });
}

// On the pool's threads, each unit on one.
void SaveRun::CopyUnit(Filling& filling, size_t index) {
  {
    std::lock_guard lock(copy_mutex_);
    if (cancelled_) return;
    ++copies_;
  }
  const Unit& unit = filling.units[index];
  const uint64_t in_block =
      unit.image_offset_bytes - filling.grant.image_block() * arena_->block_bytes();
  const std::span<std::byte> target = arena_->Block(filling.grant.arena_block())
                                          .subspan(in_block, RoundUp(unit.bytes, kPieceBytes));
  if (filling.enter_pages) ArenaMap::EnterPages(target);
  filling.crcs[index] = source_->CopyUnit(unit, target.data());
  {
    std::lock_guard lock(copy_mutex_);
    if (--copies_ == 0) copied_.notify_all();
  }
  if (filling.left.fetch_sub(1, std::memory_order_acq_rel) == 1) Seal(filling);
}

void SaveRun::Seal(Filling& filling) {
  v1::SaveRequest request;
  v1::SealedBlock* block = request.mutable_sealed();
  block->set_image_block(filling.grant.image_block());
  block->set_arena_block(filling.grant.arena_block());
  block->mutable_unit_crc32c()->Add(filling.crcs.begin(), filling.crcs.end());
  uint64_t copied_bytes = 0;
  {
    std::lock_guard lock(mutex_);
    for (const Unit& unit : filling.units) copied_bytes_ += unit.bytes;
    copied_bytes = copied_bytes_;
    sealed_[filling.grant.image_block()] = {filling.grant.arena_block(), std::move(filling.crcs)};
    last_sealed_ = filling.grant.image_block();
  }
  outbox_.Push(std::move(request));
  if (settings_.on_copied) settings_.on_copied(copied_bytes);
}

// Ours to decide: the daemon is told by cancel, if it listens.
void SaveRun::Fail(absl::Status status) {
  SendCancel();
  ended_ = true;
  FailureInfo failure;
  failure.status = WithContext(status, absl::StrCat("save ", progress_->id()));
  failure.rank = context_.rank;
  failure.phase = progress_->state() >= SaveState::kAdmitted ? "stage" : "admit";
  progress_->Fail(std::move(failure));
}

// The trainer's memory is not read from here on.
void SaveRun::EndStaging() {
  source_.reset();
  state_->views.clear();
  state_->item_values.clear();
  context_.turns.End(turn_);
}

std::span<std::byte> SaveRun::LastSealedBlock() const {
  if (progress_->ended()) return {};
  std::lock_guard lock(mutex_);
  if (!last_sealed_) return {};
  const uint32_t arena_block = sealed_.at(*last_sealed_).arena_block;
  if (!arena_->Holds(arena_block, number_, *last_sealed_)) return {};
  const uint64_t begin = *last_sealed_ * arena_->block_bytes();
  return arena_->Block(arena_block)
      .first(std::min(arena_->block_bytes(), layout_.image_bytes - begin));
}

}  // namespace ckptd::inline client
