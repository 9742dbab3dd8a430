// SaveProgress: what is known about one save, shared by its handles and the thread that runs it.
// Thread-safe.
#ifndef CKPTD_CLIENT_CPP_SAVE_PROGRESS_H_
#define CKPTD_CLIENT_CPP_SAVE_PROGRESS_H_

#include <unistd.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/save_handle.h"
#include "storage/base/clock.h"

namespace ckptd::inline client {

class SaveProgress {
 public:
  SaveProgress(std::string id, int64_t step, std::string request_id, const Clock& clock);

  const std::string& id() const { return id_; }
  int64_t step() const { return step_; }
  const std::string& request_id() const { return request_id_; }

  // Moves on; a state already passed changes nothing, so that a repeated answer is harmless.
  void Reach(SaveState state);
  void Fail(FailureInfo failure);
  // The session closed: nobody will move this on any more. Waiters get Cancelled.
  void Detach();

  void SetAttempt(std::string attempt);
  void SetBytes(uint64_t bytes);
  void AddBlocked(absl::Duration blocked);

  SaveState state() const;
  bool ended() const;  // Committed, failed or detached.
  SaveReport report() const;
  std::string attempt() const;
  FailureInfo failure() const;
  absl::Status Wait(SaveState state, absl::Duration timeout);
  void OnState(SaveCallback callback);

 private:
  struct Listener {
    SaveCallback callback;
    size_t heard = 0;  // Of passed_.
  };

  absl::Status CheckProcess() const;
  void Deliver(std::unique_lock<std::mutex>& lock);

  const std::string id_;
  const int64_t step_;
  const std::string request_id_;
  const Clock& clock_;
  const absl::Duration begun_;
  const pid_t process_ = getpid();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  SaveState state_ = SaveState::kQueued;
  std::vector<SaveState> passed_;  // In order, for listeners that come late.
  bool detached_ = false;
  FailureInfo failure_;
  std::string attempt_;
  SaveReport report_;
  std::deque<Listener> listeners_;  // Stays where it is when another is added.
  bool delivering_ = false;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_SAVE_PROGRESS_H_
