// SideSocket listens on `<socket>.fd` and does what gRPC cannot (proto/ckptd/v1/side.proto): it
// proves uid and pid of a client by SO_PEERCRED, watches its pidfd (SO_PEERPIDFD where the kernel
// has it, else the one the client sends), and passes memory descriptors.
//
// One thread owns all connections. Requests are posted to the control loop, whose replies come back
// by a queue.
#ifndef CKPTD_SERVER_RPC_SIDE_SOCKET_H_
#define CKPTD_SERVER_RPC_SIDE_SOCKET_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "proto/ckptd/v1/side.pb.h"
#include "server/core.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

class SideSocket {
 public:
  // Binds with mode 0600, replacing what a dead daemon left. The caller holds the socket's lock.
  // `core` outlives this.
  static absl::StatusOr<std::unique_ptr<SideSocket>> Listen(Core& core, const std::string& path);
  ~SideSocket();  // Ends the thread, closes every connection, removes the socket.

 private:
  struct Connection {
    UniqueFd fd;
    UniqueFd pidfd;
    int64_t pid = 0;
    bool greeted = false;
    bool open = true;       // Until end-of-file; the pidfd is watched on …
    bool released = false;  // … unless nobody needs it any more.
  };
  struct Outgoing {
    uint64_t connection;
    v1::SideReply reply;
    UniqueFd fd;
    bool release = false;  // Nothing is sent: the connection is released.
  };

  SideSocket(Core& core, std::string path, UniqueFd listener);
  void Run();
  void Accept();
  void Receive(uint64_t id);
  void Handle(uint64_t id, Connection& connection, const v1::SideRequest& request, UniqueFd fd);
  void HandleHello(uint64_t id, Connection& connection, const v1::Hello& hello, UniqueFd fd);
  void PollDeaths();
  void Died(uint64_t id);
  void Closed(uint64_t id);
  void Released(uint64_t id);
  void SendQueued();
  void Queue(Outgoing out);
  void Reply(uint64_t connection, v1::SideReply reply, UniqueFd fd = UniqueFd());
  void ReplyWithMemory(uint64_t connection, v1::SideReply reply, int memory);
  void ReplyError(uint64_t connection, const absl::Status& status);
  void Watch(int fd, uint64_t id, bool pidfd);

  // On the loop.
  void OpenSession(uint64_t connection, SessionInfo info);
  void GetArena(uint64_t connection);
  void OfferArena(uint64_t connection, const v1::OfferArena& offer, UniqueFd fd);
  void GetWindow(uint64_t connection, uint64_t load_id);
  const Session* SessionOf(uint64_t connection) const;

  Core& core_;
  const std::string path_;
  const std::string daemon_id_;
  const UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd wake_;  // An eventfd: something is queued, or stop.

  std::mutex mutex_;  // Guards the next two.
  std::deque<Outgoing> outgoing_;
  bool stopping_ = false;

  // The thread's own.
  std::map<uint64_t, Connection> connections_;
  uint64_t next_id_ = 1;

  std::thread thread_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_SIDE_SOCKET_H_
