#include "client/cpp/connection.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/rpc_channel.h"
#include "proto/ckptd/default_paths.h"
#include "proto/ckptd/version.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

absl::Duration Now() { return SystemClock().Monotonic(); }

// A refusal that says so is better than a missing descriptor; the daemon decides what it makes of
// none.
UniqueFd OwnPidFd() { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }

}  // namespace

Connection::Call::Call(std::shared_ptr<Connection> connection)
    : connection_(std::move(connection)) {
  context_.AddMetadata(kTokenMetadataKey, connection_->token());
  std::lock_guard lock(connection_->mutex_);
  connection_->calls_.push_back(this);
  if (connection_->lost_) context_.TryCancel();
}

Connection::Call::~Call() {
  std::lock_guard lock(connection_->mutex_);
  std::erase(connection_->calls_, this);
}

Connection::Call::Limit::Limit(Call& call, absl::Duration timeout) : call_(call) {
  std::lock_guard lock(call_.connection_->mutex_);
  if (call_.stalled_) timeout = std::min(timeout, kCancelTimeout);
  call_.deadline_ = Now() + timeout;
}

Connection::Call::Limit::~Limit() {
  std::lock_guard lock(call_.connection_->mutex_);
  call_.deadline_ = absl::InfiniteDuration();
}

bool Connection::Call::stalled() const {
  std::lock_guard lock(connection_->mutex_);
  return stalled_;
}

absl::StatusOr<std::shared_ptr<Connection>> Connection::Open(const SocketCandidate& candidate,
                                                             const Identity& identity,
                                                             const std::string& root,
                                                             absl::Duration timeout, int stop_fd,
                                                             ForkGuard& guard) {
  ASSIGN_OR_RETURN(std::unique_ptr<SideChannel> side,
                   SideChannel::Connect(SideSocketPath(candidate.path), stop_fd, guard));
  v1::SideRequest request;
  v1::Hello* hello = request.mutable_hello();
  hello->set_protocol(kProtocolVersion);
  hello->set_version(kVersion);
  hello->set_job(identity.job);
  hello->set_rank(identity.rank);
  hello->set_world_size(identity.world_size);
  hello->set_incarnation(identity.incarnation);
  hello->set_root(root);
  const UniqueFd process = OwnPidFd();
  if (!process.valid()) return ErrnoStatus(errno, "pidfd_open of this process");
  ASSIGN_OR_RETURN(SideChannel::Reply reply, side->Call(request, process.get(), timeout));
  if (!reply.message.has_welcome()) return absl::InternalError("ckptd answers hello with another");
  if (reply.message.welcome().protocol() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("ckptd ", reply.message.welcome().version(), " speaks protocol ",
                     reply.message.welcome().protocol(), ", this client ", kVersion, " protocol ",
                     kProtocolVersion));
  }
  guard.AddPeer(candidate.path);
  ASSIGN_OR_RETURN(UniqueFd rpc_socket, ConnectSocket(candidate.path));
  UniqueFd duplicate(fcntl(rpc_socket.get(), F_DUPFD_CLOEXEC, 0));
  if (!duplicate.valid()) return ErrnoStatus(errno, "a descriptor for the connection to ckptd");
  return std::shared_ptr<Connection>(
      new Connection(candidate.path, std::move(side), std::move(*reply.message.mutable_welcome()),
                     std::move(rpc_socket), std::move(duplicate), guard));
}

Connection::Connection(std::string socket, std::unique_ptr<SideChannel> side, v1::Welcome welcome,
                       UniqueFd rpc_socket, UniqueFd duplicate, ForkGuard& guard)
    : guard_(guard),
      socket_(std::move(socket)),
      side_(std::move(side)),
      rpc_socket_(std::move(duplicate)),
      welcome_(std::move(welcome)),
      stub_(v1::CheckpointService::NewStub(AdoptSocket(std::move(rpc_socket)))) {
  guard_.Add(rpc_socket_.get());
}

Connection::~Connection() { guard_.Forget(rpc_socket_.get()); }

void Connection::Lose() {
  std::lock_guard lock(mutex_);
  lost_ = true;
  shutdown(side_->fd(), SHUT_RDWR);  // Who waits for an answer there waits no longer.
  for (Call* call : calls_) call->context_.TryCancel();
  shutdown(rpc_socket_.get(), SHUT_RDWR);
}

void Connection::CancelStalled() {
  std::lock_guard lock(mutex_);
  const absl::Duration now = Now();
  for (Call* call : calls_) {
    if (now < call->deadline_) continue;
    if (call->stalled_) shutdown(rpc_socket_.get(), SHUT_RDWR);
    call->stalled_ = true;
    call->deadline_ = now + kCancelTimeout;
    call->context_.TryCancel();
  }
}

}  // namespace ckptd::inline client
