// FakeClock stands still until a test moves it. Thread-safe.
//
// A control loop notices with its next task: tests post one after moving the clock.
#ifndef CKPTD_TESTS_SUPPORT_FAKE_CLOCK_H_
#define CKPTD_TESTS_SUPPORT_FAKE_CLOCK_H_

#include <mutex>

#include "absl/time/time.h"
#include "storage/base/clock.h"

namespace ckptd {

class FakeClock : public Clock {
 public:
  absl::Duration Monotonic() const override {
    std::lock_guard lock(mutex_);
    return now_;
  }

  absl::Time Wall() const override { return absl::FromUnixSeconds(1'700'000'000) + Monotonic(); }

  void Advance(absl::Duration duration) {
    std::lock_guard lock(mutex_);
    now_ += duration;
  }

 private:
  mutable std::mutex mutex_;
  absl::Duration now_ = absl::Seconds(1000);  // Guarded by mutex_.
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_FAKE_CLOCK_H_
