// What to load, and what came.
#ifndef CKPTD_CLIENT_CPP_LOAD_H_
#define CKPTD_CLIENT_CPP_LOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/checkpoint_info.h"

namespace ckptd::inline client {

struct LoadOptions {
  // Names that the checkpoint does not have are listed instead of refused, and their targets
  // untouched.
  bool partial = false;
  // Names in the checkpoint that no target asks for are refused instead of listed.
  bool strict = false;
  bool items = true;  // Bring the shared items and this rank's own.
  // How long to wait for that checkpoint to be committed, if it is in flight.
  absl::Duration wait = absl::ZeroDuration();
  // Ranks that load "the latest" under one restore id get the same checkpoint.
  std::string restore_id = "initial";
  // The load fails if nothing has come for so long.
  absl::Duration progress_timeout = absl::Minutes(2);
};

struct LoadReport {
  CheckpointInfo checkpoint;
  std::vector<std::string> missing;  // Asked for, but not stored.
  std::vector<std::string> extra;    // Stored, but not asked for.
  std::vector<ItemValue> items;
  uint64_t memory_bytes = 0;  // Served from an image in memory.
  uint64_t disk_bytes = 0;    // Read from storage.
  double seconds = 0;
};

class LoadProgress;

// A load on its way. Copies of a handle are one load. Thread-safe; may outlive its session.
//
// If it fails before the first byte (a wrong shape, a missing name, no such checkpoint), the
// targets are untouched; if later, they are undefined and the message says so.
class LoadHandle {
 public:
  LoadHandle(std::shared_ptr<LoadProgress> progress, std::function<void()> cancel);

  bool done() const;
  // DeadlineExceeded after `timeout`; the load goes on, and so does its use of the targets.
  absl::StatusOr<LoadReport> Wait(absl::Duration timeout) const;
  // Gives up; the targets are in use until Wait() has returned something else than
  // DeadlineExceeded.
  void Cancel();

 private:
  std::shared_ptr<LoadProgress> progress_;
  std::function<void()> cancel_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_LOAD_H_
