#include "storage/base/clock.h"

#include <gtest/gtest.h>

#include "absl/time/clock.h"

namespace ckptd {
namespace {

TEST(SystemClock, MonotonicTimeNeverGoesBack) {
  absl::Duration last = SystemClock().Monotonic();
  for (int i = 0; i < 1000; ++i) {
    absl::Duration now = SystemClock().Monotonic();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(SystemClock, WallTimeIsTheTimeOfDay) {
  EXPECT_LT(absl::AbsDuration(SystemClock().Wall() - absl::Now()), absl::Seconds(1));
}

}  // namespace
}  // namespace ckptd
