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
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/environment.h"
#include "storage/base/unique_fd.h"

namespace ckptd::inline client {

// A connection to the Unix socket at `path`, non-blocking. Unavailable, with the reason, unless
// somebody listens there; PermissionDenied. Never waits.
absl::StatusOr<UniqueFd> ConnectSocket(const std::string& path);

// A channel that connects, and connects again: no proxy, no retries of gRPC's own, no sharing with
// other channels. Unavailable if it does not connect within `timeout`.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenChannel(const std::string& socket,
                                                           absl::Duration timeout);

// A channel over this connection, for as long as that lives. gRPC completes no call whose bytes the
// daemon does not read, not even a cancelled one: shutdown() on a duplicate of the socket ends it.
std::shared_ptr<grpc::Channel> AdoptSocket(UniqueFd socket);

// Calls `attempt(candidate, left)` for one candidate after the other, again and again until one
// succeeds, one fails otherwise than by Unavailable, or `timeout` is over. Then Unavailable names
// every path, where it came from and why it failed. At least one round. `left` is what is left of
// the timeout, but at least `attempt_min`.
absl::Status TryCandidates(
    const std::vector<SocketCandidate>& candidates, absl::Duration timeout,
    absl::Duration attempt_min,
    absl::FunctionRef<absl::Status(const SocketCandidate&, absl::Duration left)> attempt);

absl::Status FromGrpc(const grpc::Status& status);
// Of a call that had SetDeadline(timeout): names both if no answer came in time.
absl::Status FromGrpc(const grpc::Status& status, absl::string_view call, absl::Duration timeout);

// By the monotonic clock.
void SetDeadline(grpc::ClientContext& context, absl::Duration timeout);

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_RPC_CHANNEL_H_
