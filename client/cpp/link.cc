#include "client/cpp/link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/rpc_channel.h"
#include "client/cpp/start_thread.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

constexpr absl::Duration kPauseMin = absl::Milliseconds(50);
constexpr absl::Duration kPauseMax = absl::Seconds(1);
// The least that the first daemon gets to answer, and one that the session comes back to.
constexpr absl::Duration kAnswerMin = absl::Milliseconds(100);
constexpr absl::Duration kReconnectMin = absl::Seconds(1);
constexpr int kWatchMs = 200;  // How often stalled calls are looked for.

}  // namespace

Link::Link(Options options, ForkGuard& guard)
    : options_(std::move(options)), guard_(guard), wake_(eventfd(0, EFD_CLOEXEC)) {
  guard_.Add(wake_.get());
}

absl::StatusOr<std::unique_ptr<Link>> Link::Open(Options options, ForkGuard& guard) {
  auto link = std::unique_ptr<Link>(new Link(std::move(options), guard));
  if (!link->wake_.valid()) return ErrnoStatus(errno, "eventfd");
  ASSIGN_OR_RETURN(link->current_, link->Connect(link->options_.timeout, kAnswerMin));
  link->daemon_id_ = link->current_->daemon_id();
  ASSIGN_OR_RETURN(link->thread_, StartThread([raw = link.get()] { raw->Run(); }));
  return link;
}

Link::~Link() {
  Stop();
  guard_.Forget(wake_.get());
}

absl::StatusOr<std::shared_ptr<Connection>> Link::Connect(absl::Duration timeout,
                                                          absl::Duration answer_min) {
  std::shared_ptr<Connection> connection;
  RETURN_IF_ERROR(TryCandidates(
      options_.candidates, timeout, answer_min,
      [&](const SocketCandidate& candidate, absl::Duration left) -> absl::Status {
        ASSIGN_OR_RETURN(connection, Connection::Open(candidate, options_.identity, options_.root,
                                                      left, wake_.get(), guard_));
        return absl::OkStatus();
      }));
  return connection;
}

std::shared_ptr<Connection> Link::current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

absl::StatusOr<std::shared_ptr<Connection>> Link::Wait(absl::Duration timeout) const {
  std::unique_lock lock(mutex_);
  const auto deadline =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::min<absl::Duration>(timeout, absl::Hours(24 * 365)));
  changed_.wait_until(lock, deadline, [&] { return stopped_ || current_ != nullptr; });
  if (stopped_) return absl::CancelledError("the session is closed");
  if (current_ != nullptr) return current_;
  return absl::UnavailableError(absl::StrCat(
      "the daemon has been away for ", absl::FormatDuration(timeout), ": ", last_error_.message()));
}

void Link::Distrust(const std::shared_ptr<Connection>& connection) {
  // The watcher sees it and does the rest.
  shutdown(connection->side().fd(), SHUT_RDWR);
}

void Link::Stop() {
  std::shared_ptr<Connection> connection;
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    connection = current_;
  }
  changed_.notify_all();
  eventfd_write(wake_.get(), 1);
  if (connection != nullptr) connection->Lose();
  if (thread_.joinable()) thread_.join();
}

bool Link::stopped() const {
  std::lock_guard lock(mutex_);
  return stopped_;
}

// False if the link was stopped.
bool Link::WatchUntilLost(Connection& connection) {
  for (;;) {
    pollfd entries[] = {{wake_.get(), POLLIN, 0},
                        {connection.side().fd(), POLLRDHUP, 0},
                        {connection.rpc_fd(), POLLRDHUP, 0}};
    const int ready = poll(entries, 3, kWatchMs);
    if (ready < 0 && errno != EINTR) return true;
    if (ready > 0 && entries[0].revents != 0) return false;
    if (ready > 0) return true;
    connection.CancelStalled();
  }
}

bool Link::PauseUnlessStopped(absl::Duration pause) const {
  pollfd entry = {wake_.get(), POLLIN, 0};
  // A signal that the trainer handles only shortens the pause.
  return poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(pause))) <= 0;
}

void Link::Run() {
  for (;;) {
    std::shared_ptr<Connection> connection = current();
    if (!WatchUntilLost(*connection)) return;
    {
      std::lock_guard lock(mutex_);
      current_ = nullptr;
      last_error_ = absl::UnavailableError("the connection broke");
    }
    connection->Lose();
    connection = nullptr;
    if (options_.on_change) options_.on_change(true, "the daemon closed the connection");
    absl::Duration pause = kPauseMin;
    for (;;) {
      if (!PauseUnlessStopped(pause)) return;
      pause = std::min(2 * pause, kPauseMax);
      absl::StatusOr<std::shared_ptr<Connection>> next =
          Connect(absl::ZeroDuration(), std::max(options_.timeout, kReconnectMin));
      if (!next.ok()) {
        std::lock_guard lock(mutex_);
        last_error_ = next.status();
        continue;
      }
      if (options_.on_connect) options_.on_connect(**next, (*next)->daemon_id() == daemon_id_);
      std::lock_guard lock(mutex_);
      daemon_id_ = (*next)->daemon_id();
      current_ = *std::move(next);
      break;
    }
    changed_.notify_all();
    if (stopped()) return current()->Lose();
    if (options_.on_change) options_.on_change(false, "");
  }
}

}  // namespace ckptd::inline client
