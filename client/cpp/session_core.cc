#include "client/cpp/session_core.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/rpc_channel.h"
#include "client/cpp/start_thread.h"
#include "client/cpp/wire.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

constexpr uint32_t kThreadsMax = 64;
// How long a restarted daemon may take until a save that is not staged fails.
constexpr absl::Duration kReattachTimeout = absl::Seconds(30);
// How long the daemon may take to hand over an arena that it has touched.
constexpr absl::Duration kArenaTimeout = absl::Seconds(30);
// The least that a call gets, however little time is left, so that a daemon which lives answers.
constexpr absl::Duration kCallMin = absl::Seconds(1);

absl::Duration Now() { return SystemClock().Monotonic(); }

uint32_t Threads(uint32_t asked) {
  if (asked != 0) return std::min(asked, kThreadsMax);
  return std::clamp(std::thread::hardware_concurrency(), 1u, 2u);
}

absl::Status Closed() { return absl::FailedPreconditionError("the session is closed"); }

}  // namespace

SessionCore::SessionCore(const SessionOptions& options, Identity identity)
    : options_(options),
      identity_(std::move(identity)),
      pool_(Threads(options.threads)),
      arena_(guard_) {}

absl::StatusOr<std::shared_ptr<SessionCore>> SessionCore::Open(const SessionOptions& options) {
  RETURN_IF_ERROR(ForkGuard::CheckProcess());
  const Variables variables = ProcessVariables();
  ASSIGN_OR_RETURN(Identity identity, ResolveIdentity(options, variables));
  Link::Options link;
  ASSIGN_OR_RETURN(link.candidates, SocketCandidates(options.client.socket, variables, geteuid()));
  link.identity = identity;
  link.root = options.root;
  link.timeout = options.client.timeout;
  link.on_change = options.on_connection;
  auto core = std::shared_ptr<SessionCore>(new SessionCore(options, std::move(identity)));
  link.on_connect = [raw = core.get()](Connection& connection, bool same_daemon) {
    if (!same_daemon) raw->arena_.Offer(connection);
  };
  ASSIGN_OR_RETURN(core->link_, Link::Open(std::move(link), core->guard_));
  return core;
}

SessionCore::~SessionCore() {
  if (link_ != nullptr) link_->Stop();
  JoinAll();
}

// After the link was stopped: no call waits any more.
void SessionCore::JoinAll() {
  std::vector<Running<SaveRun>> saves;
  std::vector<Running<LoadRun>> loads;
  {
    std::lock_guard lock(mutex_);
    saves.swap(saves_);
    loads.swap(loads_);
  }
  for (Running<SaveRun>& save : saves) save.thread.join();
  for (Running<LoadRun>& load : loads) load.thread.join();
}

std::string SessionCore::node() const {
  std::shared_ptr<Connection> connection = link_->current();
  return connection == nullptr ? "" : connection->node();
}

absl::Status SessionCore::Prewarm(State state, absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  ASSIGN_OR_RETURN(std::unique_ptr<PlannedState> planned, PlanState(std::move(state)));
  ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                   link_->Wait(std::min(options_.daemon_lost_timeout, timeout)));
  Connection::Call call(connection);
  v1::PrewarmReply reply;
  absl::Status status;
  {
    const Connection::Call::Limit limit(call, std::max(deadline - Now(), kCallMin));
    std::unique_ptr<grpc::ClientWriter<v1::PrewarmRequest>> writer =
        connection->stub().Prewarm(&call.context(), &reply);
    v1::PrewarmRequest request;
    ForEachPlanPart(planned->plan, [&](v1::PlanPart& part) {
      request.mutable_plan()->Swap(&part);
      const bool open = writer->Write(request);
      request.mutable_plan()->Swap(&part);
      return open;
    });
    writer->WritesDone();
    status = FromGrpc(writer->Finish());
  }
  if (call.stalled()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no arena after ", absl::FormatDuration(timeout)));
  }
  RETURN_IF_ERROR(status);
  if (reply.arena_bytes() == 0) return absl::OkStatus();  // A rank without bytes needs none.
  ASSIGN_OR_RETURN(std::shared_ptr<ArenaMap> arena,
                   arena_.Get(*connection, reply.arena_generation(),
                              std::clamp(deadline - Now(), kCallMin, kArenaTimeout)));
  // The daemon has touched every block.
  pool_.Run(arena->block_count(),
            [&arena](size_t block) { arena->EnterBlock(static_cast<uint32_t>(block)); });
  return absl::OkStatus();
}

