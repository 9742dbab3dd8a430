// SideChannel is the client's end of the side socket (proto/ckptd/v1/side.proto): one request, one
// reply, each a packet that may carry a descriptor.
//
// Thread-safe: calls of several threads follow each other.
#ifndef CKPTD_CLIENT_CPP_SIDE_CHANNEL_H_
#define CKPTD_CLIENT_CPP_SIDE_CHANNEL_H_

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/fork_guard.h"
#include "proto/ckptd/v1/side.pb.h"
#include "storage/base/unique_fd.h"

namespace ckptd::inline client {

inline constexpr size_t kSidePacketBytesMax = 64 << 10;

class SideChannel {
 public:
  struct Reply {
    v1::SideReply message;
    UniqueFd fd;  // If one came along.
  };

  // Connects to the socket at `path`, without waiting. Unavailable, with the reason, if nobody
  // listens there or accepts; PermissionDenied. The guard outlives the channel, and so does
  // `stop_fd`: while that is readable, no call waits.
  static absl::StatusOr<std::unique_ptr<SideChannel>> Connect(const std::string& path, int stop_fd,
                                                              ForkGuard& guard);
  // Over a connected SOCK_SEQPACKET socket. `stop_fd` may be -1.
  SideChannel(UniqueFd socket, int stop_fd, ForkGuard& guard);
  ~SideChannel();

  // Sends the request, with `fd` if it is not -1, and waits for the reply. A SideError comes back
  // as its own status. Unavailable if the daemon is gone or does not answer in `timeout`; the
  // channel is useless then, and fd() reports a hang-up.
  absl::StatusOr<Reply> Call(const v1::SideRequest& request, int fd, absl::Duration timeout);

  // To poll for hang-up.
  int fd() const { return socket_.get(); }

 private:
  absl::StatusOr<Reply> Exchange(const v1::SideRequest& request, int fd, absl::Duration timeout);
  absl::Status Send(const v1::SideRequest& request, int fd);
  absl::StatusOr<Reply> Receive(absl::Duration timeout);

  ForkGuard& guard_;
  const UniqueFd socket_;
  const int stop_fd_;
  std::mutex mutex_;  // Held for a request and its reply.
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_SIDE_CHANNEL_H_
