#include "client/cpp/stream_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace ckptd {
namespace {

TEST(StreamCopy, EveryKindCopiesFromEveryAlignment) {
  alignas(kStreamAlignment) static std::byte target[4096 + 64];
  std::vector<std::byte> source(4096 + 128);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31 + i / 256);
  for (StoreKind kind : SupportedStores()) {
    for (size_t shift = 0; shift < 64; ++shift) {
      for (size_t bytes : {size_t{0}, size_t{64}, size_t{128}, size_t{4096}}) {
        std::memset(target, 0xEE, sizeof(target));
        StreamCopy(kind, target, source.data() + shift, bytes);
        StreamFence();
        ASSERT_EQ(std::memcmp(target, source.data() + shift, bytes), 0);
        ASSERT_EQ(target[bytes], std::byte{0xEE}) << "nothing is written behind the end";
      }
    }
  }
}

TEST(StreamCopy, PlainStoresAreAlwaysThere) {
  EXPECT_EQ(SupportedStores().front(), StoreKind::kPlain);
  EXPECT_EQ(SupportedStores().back(), BestStores());
}

}  // namespace
}  // namespace ckptd
