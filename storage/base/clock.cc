#include "storage/base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace ckptd {
namespace {

class System : public Clock {
 public:
  absl::Duration Monotonic() const override {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return absl::DurationFromTimespec(now);
  }
  absl::Time Wall() const override { return absl::Now(); }
};

}  // namespace

const Clock& SystemClock() {
  static const System* const clock = new System;
  return *clock;
}

}  // namespace ckptd
