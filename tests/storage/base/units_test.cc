#include "storage/base/units.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace ckptd {
namespace {

TEST(Units, SizesAreParsed) {
  EXPECT_EQ(*ParseSize("0"), 0u);
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("16KiB"), 16 * kKiB);
  EXPECT_EQ(*ParseSize("64MiB"), 64 * kMiB);
  EXPECT_EQ(*ParseSize("1GiB"), kGiB);
  EXPECT_EQ(*ParseSize("2TiB"), 2048 * kGiB);
  EXPECT_EQ(*ParseSize("18446744073709551615"), ~uint64_t{0});
}

TEST(Units, WhatIsNoSizeIsNamed) {
  for (const char* text : {"", "MiB", "-1", "+1", "1 MiB", "1MB", "1mib", "1.5GiB", "0x10", " 1",
                           "18446744073709551616", "16777216TiB"}) {
    absl::Status status = ParseSize(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
}

TEST(Units, DurationsAreParsed) {
  EXPECT_EQ(*ParseDuration("0"), absl::ZeroDuration());
  EXPECT_EQ(*ParseDuration("250ms"), absl::Milliseconds(250));
  EXPECT_EQ(*ParseDuration("10s"), absl::Seconds(10));
  EXPECT_EQ(*ParseDuration("2m"), absl::Minutes(2));
  EXPECT_EQ(*ParseDuration("3h"), absl::Hours(3));
  EXPECT_EQ(*ParseDuration("0.5s"), absl::Milliseconds(500));
}

TEST(Units, WhatIsNoDurationIsNamed) {
  for (const char* text : {"", "s", "10", "-1s", "1d", "1e3s", "1 s", "1.2.3s"}) {
    absl::Status status = ParseDuration(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
}

TEST(Units, WhatIsFormattedIsReadBack) {
  for (uint64_t bytes :
       {uint64_t{0}, uint64_t{1}, uint64_t{4097}, 4 * kKiB, 16 * kMiB, 5 * kGiB, 1024 * kGiB}) {
    EXPECT_EQ(*ParseSize(FormatSize(bytes)), bytes) << FormatSize(bytes);
  }
  for (absl::Duration duration : {absl::ZeroDuration(), absl::Milliseconds(1), absl::Seconds(90),
                                  absl::Minutes(10), absl::Hours(2)}) {
    EXPECT_EQ(*ParseDuration(ckptd::FormatDuration(duration)), duration)
        << ckptd::FormatDuration(duration);
  }
  EXPECT_EQ(FormatSize(16 * kMiB), "16MiB");
  EXPECT_EQ(FormatSize(4097), "4097");
  EXPECT_EQ(ckptd::FormatDuration(absl::Seconds(10)), "10s");
  EXPECT_EQ(ckptd::FormatDuration(absl::Seconds(600)), "10m");
  EXPECT_EQ(ckptd::FormatDuration(absl::Milliseconds(250)), "250ms");
}

TEST(Units, PeopleGetThreeDigits) {
  EXPECT_EQ(HumanSize(0), "0 B");
  EXPECT_EQ(HumanSize(1023), "1023 B");
  EXPECT_EQ(HumanSize(90900000), "86.7 MiB");
  EXPECT_EQ(HumanSize(kGiB), "1 GiB");
}

TEST(Units, RoundingUpKeepsMultiples) {
  EXPECT_EQ(RoundUp(0, 4096), 0u);
  EXPECT_EQ(RoundUp(1, 4096), 4096u);
  EXPECT_EQ(RoundUp(4096, 4096), 4096u);
  EXPECT_EQ(RoundUp(4097, 4096), 8192u);
}

}  // namespace
}  // namespace ckptd
