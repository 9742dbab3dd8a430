#include "server/core.h"

#include <sys/random.h>

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

// How long the failures of a drain that timed out may take to be written.
constexpr absl::Duration kAbortGrace = absl::Seconds(5);

void FillRandom(void* bytes, size_t count) {
  CKPT_CHECK(getrandom(bytes, count, 0) == static_cast<ssize_t>(count),
             "the kernel gives random bytes");
}

uint64_t Random64() {
  uint64_t value;
  FillRandom(&value, sizeof value);
  return value;
}

const char* SessionEndName(SessionEnd end) {
  switch (end) {
    case SessionEnd::kDead:
      return "died";
    case SessionEnd::kLost:
      return "connection lost";
    case SessionEnd::kClosed:
      return "closed";
  }
  return "";
}

}  // namespace

std::string RandomToken() {
  char bytes[16];
  FillRandom(bytes, sizeof bytes);
  return absl::BytesToHexString(absl::string_view(bytes, sizeof bytes));
}

Core::Core(Options options, Logger& logger)
    : options_(std::move(options)),
      logger_(logger),
      loop_(SystemClock()),
      started_(SystemClock().Monotonic()),
      roots_(loop_, options_.roots,
             {.node = options_.config.node,
              .patience = options_.root_patience,
              .on_point = options_.on_point,
              .on_started = [this](const RootStart& start) { OnRootStarted(start); },
              .on_late =
                  [this](const std::string& label, const std::string& reason) {
                    logger_.Warning("root.late", {{"root", label}, {"why", reason}});
                  }}),
      arenas_(loop_, {.block_bytes = options_.config.block_bytes,
                      .limit_bytes = options_.arena_limit_bytes,
                      .huge_pages = options_.config.huge_pages != Choice::kOff,
                      .touch_threads = 2,
                      .on_block_free = [this](const std::string& job,
                                              uint32_t rank) { attempts_.BlockFree(job, rank); },
                      .on_no_memory =
                          [this](const std::string& job, uint32_t rank, const Arena& arena) {
                            attempts_.NoMemory(job, rank, arena);
                          }}),
      context_{
          .loop = loop_,
          .arenas = arenas_,
          .node = options_.config.node,
          .join_timeout = options_.config.join_timeout,
          .attempt_timeout = options_.config.attempt_timeout,
          .reattach_timeout = options_.config.reattach_timeout,
          .recheck_every = options_.config.recheck_every,
          .random = Random64,
          .on_point = options_.on_point,
          .on_event = [this](absl::string_view event, const Attempt& attempt,
                             std::optional<uint32_t> rank) { LogAttempt(event, attempt, rank); },
          .on_change = nullptr,
          .reserved = nullptr,
          .keep_last = options_.config.keep_last,
          .on_committed =
              [this](const std::shared_ptr<Root>& root, const Attempt& attempt) {
                tidier_.Committed(root, {.job = attempt.record().job,
                                         .keep_last = attempt.keep_last(),
                                         .replace = attempt.record().replace,
                                         .bytes = attempt.planned_bytes()});
              },
          .make_room =
              [this](const std::shared_ptr<Root>& root, uint64_t bytes,
                     std::function<void()> done) {
                tidier_.trash().MakeRoom(root, bytes, std::move(done));
              },
          .on_left =
              [this](const std::string& job, const AttemptName& attempt, const absl::Status& why) {
                logger_.Warning("failed.left", {{"job", job},
                                                {"attempt", ToString(attempt)},
                                                {"error", std::string(why.message())}});
              }},
      attempts_(context_, {.max_inflight_attempts = options_.config.max_inflight_attempts,
                           .admit_timeout = options_.config.admit_timeout}),
      sessions_(loop_, {.peer_lost_timeout = options_.config.peer_lost_timeout,
                        .on_end = [this](const Session& session,
                                         SessionEnd end) { OnSessionEnd(session, end); },
                        .new_token = RandomToken}),
      loads_(loop_, attempts_,
             {.node = options_.config.node,
              .block_bytes = options_.config.block_bytes,
              .window_bytes = options_.config.read_window_bytes,
              .huge_pages = options_.config.huge_pages != Choice::kOff,
              .on_point = options_.on_point,
              .on_let_go = [this] { tidier_.trash().Sweep(); }}),
      tidier_(loop_, logger_, options_.config.trash_grace,
              [this](const Root& root, const std::string& job, const AttemptName& attempt) {
                return loads_.Reads(root, job, attempt);
              }) {}

Core::~Core() {
  StopWriting();
  loop_.Stop();
  roots_.Stop();
}

// A transfer that ends reports to the loop: none may outlive it.
void Core::StopWriting() {
  constexpr absl::Duration kPoll = absl::Milliseconds(1);
  for (bool idle = false; !idle;) {
    std::promise<bool> answer;
    loop_.Post([this, &answer] { answer.set_value(attempts_.StopWriting()); });
    idle = answer.get_future().get();
    if (!idle) absl::SleepFor(kPoll);
  }
}

void Core::Point(absl::string_view name) const {
  if (options_.on_point) options_.on_point(name);
}

