// The side socket of a daemon. The input is a sequence of packets: which descriptor comes along
// (1 byte), the size of a memfd (2 bytes: 2^k times n), then the packet as a message.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/v1/side.pb.h"
#include "server/core.h"
#include "server/rpc/side_socket.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/disk/open_disk.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/properties.h"

namespace ckptd {
namespace {

constexpr time_t kReplySeconds = 10;
constexpr size_t kPacketBytesMax = 64 << 10;
constexpr size_t kThreadBytes = 4 << 20;  // What the daemon's threads hold between two packets.

// A daemon without gRPC, which forgets sessions as soon as they end.
class Daemon {
 public:
  Daemon() : logger_(LogLevel::kError, LogFormat::kText, stderr) {
    char folder[] = "/tmp/ckptd-fuzz-XXXXXX";  // A socket's path is short.
    CKPT_CHECK(mkdtemp(folder) != nullptr, "a folder can be made");
    folder_ = folder;
    Core::Options options;
    options.config.node = "node";
    options.config.block_bytes = 1 << 20;
    options.config.max_inflight_attempts = 1;
    options.config.peer_lost_timeout = absl::ZeroDuration();
    options.arena_limit_bytes = 64 << 20;
    options.roots.push_back({"default", folder_, [this]() -> absl::StatusOr<std::shared_ptr<Root>> {
                               ASSIGN_OR_RETURN(
                                   std::unique_ptr<Disk> disk,
                                   OpenDisk(folder_, {.engine = DiskOptions::Engine::kPosix}));
                               return std::make_shared<Root>("default", folder_, std::move(disk));
                             }});
    core_ = std::make_unique<Core>(std::move(options), logger_);
    CKPT_CHECK(core_->StartRoots().ok(), "the root starts");
    auto socket = SideSocket::Listen(*core_, path());
    CKPT_CHECK(socket.ok(), "the side socket listens");
    socket_ = *std::move(socket);
  }
  ~Daemon() {
    socket_.reset();
    core_.reset();
    const std::string own = absl::StrCat(folder_, "/.ckptd");
    rmdir(own.c_str());
    rmdir(folder_.c_str());
  }

  std::string path() const { return absl::StrCat(folder_, "/fd"); }

 private:
  Logger logger_;
  std::string folder_;
  std::unique_ptr<Core> core_;
  std::unique_ptr<SideSocket> socket_;
};

UniqueFd Connect(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  CKPT_CHECK(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
             "the daemon accepts");
  const timeval patience{.tv_sec = kReplySeconds, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

UniqueFd Memory(uint64_t bytes, int seals) {
  UniqueFd fd(memfd_create("arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ftruncate(fd.get(), static_cast<off_t>(bytes & INT64_MAX));
  fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

UniqueFd Descriptor(uint64_t kind, uint64_t bytes) {
  switch (kind % 6) {
    case 1:
      return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
    case 2:
      return Memory(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    case 3:
      return Memory(bytes, F_SEAL_WRITE);
    case 4:
      return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    case 5:
      return UniqueFd(open("/tmp", O_PATH | O_CLOEXEC));
    default:
      return UniqueFd();
  }
}

bool Send(int socket, absl::string_view packet, int fd) {
  iovec part{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

// `memory_bytes`: of the memfd that came with the request.
void CheckReply(const v1::SideRequest& request, uint64_t memory_bytes, absl::string_view packet) {
  v1::SideReply reply;
  CKPT_CHECK(reply.ParseFromArray(packet.data(), static_cast<int>(packet.size())),
             "an answer is a message");
  if (reply.has_error()) {
    const absl::StatusCode code = CodeFromName(reply.error().code());
    CheckAnswer(absl::Status(code, reply.error().message()),
                {absl::StatusCode::kInvalidArgument, absl::StatusCode::kNotFound,
                 absl::StatusCode::kAlreadyExists, absl::StatusCode::kFailedPrecondition,
                 absl::StatusCode::kResourceExhausted});
    CKPT_CHECK(code != absl::StatusCode::kOk, "an error is an error");
  } else if (reply.has_welcome()) {
    CKPT_CHECK(!reply.welcome().token().empty(), "a session has a token");
  } else {
    CKPT_CHECK(reply.has_arena() && reply.arena().block_count() > 0, "an arena has blocks");
    CKPT_CHECK(!request.has_offer_arena() ||
                   reply.arena().block_bytes() * reply.arena().block_count() == memory_bytes,
               "an arena is the memory that was offered");
  }
}

void Run(const uint8_t* data, size_t size) {
  google::protobuf::SetLogHandler(nullptr);  // Of the daemon's texts that are none.
  static Daemon daemon;
  const MemoryBound bound(size, 1, kProtobufBytes + kThreadBytes);
  const UniqueFd socket = Connect(daemon.path());
  Input input(data, size);
  while (!input.empty()) {
    const uint64_t kind = input.Number(1);
    const uint64_t shift = input.Number(1) % 64;
    const uint64_t bytes_of_memory = input.Number(1) << shift;
    const UniqueFd fd = Descriptor(kind, bytes_of_memory);
    const absl::string_view packet = input.Message();
    if (packet.empty() || !Send(socket.get(), packet, fd.get())) return;
    char answer[kPacketBytesMax];
    const ssize_t bytes = recv(socket.get(), answer, sizeof answer, 0);
    CKPT_CHECK(bytes > 0, "every packet has an answer");
    v1::SideRequest request;
    Input::Parse(packet, request);
    CheckReply(request, bytes_of_memory, {answer, static_cast<size_t>(bytes)});
  }
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run(data, size);
  return 0;
}
