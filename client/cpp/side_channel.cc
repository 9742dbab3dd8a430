#include "client/cpp/side_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

// A daemon that reads nothing keeps sendmsg() no longer than that, once its buffer is full.
constexpr time_t kSendSeconds = 1;

absl::Status Gone(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("the side socket of ckptd: ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SideChannel>> SideChannel::Connect(const std::string& path,
                                                                  int stop_fd, ForkGuard& guard) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is too long for a socket"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EACCES || errno == EPERM) return ErrnoStatus(errno, path);
    if (errno == EAGAIN) return absl::UnavailableError("the daemon accepts no connection");
    return absl::UnavailableError(strerror(errno));
  }
  fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
  const timeval limit = {.tv_sec = kSendSeconds, .tv_usec = 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  return std::make_unique<SideChannel>(std::move(socket), stop_fd, guard);
}

SideChannel::SideChannel(UniqueFd socket, int stop_fd, ForkGuard& guard)
    : guard_(guard), socket_(std::move(socket)), stop_fd_(stop_fd) {
  guard_.Add(socket_.get());
}

SideChannel::~SideChannel() { guard_.Forget(socket_.get()); }

absl::Status SideChannel::Send(const v1::SideRequest& request, int fd) {
  std::string packet = request.SerializeAsString();
  if (packet.size() > kSidePacketBytesMax) {
    return absl::InvalidArgumentError("a request that does not fit into a side socket's packet");
  }
  iovec part = {packet.data(), packet.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? Gone(strerror(errno)) : absl::OkStatus();
}

absl::StatusOr<SideChannel::Reply> SideChannel::Receive(absl::Duration timeout) {
  // The trainer may handle signals in this thread.
  const absl::Duration deadline = SystemClock().Monotonic() + timeout;
  pollfd entries[] = {{socket_.get(), POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  int ready;
  do {
    const absl::Duration left =
        std::max(deadline - SystemClock().Monotonic(), absl::ZeroDuration());
    ready = poll(entries, 2, static_cast<int>(absl::ToInt64Milliseconds(left)));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) return Gone(strerror(errno));
  if (entries[1].revents != 0) return Gone("the session is closed");
  if (ready == 0) return Gone(absl::StrCat("no answer in ", absl::FormatDuration(timeout)));
  std::vector<char> packet(kSidePacketBytesMax);
  iovec part = {packet.data(), packet.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t bytes;
  do {
    bytes = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return Gone(strerror(errno));
  Reply reply;
  if (cmsghdr* header = CMSG_FIRSTHDR(&message);
      header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    reply.fd = UniqueFd(fd);
  }
  if (bytes == 0) return Gone("the daemon closed it");
  if (!reply.message.ParseFromArray(packet.data(), static_cast<int>(bytes))) {
    return Gone("an answer that is none");
  }
  return reply;
}

absl::StatusOr<SideChannel::Reply> SideChannel::Exchange(const v1::SideRequest& request, int fd,
                                                         absl::Duration timeout) {
  RETURN_IF_ERROR(Send(request, fd));
  return Receive(timeout);
}

absl::StatusOr<SideChannel::Reply> SideChannel::Call(const v1::SideRequest& request, int fd,
                                                     absl::Duration timeout) {
  std::lock_guard lock(mutex_);
  absl::StatusOr<Reply> reply = Exchange(request, fd, timeout);
  if (!reply.ok()) {
    // A late answer would be taken for the next call's.
    shutdown(socket_.get(), SHUT_RDWR);
    return reply;
  }
  if (!reply->message.has_error()) return reply;
  absl::StatusCode code = CodeFromName(reply->message.error().code());
  if (code == absl::StatusCode::kOk) code = absl::StatusCode::kInternal;
  return absl::Status(code, reply->message.error().message());
}

}  // namespace ckptd::inline client