absl::StatusOr<const Session*> Core::OpenSession(SessionInfo info, uint64_t connection) {
  if (draining_) return absl::UnavailableError("the daemon is stopping");
  RETURN_IF_ERROR(CheckName("job name", info.job));
  if (info.world_size == 0 || info.rank >= info.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", info.rank, " does not exist in a world of ", info.world_size));
  }
  if (info.world_size > kWorldSizeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a world size of ", info.world_size, ", at most ", kWorldSizeMax));
  }
  ASSIGN_OR_RETURN(info.root, roots_.Label(info.root));
  ASSIGN_OR_RETURN(const Session* session, sessions_.Open(info, connection));
  arenas_.Claim(info.job, info.rank);
  attempts_.SessionOpened(*session, [&](const std::string& incarnation) {
    return std::any_of(sessions_.all().begin(), sessions_.all().end(), [&](const auto& entry) {
      return entry.second.info.job == info.job && entry.second.info.incarnation == incarnation;
    });
  });
  logger_.Info("session.opened",
               {{"job", info.job}, {"rank", info.rank}, {"pid", info.pid}, {"root", info.root}});
  Point("session-opened");
  return session;
}

void Core::OnSessionEnd(const Session& session, SessionEnd end) {
  const SessionInfo& info = session.info;
  logger_.Info(
      end == SessionEnd::kClosed ? "session.closed" : "session.lost",
      {{"job", info.job}, {"rank", info.rank}, {"pid", info.pid}, {"why", SessionEndName(end)}});
  attempts_.SessionEnded(session, end);
  bool last = std::none_of(sessions_.all().begin(), sessions_.all().end(), [&](const auto& entry) {
    return entry.second.info.job == info.job && entry.second.info.incarnation == info.incarnation;
  });
  if (last) loads_.Forget(info.job, info.incarnation);
  if (end == SessionEnd::kDead) {
    arenas_.Orphan(info.job, info.rank);  // Its successor finds the last image there.
  } else {
    arenas_.Drop(info.job,
                 info.rank);  // Nobody needs it, or a living process may still write to it.
  }
}

void Core::LogAttempt(absl::string_view event, const Attempt& attempt,
                      std::optional<uint32_t> rank) {
  const AttemptRecord& record = attempt.record();
  std::string name = attempt.minted() ? ToString(record.attempt) : "";
  if (event == "attempt.failed") {
    const Failure& failure = attempt.failure();
    logger_.Warning(event, {{"job", record.job},
                            {"id", record.checkpoint_id},
                            {"attempt", name},
                            {"step", record.step},
                            {"phase", failure.phase},
                            {"rank", failure.rank ? absl::StrCat(*failure.rank) : ""},
                            {"code", CodeName(failure.status.code())},
                            {"error", std::string(failure.status.message())}});
  } else if (rank) {
    logger_.Debug(
        event,
        {{"job", record.job}, {"id", record.checkpoint_id}, {"attempt", name}, {"rank", *rank}});
  } else {
    logger_.Info(event, {{"job", record.job},
                         {"id", record.checkpoint_id},
                         {"attempt", name},
                         {"step", record.step}});
  }
}

absl::Status Core::StartRoots() { return roots_.Start(); }

void Core::OnRootStarted(const RootStart& start) {
  absl::Status status = start.opened;
  status.Update(start.recovered);
  const std::string& label = start.label;
  if (status.ok()) {
    logger_.Info("root.usable", {{"root", label}});
  } else {
    logger_.Error("root.unhealthy", {{"root", label}, {"error", std::string(status.message())}});
  }
  if (start.root == nullptr) return;
  for (const Manifest& manifest : start.committed) {
    logger_.Info("attempt.committed", {{"job", manifest.job},
                                       {"id", manifest.checkpoint_id},
                                       {"attempt", ToString(manifest.attempt)},
                                       {"by", "recovery"}});
  }
  for (const auto& [record, failure] : start.unknown) {
    start.root->SetUnhealthy(absl::StrCat("the outcome of attempt ", ToString(record.attempt),
                                          " of job \"", record.job,
                                          "\" is unknown: ", failure.status.message()));
  }
  for (const Outcome& outcome : start.failures) attempts_.AddFailure(outcome);
  // Ranks may have been faster than their root.
  for (const auto& [token, session] : sessions_.all()) {
    if (session.info.root == label)
      arenas_.AttachAdopted(session.info.job, session.info.rank, *start.root);
  }
  if (draining_ || !status.ok()) return;  // The next start's.
  tidier_.RootStarted(start.root);
  for (const AttemptRecord& record : start.waiting) {
    logger_.Info("attempt.found", {{"job", record.job},
                                   {"id", record.checkpoint_id},
                                   {"attempt", ToString(record.attempt)},
                                   {"state", "waiting for its ranks"}});
    attempts_.Restore(start.root, record);
  }
}

void Core::Drain(std::function<void()> done) {
  draining_ = true;
  logger_.Info("daemon.draining", {{"in_flight", attempts_.in_flight().size()}});
  auto once = std::make_shared<std::function<void()>>(std::move(done));
  auto tell = [once] {
    if (*once) std::exchange(*once, nullptr)();
  };
  loop_.After(options_.config.drain_timeout, [this, tell] {
    attempts_.FailAll(
        absl::UnavailableError("the daemon was stopped before the save was complete"));
    // A root that hangs would keep the failures from being written for ever.
    loop_.After(kAbortGrace, [this, tell] {
      for (const std::shared_ptr<Attempt>& attempt : attempts_.in_flight()) {
        logger_.Warning("attempt.left",
                        {{"job", attempt->record().job},
                         {"id", attempt->record().checkpoint_id},
                         {"attempt", ToString(attempt->record().attempt)},
                         {"why", "storage does not answer; the next start decides"}});
      }
      tell();
    });
  });
  attempts_.Drain(tell);
}

}  // namespace ckptd
