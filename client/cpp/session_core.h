// SessionCore is what a Session consists of: the link to the daemon, the arena, and the saves and
// loads that run. Threads as in session.h.
#ifndef CKPTD_CLIENT_CPP_SESSION_CORE_H_
#define CKPTD_CLIENT_CPP_SESSION_CORE_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/arena_map.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/link.h"
#include "client/cpp/load_run.h"
#include "client/cpp/options.h"
#include "client/cpp/save_run.h"
#include "client/cpp/session.h"
#include "client/cpp/turns.h"
#include "client/cpp/worker_pool.h"

namespace ckptd::inline client {

class SessionCore {
 public:
  static absl::StatusOr<std::shared_ptr<SessionCore>> Open(const SessionOptions& options);
  ~SessionCore();

  absl::Status CheckProcess() const { return guard_.Check(); }
  const Identity& identity() const { return identity_; }
  std::string node() const;

  // As the methods of Session of these names.
  absl::Status Prewarm(State state, absl::Duration timeout);
  absl::StatusOr<SaveHandle> AsyncSave(const std::string& id, int64_t step, State state,
                                       const SaveOptions& options);
  absl::Status Lock(absl::Duration timeout);
  absl::StatusOr<LoadHandle> Load(const std::string& id, std::vector<TensorTarget> targets,
                                  const LoadOptions& options);
  absl::StatusOr<std::optional<CheckpointInfo>> Latest();
  absl::Status Close(CloseMode mode, absl::Duration timeout);
  std::span<std::byte> LastSealedBlock();

 private:
  // A save or load and its thread.
  template <typename Run>
  struct Running {
    std::shared_ptr<Run> run;
    std::thread thread;
  };

  SessionCore(const SessionOptions& options, Identity identity);

  SaveSettings SettingsFor(const SaveOptions& options) const;
  absl::StatusOr<std::shared_ptr<SaveRun>> StartSave(const std::string& id, int64_t step,
                                                     std::unique_ptr<PlannedState> state,
                                                     const SaveOptions& options);
  std::vector<std::shared_ptr<SaveRun>> Saves() const;
  void Reap();
  void JoinAll();
  absl::Status AwaitSaves(CloseMode mode, absl::Duration timeout) const;

  const SessionOptions options_;
  const Identity identity_;
  ForkGuard guard_;
  WorkerPool pool_;
  Turns turns_;
  Arena arena_;
  std::unique_ptr<Link> link_;

  mutable std::mutex mutex_;
  bool closed_ = false;  // Guarded by mutex_, as all below.
  uint64_t saves_begun_ = 0;
  std::vector<Running<SaveRun>> saves_;
  std::vector<Running<LoadRun>> loads_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_SESSION_CORE_H_
