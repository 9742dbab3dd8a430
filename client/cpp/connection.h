// Connection: one session's way to one life of the daemon: side socket, gRPC channel and token.
// When the daemon is gone it is lost for good, and the link (link.h) makes another.
#ifndef CKPTD_CLIENT_CPP_CONNECTION_H_
#define CKPTD_CLIENT_CPP_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/environment.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/side_channel.h"
#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "storage/base/unique_fd.h"

namespace ckptd::inline client {

// Thread-safe.
class Connection {
 public:
  // One call of the session: carries the token, and is cancelled when the connection is lost. Use
  // the context for one call, and keep this object until it has ended.
  class Call {
   public:
    explicit Call(std::shared_ptr<Connection> connection);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call();

    grpc::ClientContext& context() { return context_; }

    // While it lives the caller does nothing but wait in gRPC, and the call is cancelled if that
    // takes longer than `timeout`. Not two at a time. What else the caller has to do never counts:
    // a busy client is no daemon that stands still.
    class Limit {
     public:
      Limit(Call& call, absl::Duration timeout);
      Limit(const Limit&) = delete;
      Limit& operator=(const Limit&) = delete;
      ~Limit();

     private:
      Call& call_;
    };

    bool stalled() const;  // It was cancelled for that.

   private:
    friend class Connection;

    const std::shared_ptr<Connection> connection_;
    grpc::ClientContext context_;
    // Guarded by the connection's mutex_.
    absl::Duration deadline_ = absl::InfiniteDuration();  // Of the wait that is on.
    bool stalled_ = false;
  };

  // How long gRPC may take to end a call that was cancelled.
  static constexpr absl::Duration kCancelTimeout = absl::Milliseconds(500);

  ~Connection();

  // Says hello on the side socket beside `candidate` and connects gRPC. Unavailable if nobody is
  // there or answers in `timeout`, or once `stop_fd` is readable (which outlives the connection);
  // other errors are the daemon's refusal.
  static absl::StatusOr<std::shared_ptr<Connection>> Open(const SocketCandidate& candidate,
                                                          const Identity& identity,
                                                          const std::string& root,
                                                          absl::Duration timeout, int stop_fd,
                                                          ForkGuard& guard);

  v1::CheckpointService::Stub& stub() { return *stub_; }
  SideChannel& side() { return *side_; }
  const std::string& token() const { return welcome_.token(); }
  const std::string& daemon_id() const { return welcome_.daemon_id(); }
  const std::string& node() const { return welcome_.node(); }
  const std::string& root() const { return welcome_.root(); }
  const std::string& socket() const { return socket_; }

  // To poll for hang-up, besides the side socket.
  int rpc_fd() const { return rpc_socket_.get(); }

  // Ends all calls, those to come too.
  void Lose();
  bool lost() const { return lost_; }

  // Cancels the calls that are beyond their limit. If one that was cancelled so still waits
  // kCancelTimeout later, the daemon does not read: the connection hangs up.
  void CancelStalled();

 private:
  Connection(std::string socket, std::unique_ptr<SideChannel> side, v1::Welcome welcome,
             UniqueFd rpc_socket, UniqueFd duplicate, ForkGuard& guard);

  ForkGuard& guard_;
  const std::string socket_;
  const std::unique_ptr<SideChannel> side_;
  const UniqueFd rpc_socket_;  // A duplicate of the one that gRPC has.
  const v1::Welcome welcome_;
  const std::unique_ptr<v1::CheckpointService::Stub> stub_;

  std::atomic<bool> lost_{false};
  std::mutex mutex_;
  std::vector<Call*> calls_;  // Guarded by mutex_.
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_CONNECTION_H_
