#include "client/cpp/rpc_channel.h"

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
#include "storage/base/unique_fd.h"

namespace ckptd::inline client {
namespace {

constexpr absl::Duration kRetryPause = absl::Milliseconds(50);

gpr_timespec In(absl::Duration timeout) {
  const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, int64_t{1} << 40);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& socket,
                                                           absl::Duration timeout) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetMaxSendMessageSize(kMessageBytesMax);
  // The host name that HTTP/2 asks for; a path would be none.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      absl::StrCat("unix:", socket), grpc::InsecureChannelCredentials(), arguments);
  if (channel->WaitForConnected(In(timeout))) return channel;
  return absl::UnavailableError(
      absl::StrCat(socket, ": no gRPC in ", absl::FormatDuration(timeout)));
}

absl::Status CheckListening(const std::string& socket) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat(socket, " is too long for a socket"));
  }
  std::memcpy(address.sun_path, socket.data(), socket.size());
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    return absl::OkStatus();
  }
  if (errno == EACCES || errno == EPERM) return ErrnoStatus(errno, socket);
  return absl::UnavailableError(strerror(errno));
}

absl::Status TryCandidates(const std::vector<SocketCandidate>& candidates, absl::Duration timeout,
                           absl::FunctionRef<absl::Status(const SocketCandidate&)> attempt) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  for (;;) {
    std::vector<std::string> failures;
    for (const SocketCandidate& candidate : candidates) {
      absl::Status status = attempt(candidate);
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

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  context.set_deadline(In(timeout));
}

}  // namespace ckptd::inline client
