// Options of clients, sessions and saves; values. What is left out gets the default named here.
#ifndef CKPTD_CLIENT_CPP_OPTIONS_H_
#define CKPTD_CLIENT_CPP_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "client/cpp/save_handle.h"

namespace ckptd::inline client {

// A checkpoint of that id exists already.
enum class OnExisting { kRefuse, kReplace };
// As many attempts as the daemon allows are in flight.
enum class OnOverlap { kWait, kReject };
// Two ranks hold the same region with different content.
enum class Replicas { kError, kLowestRank };
// AsyncSave while the daemon is away: wait for it up to daemon_lost_timeout and fail, or go on
// training at once with a handle that has failed. Either way the code is Unavailable.
enum class OnDaemonLost { kRaise, kContinue };

struct ClientOptions {
  std::string socket;  // Empty: CKPTD_SOCKET, else the default of this uid.
  // How long a call waits for an absent daemon, and for its answer.
  absl::Duration timeout = absl::Seconds(10);
};

struct SessionOptions {
  ClientOptions client;

  // Empty or absent: CKPTD_JOB, CKPTD_RANK, CKPTD_WORLD_SIZE, CKPTD_INCARNATION; rank and size next
  // from torchrun (RANK, WORLD_SIZE), else from Slurm (SLURM_PROCID, SLURM_NTASKS). A job of one
  // process may leave out everything: job "default", rank 0 of 1. An explicit value that
  // contradicts the launcher is refused, naming both.
  //
  // The incarnation: the same for all ranks, new at each start, so that no save joins ranks of two
  // lives of the job. Else torchrun's run id and restart count (with --standalone, or an --rdzv-id
  // that is new, too), or Slurm's job, step and restart count; random for one process. Several
  // processes without any of these have an empty one, which keeps no two lives apart.
  std::string job;
  std::optional<uint32_t> rank;
  std::optional<uint32_t> world_size;
  std::string incarnation;

  std::string root;  // Label; empty: the daemon's first.
  OnExisting on_existing = OnExisting::kRefuse;
  OnOverlap on_overlap = OnOverlap::kWait;
  Replicas replicas = Replicas::kError;
  OnDaemonLost on_daemon_lost = OnDaemonLost::kRaise;
  absl::Duration join_timeout = absl::ZeroDuration();  // Zero: the daemon's.
  // After each commit, how many of the newest checkpoints of the job are kept; older ones are
  // deleted. 0: the daemon's --keep-last. Of all ranks the one that keeps most counts.
  uint32_t keep_last = 0;
  absl::Duration daemon_lost_timeout = absl::Seconds(10);
  uint32_t threads = 0;  // That copy, the caller's included; 0: two, or one on a single core.

  // Called on a thread of the session when the connection to the daemon is lost and when it is
  // back. Must not call Close().
  std::function<void(bool lost, const std::string& why)> on_connection;
};

struct SaveOptions {
  // Return at once; the state must not change until Lock() or Wait(kStaged) has returned.
  bool deferred = false;
  std::optional<OnExisting> on_existing;  // Absent: the session's.
  std::optional<absl::Duration> join_timeout;
  // Names this save for the daemon: a repeated one gets the first one's answer. Empty: a random
  // one.
  std::string request_id;
  // How long AsyncSave() blocks at most, whatever the cause; then the save is cancelled.
  absl::Duration block_timeout = absl::Minutes(15);
  // As SaveHandle::OnState(), from the first state on; also for a save that AsyncSave() itself
  // reports as failed.
  SaveCallback on_state;
  // Called on a copying thread after each block with the bytes copied so far. Copying waits for it.
  std::function<void(uint64_t bytes)> on_copied;
};

enum class CloseMode {
  kWait,    // For all saves to be committed or failed.
  kDetach,  // What is staged goes on without us; what is not is cancelled.
  kAbort,   // Cancel what is not committed.
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_OPTIONS_H_
