// A gRPC channel to the daemon of this node, and the details that all calls share.
#ifndef CKPTD_CLIENT_CPP_RPC_CHANNEL_H_
#define CKPTD_CLIENT_CPP_RPC_CHANNEL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/environment.h"

namespace ckptd::inline client {

// A connected channel over the Unix socket: no proxy, no retries of gRPC's own, no sharing with
// other channels. Unavailable if it does not connect within `timeout`.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& socket,
                                                           absl::Duration timeout);

// Unavailable, with the reason, unless somebody listens on the socket; PermissionDenied. Quicker
// than gRPC, which does not tell why.
absl::Status CheckListening(const std::string& socket);

// Calls `attempt(candidate)` for one candidate after the other, again and again until one succeeds,
// one fails otherwise than by Unavailable, or `timeout` is over. Then Unavailable names every path,
// where it came from and why it failed. At least one round.
absl::Status TryCandidates(const std::vector<SocketCandidate>& candidates, absl::Duration timeout,
                           absl::FunctionRef<absl::Status(const SocketCandidate&)> attempt);

absl::Status FromGrpc(const grpc::Status& status);

// By the monotonic clock.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_RPC_CHANNEL_H_
