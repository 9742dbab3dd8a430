#include "client/cpp/load_progress.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd::inline client {

void LoadProgress::Finish(absl::StatusOr<LoadReport> outcome) {
  std::lock_guard lock(mutex_);
  outcome_ = std::move(outcome);
  changed_.notify_all();
}

bool LoadProgress::done() const {
  std::lock_guard lock(mutex_);
  return outcome_.has_value();
}

absl::StatusOr<LoadReport> LoadProgress::Wait(absl::Duration timeout) {
  if (getpid() != process_) {
    return absl::FailedPreconditionError(absl::StrCat("this load belongs to process ", process_,
                                                      ", which this one was forked from"));
  }
  const auto deadline =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::min<absl::Duration>(timeout, absl::Hours(24 * 365)));
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return outcome_.has_value(); });
  if (outcome_) return *outcome_;
  return absl::DeadlineExceededError(
      absl::StrCat("the load is not done after ", absl::FormatDuration(timeout)));
}

LoadHandle::LoadHandle(std::shared_ptr<LoadProgress> progress, std::function<void()> cancel)
    : progress_(std::move(progress)), cancel_(std::move(cancel)) {}

bool LoadHandle::done() const { return progress_->done(); }
absl::StatusOr<LoadReport> LoadHandle::Wait(absl::Duration timeout) const {
  return progress_->Wait(timeout);
}
void LoadHandle::Cancel() { cancel_(); }

}  // namespace ckptd::inline client
