#include "storage/base/nearest.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

TEST(Nearest, IsTheNameWithTheFewestEdits) {
  EXPECT_EQ(Nearest("lst", {"latest", "list"}), "list");
  EXPECT_EQ(Nearest("stauts", {"list", "status"}), "status");
  EXPECT_EQ(Nearest("max-inflght-atempt", {"max-inflight-attempts", "io"}),
            "max-inflight-attempts");
}

TEST(Nearest, IsLikelyMeantOnlyIfItIsNear) {
  EXPECT_EQ(Nearest("restore", {"status", "health", "restart"}), "restart");
  EXPECT_EQ(LikelyMeant("restore", {"list", "status", "wait"}), "");
  EXPECT_EQ(LikelyMeant("io", {"ls", "to"}), "to");
  EXPECT_EQ(LikelyMeant("ab", {"cd"}), "");
  EXPECT_EQ(LikelyMeant("", {"a"}), "");
  EXPECT_EQ(LikelyMeant("a", {}), "");
}

}  // namespace
}  // namespace ckptd
