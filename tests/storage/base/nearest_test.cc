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

TEST(Nearest, IsNothingIfNothingIsNear) {
  EXPECT_EQ(Nearest("restore", {"list", "status", "wait"}), "");
  EXPECT_EQ(Nearest("io", {"ls", "to"}), "to");
  EXPECT_EQ(Nearest("ab", {"cd"}), "");
  EXPECT_EQ(Nearest("", {"a"}), "");
  EXPECT_EQ(Nearest("a", {}), "");
}

}  // namespace
}  // namespace ckptd
