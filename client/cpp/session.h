// Session: one rank of a job at the daemon of its node.
//
//     ASSIGN_OR_RETURN(auto session, Session::Open(options));
//     ASSIGN_OR_RETURN(SaveHandle save, session->AsyncSave("step-100", 100, state));
//     … train on: the tensors may change …
//     RETURN_IF_ERROR(save.Wait(SaveState::kCommitted, absl::Minutes(10)));
//
// The session outlives the daemon: when the daemon goes away it reconnects by itself, hands back
// the memory that holds what is staged, and saves in flight go on.
//
// Threads: thread-safe; saves of one session are staged in the order of their AsyncSave() calls.
// Fork: a child has neither the memory nor the connection; every call in it is FailedPrecondition.
// Errors: bad input is refused at once, naming the thing; an absent daemon is Unavailable, naming
// the sockets that were tried.
#ifndef CKPTD_CLIENT_CPP_SESSION_H_
#define CKPTD_CLIENT_CPP_SESSION_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/checkpoint_info.h"
#include "client/cpp/load.h"
#include "client/cpp/options.h"
#include "client/cpp/save_handle.h"
#include "client/cpp/tensor.h"

namespace ckptd::inline client {

class SessionCore;

class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Open(const SessionOptions& options = {});
  ~Session();  // Close(kDetach) if that was not done.

  const std::string& job() const;
  uint32_t rank() const;
  uint32_t world_size() const;
  const std::string& incarnation() const;
  std::string node() const;  // The daemon's.

  // Makes the daemon reserve and touch the memory that such a save needs, so that the first save
  // need not. DeadlineExceeded after `timeout`.
  absl::Status Prewarm(State state, absl::Duration timeout = absl::Minutes(15));

  // Saves `state` as checkpoint `id` and returns once it is staged: the tensors may change. With
  // SaveOptions::deferred it returns at once. An error means that this save is over: refused,
  // cancelled after block_timeout, or failed before it was staged.
  absl::StatusOr<SaveHandle> AsyncSave(const std::string& id, int64_t step, State state,
                                       const SaveOptions& options = {});

  // Waits until no save reads the trainer's tensors any more; call it before they change. Saves
  // that fail do not count as errors here; DeadlineExceeded names one that still reads.
  absl::Status Lock(absl::Duration timeout = absl::Seconds(60));

  // Fills the targets from checkpoint `id`, or from the latest committed one if it is empty.
  // Returns at once; targets are in use until the handle is done.
  absl::StatusOr<LoadHandle> Load(const std::string& id, std::vector<TensorTarget> targets,
                                  const LoadOptions& options = {});

  // As Client's, for this job and root.
  absl::StatusOr<std::optional<CheckpointInfo>> Latest();

  // Ends the session; takes at most `timeout`. DeadlineExceeded if saves had not reached what
  // `mode` waits for; the session is closed all the same, and what is staged goes on.
  absl::Status Close(CloseMode mode = CloseMode::kWait, absl::Duration timeout = absl::Seconds(5));

  // For tests of the daemon: the memory of the block that was sealed last by a save in flight;
  // empty if there is none. Writing to it breaks that save.
  std::span<std::byte> LastSealedBlock();

 private:
  explicit Session(std::shared_ptr<SessionCore> core);

  std::shared_ptr<SessionCore> core_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_SESSION_H_
