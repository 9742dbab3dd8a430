#include "client/cpp/save_progress.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

// With rank, node and phase, as far as the daemon knows them and the text does not name them.
absl::Status Described(const FailureInfo& failure) {
  if (failure.node.empty()) return failure.status;
  std::string where = absl::StrCat("node ", failure.node);
  if (!failure.phase.empty()) absl::StrAppend(&where, ", ", failure.phase);
  const std::string rank = failure.rank ? absl::StrCat("rank ", *failure.rank) : "";
  if (!rank.empty() && !absl::StrContains(failure.status.message(), rank)) {
    where = absl::StrCat(rank, ", ", where);
  }
  return absl::Status(failure.status.code(),
                      absl::StrCat(failure.status.message(), " (", where, ")"));
}

}  // namespace

absl::string_view SaveStateName(SaveState state) {
  switch (state) {
    case SaveState::kQueued:
      return "queued";
    case SaveState::kAdmitted:
      return "admitted";
    case SaveState::kStaged:
      return "staged";
    case SaveState::kDurable:
      return "durable";
    case SaveState::kCommitted:
      return "committed";
    case SaveState::kFailed:
      return "failed";
  }
  return "unknown";
}

SaveProgress::SaveProgress(std::string id, int64_t step, std::string request_id, const Clock& clock)
    : id_(std::move(id)),
      step_(step),
      request_id_(std::move(request_id)),
      clock_(clock),
      begun_(clock.Monotonic()) {}

// A waiter in a forked child would wait for a thread that is not there.
absl::Status SaveProgress::CheckProcess() const {
  if (getpid() == process_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("save ", id_, " belongs to process ", process_,
                                                    ", which this one was forked from"));
}

// Callbacks run without the lock, one at a time, each in the order of the states.
void SaveProgress::Deliver(std::unique_lock<std::mutex>& lock) {
  if (delivering_) return;
  delivering_ = true;
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < listeners_.size(); ++i) {  // Callbacks may add some.
      Listener& listener = listeners_[i];
      if (listener.heard == passed_.size()) continue;
      more = true;
      const SaveState state = passed_[listener.heard++];
      const FailureInfo failure = failure_;
      lock.unlock();
      listener.callback(state, failure);
      lock.lock();
    }
  }
  delivering_ = false;
}

void SaveProgress::Reach(SaveState state) {
  std::unique_lock lock(mutex_);
  if (state_ >= SaveState::kCommitted) return;
  const double now_s = absl::ToDoubleSeconds(clock_.Monotonic() - begun_);
  // A resumed stream may tell only the last one.
  for (int next = static_cast<int>(state_) + 1; next <= static_cast<int>(state); ++next) {
    state_ = static_cast<SaveState>(next);
    if (state_ == SaveState::kStaged) report_.staged_s = now_s;
    if (state_ == SaveState::kDurable) report_.durable_s = now_s;
    if (state_ == SaveState::kCommitted) report_.committed_s = now_s;
    passed_.push_back(state_);
  }
  changed_.notify_all();
  Deliver(lock);
}

void SaveProgress::Fail(FailureInfo failure) {
  std::unique_lock lock(mutex_);
  if (state_ >= SaveState::kCommitted) return;
  state_ = SaveState::kFailed;
  failure_ = std::move(failure);
  passed_.push_back(state_);
  changed_.notify_all();
  Deliver(lock);
}

void SaveProgress::Detach() {
  std::lock_guard lock(mutex_);
  detached_ = true;
  changed_.notify_all();
}

void SaveProgress::SetAttempt(std::string attempt) {
  std::lock_guard lock(mutex_);
  attempt_ = std::move(attempt);
}

void SaveProgress::SetBytes(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  report_.bytes = bytes;
}

void SaveProgress::AddBlocked(absl::Duration blocked) {
  std::lock_guard lock(mutex_);
  report_.blocked_s += absl::ToDoubleSeconds(blocked);
}

SaveState SaveProgress::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

bool SaveProgress::ended() const {
  std::lock_guard lock(mutex_);
  return state_ >= SaveState::kCommitted || detached_;
}

SaveReport SaveProgress::report() const {
  std::lock_guard lock(mutex_);
  return report_;
}

std::string SaveProgress::attempt() const {
  std::lock_guard lock(mutex_);
  return attempt_;
}

FailureInfo SaveProgress::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

absl::Status SaveProgress::Wait(SaveState state, absl::Duration timeout) {
  RETURN_IF_ERROR(CheckProcess());
  const auto deadline =
      std::chrono::steady_clock::now() +
      absl::ToChronoNanoseconds(std::min<absl::Duration>(timeout, absl::Hours(24 * 365)));
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return state_ >= state || detached_; });
  if (state_ == SaveState::kFailed) return Described(failure_);
  if (state_ >= state) return absl::OkStatus();
  if (detached_) {
    return absl::CancelledError(
        absl::StrCat("save ", id_, ": the session was closed when it was ", SaveStateName(state_)));
  }
  return absl::DeadlineExceededError(absl::StrCat("save ", id_, " is not ", SaveStateName(state),
                                                  " after ", absl::FormatDuration(timeout),
                                                  ", but ", SaveStateName(state_)));
}

void SaveProgress::OnState(SaveCallback callback) {
  std::unique_lock lock(mutex_);
  listeners_.push_back({std::move(callback)});
  Deliver(lock);
}

SaveHandle::SaveHandle(std::shared_ptr<SaveProgress> progress, std::function<void()> cancel)
    : progress_(std::move(progress)), cancel_(std::move(cancel)) {}

const std::string& SaveHandle::id() const { return progress_->id(); }
int64_t SaveHandle::step() const { return progress_->step(); }
const std::string& SaveHandle::request_id() const { return progress_->request_id(); }
SaveState SaveHandle::state() const { return progress_->state(); }
SaveReport SaveHandle::report() const { return progress_->report(); }
std::string SaveHandle::attempt() const { return progress_->attempt(); }
FailureInfo SaveHandle::failure() const { return progress_->failure(); }
void SaveHandle::Cancel() { cancel_(); }

absl::Status SaveHandle::Wait(SaveState state, absl::Duration timeout) const {
  return progress_->Wait(state, timeout);
}

void SaveHandle::OnState(SaveCallback callback) { progress_->OnState(std::move(callback)); }

}  // namespace ckptd::inline client
