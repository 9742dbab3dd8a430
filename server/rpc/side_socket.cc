#include "server/rpc/side_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <future>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/ckptd/version.h"
#include "server/rpc/error_text.h"
#include "storage/base/status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; glibc 2.36 does not name it yet.
#endif

namespace ckptd {
namespace {

constexpr size_t kPacketBytesMax = 64 << 10;
constexpr uint64_t kListenerTag = 0;
constexpr uint64_t kWakeTag = ~uint64_t{0};
constexpr std::chrono::seconds kLoopPatience(1);
constexpr uint64_t kPidfdBit = uint64_t{1} << 63;

// The umask of a process, from its status file; 022 if it cannot be seen.
uint32_t UmaskOf(int64_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "Umask:")) {
      return static_cast<uint32_t>(std::strtoul(std::string(text).c_str(), nullptr, 8));
    }
  }
  return 022;
}

struct Packet {
  std::string bytes;
  UniqueFd fd;
};

// nullopt at the end of the connection.
std::optional<Packet> ReceivePacket(int socket) {
  Packet packet;
  packet.bytes.resize(kPacketBytesMax);
  iovec io{packet.bytes.data(), packet.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 4)];
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (count < 0) return std::nullopt;
  packet.bytes.resize(static_cast<size_t>(count));
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    size_t fds = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < fds; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      UniqueFd owned(fd);
      if (i == 0) packet.fd = std::move(owned);  // Others are closed.
    }
  }
  if (count == 0)
    return std::nullopt;  // An empty packet is the end too; its descriptors are closed.
  return packet;
}

