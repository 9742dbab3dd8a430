// LoadProgress: the outcome of one load, shared by its handles and the thread that runs it.
// Thread-safe.
#ifndef CKPTD_CLIENT_CPP_LOAD_PROGRESS_H_
#define CKPTD_CLIENT_CPP_LOAD_PROGRESS_H_

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>

#include "absl/status/statusor.h"
#include "client/cpp/load.h"

namespace ckptd::inline client {

class LoadProgress {
 public:
  void Finish(absl::StatusOr<LoadReport> outcome);  // Once.
  bool done() const;
  absl::StatusOr<LoadReport> Wait(absl::Duration timeout);

 private:
  const pid_t process_ = getpid();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::StatusOr<LoadReport>> outcome_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_LOAD_PROGRESS_H_
