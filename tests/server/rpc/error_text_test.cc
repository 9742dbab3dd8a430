#include "server/rpc/error_text.h"

#include <string>

#include "gtest/gtest.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {
namespace {

TEST(ErrorText, TextsStay) {
  EXPECT_EQ(ErrorText(absl::DataLossError("shard \xC3\xA9: it is damaged")),
            "shard \xC3\xA9: it is damaged");
}

TEST(ErrorText, WhatNoTrailerTakesIsCutOrEscaped) {
  for (const std::string& message :
       {std::string(100'000, 'x'), std::string(100'000, '\xFF'), std::string(100, '\0'),
        std::string(1999, 'x') + "\xF0\x9F\x98\x80" + std::string(100, 'x')}) {
    const std::string text = ErrorText(absl::NotFoundError(message));
    EXPECT_TRUE(CheckEntryName(text).ok()) << text;
    EXPECT_LE(text.size(), 2010u);
    EXPECT_GE(text.size(), 100u);
  }
}

}  // namespace
}  // namespace ckptd
