#include "client/cli/terminal.h"

#include "gtest/gtest.h"

namespace ckptd {
namespace {

TEST(Terminal, WhatDoesNotFitIsCutAndCounted) {
  EXPECT_EQ(FitToScreen("one\ntwo\n", 10, 10), "one\x1b[K\ntwo\x1b[K\n");
  EXPECT_EQ(FitToScreen("1\n2\n3\n4\n5\n", 4, 20), "1\x1b[K\n2\x1b[K\n… 3 more lines\x1b[K\n");
  EXPECT_EQ(FitToScreen("abcdef\n", 5, 4), "abcd\x1b[K\n");
  EXPECT_EQ(FitToScreen("äöü€\n", 5, 3), "äöü\x1b[K\n") << "characters are not bytes";
  EXPECT_EQ(FitToScreen("", 5, 3), "");
}

}  // namespace
}  // namespace ckptd
