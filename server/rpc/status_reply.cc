#include "server/rpc/status_reply.h"

#include <unistd.h>

#include "proto/ckptd/convert.h"
#include "proto/ckptd/version.h"

namespace ckptd {

v1::Attempt ToProto(const Attempt& attempt) {
  v1::Attempt message = ToProto(attempt.MakeOutcome());
  message.set_state(attempt.StateName());
  if (!attempt.minted()) {
    message.clear_attempt();
    message.clear_sequence();
    message.clear_begun_unix_ns();
  }
  if (attempt.state() != Attempt::State::kEnded) message.clear_ended_unix_ns();
  if (attempt.failure().status.ok()) message.clear_error();
  message.clear_ranks_missing();
  for (uint32_t rank : attempt.MissingRanks()) message.add_ranks_missing(rank);
  return message;
}

v1::Attempt AttemptOf(const v1::Checkpoint& checkpoint) {
  v1::Attempt attempt;
  attempt.set_job(checkpoint.job());
  attempt.set_checkpoint_id(checkpoint.id());
  attempt.set_step(checkpoint.step());
  attempt.set_sequence(checkpoint.sequence());
  attempt.set_attempt(checkpoint.attempt());
  attempt.set_world_size(checkpoint.world_size());
  attempt.set_root(checkpoint.root());
  attempt.set_state("committed");
  attempt.set_planned_bytes(checkpoint.bytes());
  attempt.set_staged_bytes(checkpoint.bytes());
  attempt.set_written_bytes(checkpoint.bytes());
  attempt.set_begun_unix_ns(checkpoint.begun_unix_ns());
  attempt.set_ended_unix_ns(checkpoint.committed_unix_ns());
  return attempt;
}

namespace {

void AddDaemon(const Core& core, v1::DaemonStatus& daemon) {
  daemon.set_version(kVersion);
  daemon.set_pid(getpid());
  daemon.set_uid(geteuid());
  daemon.set_node(core.config().node);
  daemon.set_socket(core.config().socket);
  daemon.set_uptime_s(absl::ToDoubleSeconds(core.uptime()));
  daemon.set_state(core.draining() ? "draining" : "serving");
}

void AddRoot(const Roots::State& state, v1::RootStatus& message) {
  message.set_label(state.label);
  message.set_path(state.path);
  message.set_reason(state.reason);
  message.set_state("unhealthy");
  if (state.root == nullptr) return;
  Root& root = *state.root;
  if (state.reason.empty()) {
    message.set_reason(root.healthy() ? root.space_warning() : root.unhealthy_reason());
    message.set_state(root.healthy() ? "ok" : "unhealthy");
  }
  DiskFacts facts = root.disk().Facts();
  message.set_file_system(facts.file_system);
  if (root.free_bytes()) message.set_free_bytes(*root.free_bytes());
  message.set_io(facts.engine);
  message.set_io_reason(facts.engine_reason);
  message.set_direct(facts.direct);
  message.set_fixed_buffers(facts.fixed_buffers);
}

}  // namespace

v1::StatusReply MakeStatus(Core& core) {
  v1::StatusReply reply;
  AddDaemon(core, *reply.mutable_daemon());
  reply.mutable_memory()->set_arena_bytes(core.arenas().bytes());
  reply.mutable_memory()->set_arena_limit_bytes(core.arenas().limit_bytes());
  reply.mutable_memory()->set_huge_pages(core.arenas().huge_pages());
  for (const std::string& warning : core.arenas().warnings())
    reply.mutable_memory()->add_warnings(warning);
  for (const Roots::State& state : core.roots().states()) AddRoot(state, *reply.add_roots());
  for (const auto& [token, session] : core.sessions().all()) {
    v1::SessionStatus& message = *reply.add_sessions();
    message.set_job(session.info.job);
    message.set_incarnation(session.info.incarnation);
    message.set_rank(session.info.rank);
    message.set_world_size(session.info.world_size);
    message.set_pid(session.info.pid);
    message.set_arena_bytes(core.arenas().BytesOf(session.info.job, session.info.rank));
    message.set_state(session.state == Session::State::kAlive ? "alive" : "lost");
  }
  for (const std::shared_ptr<Attempt>& attempt : core.attempts().in_flight())
    *reply.add_attempts() = ToProto(*attempt);
  for (const Loads::Progress& load : core.loads().Status()) {
    v1::LoadStatus& message = *reply.add_loads();
    message.set_job(load.job);
    message.set_id(load.id);
    message.set_rank(load.rank);
    message.set_total_bytes(load.total_bytes);
    message.set_done_bytes(load.done_bytes);
  }
  for (const auto& [job, failures] : core.attempts().failures()) {
    for (const Outcome& outcome : failures) *reply.add_failures() = ToProto(outcome);
  }
  return reply;
}

}  // namespace ckptd
