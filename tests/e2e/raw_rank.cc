#include "tests/e2e/raw_rank.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/default_paths.h"
#include "proto/ckptd/version.h"
#include "storage/base/check.h"
#include "storage/plan/dtype.h"

namespace ckptd {
namespace {

constexpr uint64_t kRows = 16;
constexpr uint64_t kColumns = 16;
constexpr size_t kPacketBytesMax = 64 << 10;

UniqueFd ConnectTo(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CKPT_CHECK(path.size() < sizeof(address.sun_path), "the test's paths are short");
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    fd = UniqueFd();
  return fd;
}

// With this process' pidfd, as hello wants it.
bool SendHello(int side, const std::string& bytes) {
  const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  iovec io{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = process.get();
  std::memcpy(CMSG_DATA(part), &fd, sizeof(fd));
  return ::sendmsg(side, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

RawRank::RawRank(Options options)
    : options_(std::move(options)),
      stub_(v1::CheckpointService::NewStub(grpc::CreateChannel(
          absl::StrCat("unix:", options_.socket), grpc::InsecureChannelCredentials()))) {}

v1::SideReply RawRank::Hello() {
  v1::SideReply reply;
  side_ = ConnectTo(SideSocketPath(options_.socket));
  if (!side_.valid()) return reply;
  v1::SideRequest request;
  v1::Hello& hello = *request.mutable_hello();
  hello.set_protocol(options_.protocol == 0 ? kProtocolVersion : options_.protocol);
  hello.set_version("raw");
  hello.set_job(options_.job);
  hello.set_incarnation(options_.incarnation);
  hello.set_rank(options_.rank);
  hello.set_world_size(options_.world_size);
  std::string bytes(kPacketBytesMax, '\0');
  if (!SendHello(side_.get(), request.SerializeAsString())) return reply;
  const ssize_t count = ::recv(side_.get(), bytes.data(), bytes.size(), 0);
  if (count > 0 && reply.ParseFromString(bytes.substr(0, count)) && reply.has_welcome()) {
    token_ = reply.welcome().token();
  }
  return reply;
}

std::unique_ptr<grpc::ClientContext> RawRank::Context(const std::string& token) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->AddMetadata(kTokenMetadataKey, token);
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  return context;
}

RawRank::SaveEnd RawRank::Save(const std::string& token, const std::string& id, uint32_t rank,
                               const v1::PlanPart& plan, bool staging) {
  stream_.reset();
  context_ = Context(token);
  stream_ = stub_->Save(context_.get());
  v1::SaveRequest begin;
  begin.mutable_begin()->set_checkpoint_id(id);
  begin.mutable_begin()->set_step(1);
  begin.mutable_begin()->set_request_id(absl::StrCat(id, "-", rank, "-", token));
  begin.mutable_begin()->set_rank(rank);
  stream_->Write(begin);
  v1::SaveRequest planned;
  *planned.mutable_plan() = plan;
  planned.mutable_plan()->set_last(true);
  stream_->Write(planned);
  v1::SaveReply reply;
  while (staging && stream_->Read(&reply)) {
    if (reply.has_granted()) return {.status = {}, .failure = {}, .granted = true};
    if (reply.has_failed()) return {.status = {}, .failure = reply.failed()};
  }
  return AwaitSaveEnd();
}

RawRank::SaveEnd RawRank::AwaitSaveEnd() {
  SaveEnd end;
  v1::SaveReply reply;
  while (stream_->Read(&reply)) {
    if (reply.has_failed()) end.failure = reply.failed();
    if (reply.has_granted()) end.granted = true;
  }
  end.status = stream_->Finish();
  stream_.reset();
  return end;
}

v1::PlanPart PlanOf(const std::string& name,
                    const std::vector<std::pair<uint64_t, uint64_t>>& rows) {
  v1::PlanPart plan;
  v1::TensorEntry& tensor = *plan.add_tensors();
  tensor.set_name(name);
  tensor.set_dtype(static_cast<uint32_t>(DType::kFloat32));
  tensor.add_shape(kRows);
  tensor.add_shape(kColumns);
  for (const auto& [first, count] : rows) {
    v1::Box& box = *tensor.add_chunks();
    box.add_offsets(first);
    box.add_offsets(0);
    box.add_sizes(count);
    box.add_sizes(kColumns);
  }
  return plan;
}

}  // namespace ckptd
