#include "client/cli/progress.h"

#include "gtest/gtest.h"

namespace ckptd {
namespace {

v1::StatusReply Written(uint64_t bytes) {
  v1::StatusReply reply;
  v1::Attempt& attempt = *reply.add_attempts();
  attempt.set_job("j");
  attempt.set_attempt("1-ab");
  attempt.set_planned_bytes(1000);
  attempt.set_written_bytes(bytes);
  return reply;
}

TEST(Progress, TheRateIsThatOfTwoLooks) {
  ProgressMeter meter;
  EXPECT_FALSE(meter.Update(Written(100), absl::Seconds(5))[0].bytes_per_s);
  Progress progress = meter.Update(Written(300), absl::Seconds(7))[0];
  EXPECT_EQ(progress.bytes_per_s, 100);
  EXPECT_EQ(progress.left, absl::Seconds(7));
}

TEST(Progress, WhatStandsStillHasARateAndNoEnd) {
  ProgressMeter meter;
  meter.Update(Written(100), absl::Seconds(5));
  Progress progress = meter.Update(Written(100), absl::Seconds(6))[0];
  EXPECT_EQ(progress.bytes_per_s, 0);
  EXPECT_FALSE(progress.left);
}

TEST(Progress, WhatBeginsAgainIsUnknown) {
  ProgressMeter meter;
  meter.Update(Written(500), absl::Seconds(5));
  EXPECT_FALSE(meter.Update(Written(100), absl::Seconds(6))[0].bytes_per_s) << "a new daemon's";
  EXPECT_TRUE(meter.Update(Written(200), absl::Seconds(7))[0].bytes_per_s);
  meter.Update(v1::StatusReply(), absl::Seconds(8));
  EXPECT_FALSE(meter.Update(Written(300), absl::Seconds(9))[0].bytes_per_s) << "it was away";
  EXPECT_FALSE(meter.Update(Written(400), absl::Seconds(9))[0].bytes_per_s) << "no time passed";
}

}  // namespace
}  // namespace ckptd
