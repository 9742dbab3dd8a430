#include "client/cpp/session.h"

#include <utility>

#include "client/cpp/session_core.h"
#include "storage/base/status.h"

namespace ckptd::inline client {

Session::Session(std::shared_ptr<SessionCore> core) : core_(std::move(core)) {}

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const SessionOptions& options) {
  ASSIGN_OR_RETURN(std::shared_ptr<SessionCore> core, SessionCore::Open(options));
  return std::unique_ptr<Session>(new Session(std::move(core)));
}

Session::~Session() {
  if (core_->CheckProcess().ok()) {
    Close(CloseMode::kDetach).IgnoreError();
  } else {
    ForkGuard::Leak(std::move(core_));
  }
}

const std::string& Session::job() const { return core_->identity().job; }
uint32_t Session::rank() const { return core_->identity().rank; }
uint32_t Session::world_size() const { return core_->identity().world_size; }
const std::string& Session::incarnation() const { return core_->identity().incarnation; }

std::string Session::node() const {
  return core_->CheckProcess().ok() ? core_->node() : std::string();
}

absl::Status Session::Prewarm(State state, absl::Duration timeout) {
  RETURN_IF_ERROR(core_->CheckProcess());
  return core_->Prewarm(std::move(state), timeout);
}

absl::StatusOr<SaveHandle> Session::AsyncSave(const std::string& id, int64_t step, State state,
                                              const SaveOptions& options) {
  RETURN_IF_ERROR(core_->CheckProcess());
  return core_->AsyncSave(id, step, std::move(state), options);
}

absl::Status Session::Lock(absl::Duration timeout) {
  RETURN_IF_ERROR(core_->CheckProcess());
  return core_->Lock(timeout);
}

absl::StatusOr<LoadHandle> Session::Load(const std::string& id, std::vector<TensorTarget> targets,
                                         const LoadOptions& options) {
  RETURN_IF_ERROR(core_->CheckProcess());
  return core_->Load(id, std::move(targets), options);
}

absl::StatusOr<std::optional<CheckpointInfo>> Session::Latest() {
  RETURN_IF_ERROR(core_->CheckProcess());
  return core_->Latest();
}

absl::Status Session::Close(CloseMode mode, absl::Duration timeout) {
  RETURN_IF_ERROR(core_->CheckProcess());
  return core_->Close(mode, timeout);
}

std::span<std::byte> Session::LastSealedBlock() {
  return core_->CheckProcess().ok() ? core_->LastSealedBlock() : std::span<std::byte>();
}

}  // namespace ckptd::inline client
