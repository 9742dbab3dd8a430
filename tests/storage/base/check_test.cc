#include "storage/base/check.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

TEST(Check, ATrueConditionHasNoEffect) { CKPT_CHECK(1 + 1 == 2, "numbers work"); }

TEST(CheckDeathTest, AFalseOneEndsTheProcessNamingConditionAndInvariant) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_DEATH(CKPT_CHECK(1 + 1 == 3, "numbers work"),
               "check_test.cc:[0-9]+: CKPT_CHECK\\(1 \\+ 1 == 3\\) failed: numbers work");
}

}  // namespace
}  // namespace ckptd
