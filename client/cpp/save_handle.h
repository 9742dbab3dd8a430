// SaveHandle: one save of this rank, on its way from AsyncSave() to committed or failed.
//
//     kQueued -> kAdmitted -> kStaged -> kDurable -> kCommitted
//         \----------\-----------\----------\----> kFailed
//
// It never goes back and ends in one of the two last, or stays where it is when the session closes
// first. Copies of a handle are one save. Thread-safe. May outlive its session.
#ifndef CKPTD_CLIENT_CPP_SAVE_HANDLE_H_
#define CKPTD_CLIENT_CPP_SAVE_HANDLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/cpp/checkpoint_info.h"

namespace ckptd::inline client {

enum class SaveState {
  kQueued,     // Not yet accepted by the daemon.
  kAdmitted,   // The attempt exists; our bytes are being copied.
  kStaged,     // The daemon has all our bytes: the tensors may change.
  kDurable,    // Our node's bytes are on stable storage.
  kCommitted,  // The checkpoint is published.
  kFailed,
};
absl::string_view SaveStateName(SaveState state);  // "queued", "admitted" …

// Seconds since AsyncSave() was called; negative: not reached.
struct SaveReport {
  uint64_t bytes = 0;    // That this rank writes.
  double blocked_s = 0;  // In AsyncSave(), and in Lock() for it.
  double staged_s = -1;
  double durable_s = -1;
  double committed_s = -1;
};

// The failure's status is OK unless the state is kFailed.
using SaveCallback = std::function<void(SaveState state, const FailureInfo& failure)>;

class SaveProgress;

class SaveHandle {
 public:
  SaveHandle(std::shared_ptr<SaveProgress> progress, std::function<void()> cancel);

  const std::string& id() const;
  int64_t step() const;
  const std::string& request_id() const;

  SaveState state() const;
  SaveReport report() const;
  std::string attempt() const;  // Empty before kAdmitted.
  FailureInfo failure() const;  // Its status is OK unless the state is kFailed.

  // Waits until the state is at least `state` (kStaged or later). If the save fails before: its own
  // error, with rank, node and phase of what failed. DeadlineExceeded after `timeout`; Cancelled if
  // the session closed and the outcome is unknown here.
  absl::Status Wait(SaveState state, absl::Duration timeout) const;

  // Asks the daemon to give the attempt up; for all ranks. Returns at once; a committed save stays.
  void Cancel();

  // Calls back for every state reached from now on and at once for those passed already (not
  // kQueued), in order; on a thread of the session, or on this one. It must not block long, nor
  // close the session.
  void OnState(SaveCallback callback);

 private:
  std::shared_ptr<SaveProgress> progress_;
  std::function<void()> cancel_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_SAVE_HANDLE_H_
