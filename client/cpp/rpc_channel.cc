#include "client/cpp/rpc_channel.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/ckptd/version.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

gpr_timespec In(absl::Duration timeout) {
  const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, int64_t{1} << 40);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // The host name that HTTP/2 asks for; a path would be none.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return arguments;
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is too long for a socket"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  if (errno == EACCES || errno == EPERM) return ErrnoStatus(errno, path);
  if (errno == EAGAIN) return absl::UnavailableError("the daemon accepts no connection");
  return absl::UnavailableError(strerror(errno));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& socket,
                                                           absl::Duration timeout) {
  std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      absl::StrCat("unix:", socket), grpc::InsecureChannelCredentials(), ChannelArguments());
  if (channel->WaitForConnected(In(timeout))) return channel;
  return absl::UnavailableError(
      absl::StrCat(socket, ": no gRPC in ", absl::FormatDuration(timeout)));
}

std::shared_ptr<grpc::Channel> AdoptSocket(UniqueFd socket) {
  return grpc::CreateCustomInsecureChannelFromFd("ckptd", socket.release(), ChannelArguments());
}

absl::Status TryCandidates(
    const std::vector<SocketCandidate>& candidates, absl::Duration timeout,
    absl::Duration attempt_min,
    absl::FunctionRef<absl::Status(const SocketCandidate&, absl::Duration left)> attempt) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  for (;;) {
    std::vector<std::string> failures;
    for (const SocketCandidate& candidate : candidates) {
      const absl::Duration left = absl::FromChrono(deadline - std::chrono::steady_clock::now());
      absl::Status status = attempt(candidate, std::max(left, attempt_min));
      if (!absl::IsUnavailable(status)) return status;
      failures.push_back(
          absl::StrCat(candidate.path, " (", candidate.origin, "): ", status.message()));
    }
    if (std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kRetryPause) > deadline) {
      return absl::UnavailableError(
          absl::StrCat("no ckptd answers; tried ", absl::StrJoin(failures, "; ")));
    }
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(kRetryPause));
  }
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status FromGrpc(const grpc::Status& status, absl::string_view call, absl::Duration timeout) {
  absl::Status converted = FromGrpc(status);
  // The daemon's own say more.
  if (!absl::IsDeadlineExceeded(converted) || converted.message() != "Deadline Exceeded") {
    return converted;
  }
  return absl::DeadlineExceededError(
      absl::StrCat(call, ": no answer from ckptd in ", absl::FormatDuration(timeout)));
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(In(timeout));
}

}  // namespace ckptd::inline client
