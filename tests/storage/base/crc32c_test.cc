#include "storage/base/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace ckptd {
namespace {

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string up;
  for (char c = 0; c < 32; ++c) up += c;
  EXPECT_EQ(Crc32c(up), 0x46DD794Eu);
}

TEST(Crc32c, APartAfterAnotherExtendsIt) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 7);
  for (size_t cut : {size_t{0}, size_t{1}, size_t{8}, size_t{513}, text.size()}) {
    uint32_t first = Crc32c(absl::string_view(text).substr(0, cut));
    EXPECT_EQ(ExtendCrc32c(first, std::as_bytes(std::span(text).subspan(cut))), Crc32c(text));
  }
}

TEST(Crc32c, EveryFlippedBitShows) {
  std::string text(64, 'a');
  uint32_t crc = Crc32c(text);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string changed = text;
    changed[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_NE(Crc32c(changed), crc) << bit;
  }
}

}  // namespace
}  // namespace ckptd
