// Sessions: which processes are ranks of which jobs, and whether they live.
//
// A session is opened over the side socket, which proves uid and pid and brings a pidfd. It ends
// when that fires (the rank is dead: kDead), when the client closes it in order (kClosed), or when
// the connection ended without either for peer_lost_timeout (kLost for good: its arena is dropped,
// because the process may still write to it).
//
// Owned by the control loop.
#ifndef CKPTD_SERVER_SESSIONS_H_
#define CKPTD_SERVER_SESSIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/control_loop.h"

namespace ckptd {

// Every attempt and its outcome record keep a line for each rank.
inline constexpr uint32_t kWorldSizeMax = 1 << 17;

struct SessionInfo {
  std::string job;
  std::string incarnation;  // "" for a job on one node that gave none.
  uint32_t rank = 0;
  uint32_t world_size = 0;
  int64_t pid = 0;  // As this daemon sees it; 0 from a foreign pid namespace.
  std::string root;
  uint32_t umask = 022;  // The job's: modes of files and folders are made with it.
};

struct Session {
  enum class State { kAlive, kDisconnected };

  SessionInfo info;
  std::string token;
  uint64_t connection = 0;  // Of the side socket; 0 while disconnected.
  uint64_t watched = 0;     // The connection whose pidfd tells of its death: the last one it had.
  State state = State::kAlive;
  ControlLoop::TimerId lost_timer = ControlLoop::TimerId::kNone;
  // Beginnings and ends of sessions in one order: who began after another's end is of a later life.
  uint64_t opened = 0;
  uint64_t ended = 0;  // 0 while it is in the table.
};

enum class SessionEnd { kDead, kLost, kClosed };

class Sessions {
 public:
  struct Options {
    absl::Duration peer_lost_timeout;
    // Called once a session has ended and is no longer in the table.
    std::function<void(const Session&, SessionEnd)> on_end;
    std::function<std::string()> new_token;
  };

  Sessions(ControlLoop& loop, Options options);

  // Called with each connection whose pidfd nobody needs any more: its session has ended, or has a
  // newer connection, or it never had one. Null: nobody.
  void OnRelease(std::function<void(uint64_t connection)> release) {
    release_ = std::move(release);
  }

  // A process says hello. The same process (pid) of the same job, incarnation and rank takes its
  // session up again, whose token stays. AlreadyExists, naming both pids, if another living process
  // holds it.
  absl::StatusOr<const Session*> Open(const SessionInfo& info, uint64_t connection);

  void Disconnected(uint64_t connection);  // End-of-file on the side socket.
  void Died(uint64_t connection);          // The pidfd fired.
  void Close(const std::string& token);

  // Unauthenticated for a token that is none.
  absl::StatusOr<const Session*> Find(absl::string_view token) const;
  const std::map<std::string, Session>& all() const { return by_token_; }

 private:
  Session* ByConnection(uint64_t connection);
  void End(const std::string& token, SessionEnd end);
  void Release(uint64_t connection);

  ControlLoop& loop_;
  const Options options_;
  std::function<void(uint64_t)> release_;
  std::map<std::string, Session> by_token_;
  uint64_t next_order_ = 1;
  std::map<uint64_t, std::string> token_of_connection_;  // Those that are watched.
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_SESSIONS_H_