SaveSettings SessionCore::SettingsFor(const SaveOptions& options) const {
  SaveSettings settings;
  settings.on_existing = options.on_existing.value_or(options_.on_existing);
  settings.on_overlap = options_.on_overlap;
  settings.replicas = options_.replicas;
  settings.keep_last = options_.keep_last;
  settings.join_timeout = options.join_timeout.value_or(options_.join_timeout);
  settings.daemon_lost_timeout = options_.on_daemon_lost == OnDaemonLost::kContinue
                                     ? absl::ZeroDuration()
                                     : options_.daemon_lost_timeout;
  settings.reattach_timeout = std::max(kReattachTimeout, options_.daemon_lost_timeout);
  settings.on_copied = options.on_copied;
  return settings;
}

absl::StatusOr<std::shared_ptr<SaveRun>> SessionCore::StartSave(const std::string& id, int64_t step,
                                                                std::unique_ptr<PlannedState> state,
                                                                const SaveOptions& options) {
  std::string request_id = options.request_id.empty() ? RandomToken() : options.request_id;
  auto progress = std::make_shared<SaveProgress>(id, step, std::move(request_id), SystemClock());
  if (options.on_state) progress->OnState(options.on_state);
  Reap();
  std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  const SaveContext context{*link_, arena_, pool_, turns_, identity_.rank};
  const Turns::Turn turn = turns_.Queue();
  auto run = std::make_shared<SaveRun>(context, SettingsFor(options), ++saves_begun_, turn,
                                       std::move(state), std::move(progress));
  absl::StatusOr<std::thread> thread = StartThread([run] { run->Run(); });
  if (!thread.ok()) {
    turns_.End(turn);
    return WithContext(thread.status(), absl::StrCat("save ", id));
  }
  saves_.push_back({run, *std::move(thread)});
  return run;
}

absl::StatusOr<SaveHandle> SessionCore::AsyncSave(const std::string& id, int64_t step, State state,
                                                  const SaveOptions& options) {
  const absl::Duration begun = Now();
  RETURN_IF_ERROR(CheckText("checkpoint id", id));
  ASSIGN_OR_RETURN(std::unique_ptr<PlannedState> planned, PlanState(std::move(state)));
  const bool absent = link_->current() == nullptr;
  ASSIGN_OR_RETURN(std::shared_ptr<SaveRun> run, StartSave(id, step, std::move(planned), options));
  const std::shared_ptr<SaveProgress> progress = run->progress();
  SaveHandle handle(progress, [weak = std::weak_ptr<SaveRun>(run)] {
    if (std::shared_ptr<SaveRun> alive = weak.lock()) alive->Cancel();
  });
  if (!options.deferred) {
    absl::Status status = progress->Wait(SaveState::kStaged, options.block_timeout);
    if (absl::IsDeadlineExceeded(status) && !progress->ended()) {
      run->Cancel();
      run->AwaitCopies();  // The tensors may change.
    }
    progress->AddBlocked(Now() - begun);
    const bool go_on = absent && options_.on_daemon_lost == OnDaemonLost::kContinue;
    if (!status.ok() && !(go_on && absl::IsUnavailable(status))) return status;
  } else {
    progress->AddBlocked(Now() - begun);
  }
  return handle;
}

std::vector<std::shared_ptr<SaveRun>> SessionCore::Saves() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<SaveRun>> saves;
  for (const Running<SaveRun>& save : saves_) saves.push_back(save.run);
  return saves;
}

// Joins the threads of what has ended.
void SessionCore::Reap() {
  std::vector<Running<SaveRun>> saves;
  std::vector<Running<LoadRun>> loads;
  {
    std::lock_guard lock(mutex_);
    auto ended_save = std::partition(saves_.begin(), saves_.end(),
                                     [](const auto& running) { return !running.run->finished(); });
    std::move(ended_save, saves_.end(), std::back_inserter(saves));
    saves_.erase(ended_save, saves_.end());
    auto ended_load = std::partition(loads_.begin(), loads_.end(), [](const auto& running) {
      return !running.run->progress()->done();
    });
    std::move(ended_load, loads_.end(), std::back_inserter(loads));
    loads_.erase(ended_load, loads_.end());
  }
  for (Running<SaveRun>& save : saves) save.thread.join();
  for (Running<LoadRun>& load : loads) load.thread.join();
}

