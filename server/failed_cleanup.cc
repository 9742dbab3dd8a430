#include "server/failed_cleanup.h"

#include <algorithm>
#include <utility>

#include "storage/commit/runner.h"

namespace ckptd {

FailedCleanUp::FailedCleanUp(ControlLoop& loop, std::shared_ptr<Root> root,
                             FinishFailed::Options options,
                             std::function<void(const absl::Status&)> on_trouble)
    : loop_(loop),
      root_(std::move(root)),
      options_(std::move(options)),
      on_trouble_(std::move(on_trouble)) {}

void FailedCleanUp::Try() {
  root_->readers().Post([self = shared_from_this()] {
    ActionRunner runner(self->root_->disk(), nullptr);
    FinishFailed finish(self->options_);
    runner.RunToEnd(finish);
    PruneFailed prune(self->options_.job);
    runner.RunToEnd(prune);
    auto space = self->root_->disk().Space();
    self->loop_.Post([self, space, status = finish.status()] {
      if (space.ok()) self->root_->SetFreeBytes(space->free_bytes);
      self->OnTried(status);
    });
  });
}

void FailedCleanUp::OnTried(const absl::Status& status) {
  ++tries_;
  if (status.ok()) return;
  if (tries_ == 1 && on_trouble_) on_trouble_(status);
  if (tries_ == kTriesMax || !root_->healthy()) return;
  loop_.After(pause_, [self = shared_from_this()] { self->Try(); });
  pause_ = std::min(2 * pause_, kPauseMax);
}

}  // namespace ckptd