void SendPacket(int socket, const std::string& bytes, int fd) {
  iovec io{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  // A client that is gone or does not read gets nothing: its end is seen by its descriptor.
  (void)sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SideSocket>> SideSocket::Listen(Core& core,
                                                               const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path of ", path.size(), " bytes: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return ErrnoStatus(errno, "socket");
  unlink(path.c_str());
  mode_t before = umask(0177);
  int bound = bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  int error = errno;
  umask(before);
  if (bound != 0) return ErrnoStatus(error, absl::StrCat("bind ", path));
  if (listen(listener.get(), SOMAXCONN) != 0)
    return ErrnoStatus(errno, absl::StrCat("listen ", path));
  return std::unique_ptr<SideSocket>(new SideSocket(core, path, std::move(listener)));
}

SideSocket::SideSocket(Core& core, std::string path, UniqueFd listener)
    : core_(core),
      path_(std::move(path)),
      daemon_id_(RandomToken()),
      listener_(std::move(listener)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {
  core_.loop().Post([this] {
    core_.sessions().OnRelease([this](uint64_t id) {
      Queue({id, v1::SideReply(), UniqueFd(), true});
    });
  });
}

SideSocket::~SideSocket() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
  // What was posted to the loop uses this; a loop that hangs in its last hour is not waited for.
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ran = done->get_future();
  core_.loop().Post([&core = core_, done] {
    core.sessions().OnRelease(nullptr);
    done->set_value();
  });
  ran.wait_for(kLoopPatience);
  unlink(path_.c_str());
}

void SideSocket::Watch(int fd, uint64_t id, bool pidfd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = pidfd ? id | kPidfdBit : id;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void SideSocket::Run() {
  Watch(listener_.get(), kListenerTag, false);
  Watch(wake_.get(), kWakeTag, false);
  while (true) {
    epoll_event events[64];
    int count = epoll_wait(epoll_.get(), events, 64, -1);
    for (int i = 0; i < count; ++i) {
      uint64_t tag = events[i].data.u64;
      if (tag == kWakeTag) {
        eventfd_t value;
        eventfd_read(wake_.get(), &value);
        SendQueued();
      } else if (tag == kListenerTag) {
        Accept();
      } else if ((tag & kPidfdBit) != 0) {
        Died(tag & ~kPidfdBit);
      } else {
        Receive(tag);
      }
    }
    std::lock_guard lock(mutex_);
    if (stopping_) return;
  }
}

void SideSocket::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE) usleep(100'000);  // It is asked again at once.
    return;
  }
  uint64_t id = next_id_++;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return;
  Connection connection;
  connection.pid = peer.pid;
  if (peer.uid != geteuid()) {
    v1::SideReply reply;
    reply.mutable_error()->set_code("PERMISSION_DENIED");
    reply.mutable_error()->set_message(
        absl::StrCat("the client runs as uid ", peer.uid, ", this daemon serves uid ", geteuid()));
    SendPacket(fd.get(), reply.SerializeAsString(), -1);
    return;
  }
  int pidfd = -1;
  size = sizeof pidfd;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
    connection.pidfd = UniqueFd(pidfd);
  Watch(fd.get(), id, false);
  connection.fd = std::move(fd);
  connections_[id] = std::move(connection);
}

void SideSocket::Receive(uint64_t id) {
  auto found = connections_.find(id);
  if (found == connections_.end() || !found->second.open) return;
  std::optional<Packet> packet = ReceivePacket(found->second.fd.get());
  if (!packet) return Closed(id);
  v1::SideRequest request;
  if (!request.ParseFromString(packet->bytes)) {
    return ReplyError(id, absl::InvalidArgumentError("a packet that is no request"));
  }
  Handle(id, found->second, request, std::move(packet->fd));
}

void SideSocket::Handle(uint64_t id, Connection& connection, const v1::SideRequest& request,
                        UniqueFd fd) {
  if (request.has_hello()) return HandleHello(id, connection, request.hello(), std::move(fd));
  if (!connection.greeted)
    return ReplyError(id, absl::FailedPreconditionError("hello comes first"));
  if (request.has_offer_arena()) {
    if (!fd.valid())
      return ReplyError(id, absl::InvalidArgumentError("an arena is offered with its descriptor"));
    core_.loop().Post([this, id, offer = request.offer_arena(), fd = std::move(fd)]() mutable {
      OfferArena(id, offer, std::move(fd));
    });
  } else if (request.has_get_arena()) {
    core_.loop().Post([this, id] { GetArena(id); });
  } else if (request.has_get_window()) {
    core_.loop().Post([this, id, load = request.get_window().load_id()] { GetWindow(id, load); });
  } else {
    ReplyError(id, absl::InvalidArgumentError("a request that this daemon does not know"));
  }
}

void SideSocket::HandleHello(uint64_t id, Connection& connection, const v1::Hello& hello,
                             UniqueFd fd) {
  if (connection.greeted) return ReplyError(id, absl::FailedPreconditionError("hello comes once"));
  if (hello.protocol() != kProtocolVersion) {
    return ReplyError(id,
                      absl::FailedPreconditionError(absl::StrCat(
                          "the client (", hello.version(), ") speaks protocol ", hello.protocol(),
                          ", this daemon (", kVersion, ") speaks ", kProtocolVersion)));
  }
  if (!connection.pidfd.valid()) connection.pidfd = std::move(fd);
  if (!connection.pidfd.valid()) {
    return ReplyError(id, absl::InvalidArgumentError("hello comes with a pidfd on this kernel"));
  }
  // A predecessor that is dead by now must be known as dead before its successor is looked at.
  PollDeaths();
  connection.greeted = true;
  Watch(connection.pidfd.get(), id, true);
  SessionInfo info;
  info.job = hello.job();
  info.incarnation = hello.incarnation();
  info.rank = hello.rank();
  info.world_size = hello.world_size();
  info.pid = connection.pid;
  info.root = hello.root();
  info.umask = UmaskOf(connection.pid);
  core_.loop().Post(
      [this, id, info = std::move(info)]() mutable { OpenSession(id, std::move(info)); });
}

void SideSocket::PollDeaths() {
  std::vector<uint64_t> dead;
  for (const auto& [id, connection] : connections_) {
    pollfd entry{connection.pidfd.get(), POLLIN, 0};
    if (connection.greeted && poll(&entry, 1, 0) == 1) dead.push_back(id);
  }
  for (uint64_t id : dead) Died(id);
}

void SideSocket::Died(uint64_t id) {
  if (connections_.erase(id) == 0) return;
  core_.loop().Post([this, id] { core_.sessions().Died(id); });
}

// The end of the connection is no proof of death: the pidfd is watched until it fires.
void SideSocket::Closed(uint64_t id) {
  Connection& connection = connections_.at(id);
  connection.open = false;
  connection.fd.Reset();
  if (!connection.greeted || connection.released) {
    connections_.erase(id);
    return;
  }
  core_.loop().Post([this, id] { core_.sessions().Disconnected(id); });
}

void SideSocket::Released(uint64_t id) {
  auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.released = true;
  if (!found->second.open) connections_.erase(found);
}

void SideSocket::Reply(uint64_t connection, v1::SideReply reply, UniqueFd fd) {
  Queue({connection, std::move(reply), std::move(fd), false});
}

void SideSocket::Queue(Outgoing out) {
  {
    std::lock_guard lock(mutex_);
    outgoing_.push_back(std::move(out));
  }
  eventfd_write(wake_.get(), 1);
}

void SideSocket::ReplyWithMemory(uint64_t connection, v1::SideReply reply, int memory) {
  UniqueFd copy(fcntl(memory, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid())
    return ReplyError(connection, ErrnoStatus(errno, "a descriptor for the client"));
  Reply(connection, std::move(reply), std::move(copy));
}

void SideSocket::ReplyError(uint64_t connection, const absl::Status& status) {
  v1::SideReply reply;
  reply.mutable_error()->set_code(std::string(CodeName(status.code())));
  reply.mutable_error()->set_message(ErrorText(status));
  Reply(connection, std::move(reply));
}

void SideSocket::SendQueued() {
  std::deque<Outgoing> batch;
  {
    std::lock_guard lock(mutex_);
    batch.swap(outgoing_);
  }
  for (const Outgoing& out : batch) {
    if (out.release) {
      Released(out.connection);
      continue;
    }
    auto found = connections_.find(out.connection);
    if (found == connections_.end() || !found->second.open) continue;
    SendPacket(found->second.fd.get(), out.reply.SerializeAsString(), out.fd.get());
  }
}

const Session* SideSocket::SessionOf(uint64_t connection) const {
  for (const auto& [token, session] : core_.sessions().all()) {
    if (session.connection == connection) return &session;
  }
  return nullptr;
}

void SideSocket::OpenSession(uint64_t connection, SessionInfo info) {
  absl::StatusOr<const Session*> session = core_.OpenSession(std::move(info), connection);
  if (!session.ok()) return ReplyError(connection, session.status());
  v1::SideReply reply;
  v1::Welcome& welcome = *reply.mutable_welcome();
  welcome.set_token((*session)->token);
  welcome.set_protocol(kProtocolVersion);
  welcome.set_version(kVersion);
  welcome.set_node(core_.config().node);
  welcome.set_root((*session)->info.root);
  welcome.set_daemon_id(daemon_id_);
  Reply(connection, std::move(reply));
}

void SideSocket::GetArena(uint64_t connection) {
  const Session* session = SessionOf(connection);
  std::shared_ptr<Arena> arena =
      session == nullptr ? nullptr : core_.arenas().Find(session->info.job, session->info.rank);
  if (arena == nullptr) {
    return ReplyError(connection,
                      session == nullptr
                          ? absl::NotFoundError("this connection has no session")
                          : core_.arenas().WhyNone(session->info.job, session->info.rank));
  }
  v1::SideReply reply;
  reply.mutable_arena()->set_generation(arena->generation());
  reply.mutable_arena()->set_block_bytes(arena->block_bytes());
  reply.mutable_arena()->set_block_count(arena->block_count());
  ReplyWithMemory(connection, std::move(reply), arena->fd());
}

void SideSocket::OfferArena(uint64_t connection, const v1::OfferArena& offer, UniqueFd fd) {
  const Session* session = SessionOf(connection);
  if (session == nullptr)
    return ReplyError(connection, absl::NotFoundError("this connection has no session"));
  const SessionInfo& info = session->info;
  auto arena = core_.arenas().Adopt(info.job, info.rank, std::move(fd), offer.block_bytes(),
                                    offer.block_count());
  if (!arena.ok()) return ReplyError(connection, arena.status());
  // A root that is not there yet is told when it is: what was staged must not be lost over it.
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(info.root);
  if (root.ok()) core_.arenas().AttachAdopted(info.job, info.rank, **root);
  v1::SideReply reply;
  reply.mutable_arena()->set_generation((*arena)->generation());
  reply.mutable_arena()->set_block_bytes((*arena)->block_bytes());
  reply.mutable_arena()->set_block_count((*arena)->block_count());
  Reply(connection, std::move(reply));
}

void SideSocket::GetWindow(uint64_t connection, uint64_t load_id) {
  const Session* session = SessionOf(connection);
  if (session == nullptr)
    return ReplyError(connection, absl::NotFoundError("this connection has no session"));
  absl::StatusOr<std::shared_ptr<Arena>> window = core_.loads().Window(*session, load_id);
  if (!window.ok()) return ReplyError(connection, window.status());
  v1::SideReply reply;
  reply.mutable_window()->set_bytes((*window)->bytes());
  ReplyWithMemory(connection, std::move(reply), (*window)->fd());
}

}  // namespace ckptd