absl::Status SessionCore::Lock(absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  for (const std::shared_ptr<SaveRun>& save : Saves()) {
    if (save->progress()->state() >= SaveState::kStaged) continue;
    const absl::Duration begun = Now();
    const absl::Status status = save->progress()->Wait(
        SaveState::kStaged, std::max(deadline - begun, absl::ZeroDuration()));
    save->progress()->AddBlocked(Now() - begun);
    if (save->progress()->state() < SaveState::kStaged && absl::IsDeadlineExceeded(status)) {
      return absl::DeadlineExceededError(absl::StrCat("save ", save->progress()->id(),
                                                      " still reads the tensors after ",
                                                      absl::FormatDuration(timeout)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadHandle> SessionCore::Load(const std::string& id,
                                             std::vector<TensorTarget> targets,
                                             const LoadOptions& options) {
  if (!id.empty()) RETURN_IF_ERROR(CheckText("checkpoint id", id));
  RETURN_IF_ERROR(CheckTargets(targets));
  ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                   link_->Wait(options_.daemon_lost_timeout));
  Reap();
  auto run = std::make_shared<LoadRun>(std::move(connection), id, std::move(targets), options,
                                       guard_, pool_);
  std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  absl::StatusOr<std::thread> thread = StartThread([run] { run->Run(); });
  if (!thread.ok()) {
    return WithContext(thread.status(), absl::StrCat("load ", id.empty() ? "latest" : id));
  }
  loads_.push_back({run, *std::move(thread)});
  return LoadHandle(run->progress(), [weak = std::weak_ptr<LoadRun>(run)] {
    if (std::shared_ptr<LoadRun> alive = weak.lock()) alive->Cancel();
  });
}

absl::StatusOr<std::optional<CheckpointInfo>> SessionCore::Latest() {
  ASSIGN_OR_RETURN(std::shared_ptr<Connection> connection,
                   link_->Wait(options_.daemon_lost_timeout));
  Connection::Call call(connection);
  v1::LatestRequest request;
  request.set_job(identity_.job);
  request.set_root(connection->root());
  v1::Checkpoint reply;
  absl::Status status;
  {
    const Connection::Call::Limit limit(call, options_.client.timeout);
    status = FromGrpc(connection->stub().Latest(&call.context(), request, &reply));
  }
  if (call.stalled()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no answer from ckptd in ", absl::FormatDuration(options_.client.timeout)));
  }
  if (absl::IsNotFound(status)) return std::nullopt;
  RETURN_IF_ERROR(status);
  return FromProto(reply);
}

absl::Status SessionCore::AwaitSaves(CloseMode mode, absl::Duration timeout) const {
  const absl::Duration deadline = Now() + timeout;
  absl::Status result;
  for (const std::shared_ptr<SaveRun>& save : Saves()) {
    SaveProgress& progress = *save->progress();
    const bool goes_on = mode == CloseMode::kDetach && progress.state() >= SaveState::kStaged;
    if (mode != CloseMode::kWait && !goes_on && !progress.ended()) save->Cancel();
  }
  for (const std::shared_ptr<SaveRun>& save : Saves()) {
    SaveProgress& progress = *save->progress();
    const bool goes_on = mode == CloseMode::kDetach && progress.state() >= SaveState::kStaged;
    if (goes_on) continue;
    const absl::Status status =
        progress.Wait(SaveState::kCommitted, std::max(deadline - Now(), absl::ZeroDuration()));
    if (absl::IsDeadlineExceeded(status) && !progress.ended()) {
      result.Update(absl::DeadlineExceededError(
          absl::StrCat("closed after ", absl::FormatDuration(timeout), ": save ", progress.id(),
                       " is only ", SaveStateName(progress.state()))));
    }
  }
  return result;
}

absl::Status SessionCore::Close(CloseMode mode, absl::Duration timeout) {
  const absl::Duration deadline = Now() + timeout;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return absl::OkStatus();
    closed_ = true;
  }
  const absl::Status status = AwaitSaves(mode, timeout);
  if (std::shared_ptr<Connection> connection = link_->current()) {
    Connection::Call call(connection);
    const Connection::Call::Limit limit(call, std::max(deadline - Now(), kCallMin));
    v1::CloseSessionReply reply;
    // If it fails, the daemon sees the end of this connection.
    connection->stub().CloseSession(&call.context(), {}, &reply).ok();
  }
  link_->Stop();
  JoinAll();
  return status;
}

std::span<std::byte> SessionCore::LastSealedBlock() {
  std::vector<std::shared_ptr<SaveRun>> saves = Saves();
  for (auto save = saves.rbegin(); save != saves.rend(); ++save) {
    if (std::span<std::byte> block = (*save)->LastSealedBlock(); !block.empty()) return block;
  }
  return {};
}

}  // namespace ckptd::inline client
