#include "client/examples/trainer_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SplitMix64, HasThePublishedValues) {
  // The first outputs of the generator with seed 0 and with seed 1234567.
  EXPECT_EQ(SplitMix64(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(SplitMix64(0x9E3779B97F4A7C15u), 0x6E789E6AA1B965F4u);
  EXPECT_EQ(SplitMix64(1234567), 6457827717110365317u);
}

TEST(Fnv1a64, HasThePublishedValues) {
  EXPECT_EQ(Fnv1a64(""), 0xCBF29CE484222325u);
  EXPECT_EQ(Fnv1a64("a"), 0xAF63DC4C8601EC8Cu);
  EXPECT_EQ(Fnv1a64("foobar"), 0x85944171F73967E8u);
}

TEST(TensorSeed, IsOfTheNameTheStepAndALocalRank) {
  EXPECT_EQ(TensorSeed("w", 7, std::nullopt), Fnv1a64("w|7"));
  EXPECT_EQ(TensorSeed("w", 7, 3), Fnv1a64("w|7|3"));
}

TEST(GenerateBytes, AnyRangeIsACutOfTheWhole) {
  std::vector<std::byte> whole(61);
  GenerateBytes(99, 0, whole);
  for (uint64_t i = 0; i < 7; ++i) {
    uint64_t word;
    std::memcpy(&word, whole.data() + 8 * i, 8);
    EXPECT_EQ(word, SplitMix64(99 + i));
  }
  for (size_t begin = 0; begin < whole.size(); ++begin) {
    std::vector<std::byte> part(whole.size() - begin);
    GenerateBytes(99, begin, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin));
  }
}

TEST(ParseTensorSpec, ReadsAllForms) {
  auto split = ParseTensorSpec("a:b:float32:3x5:split=1");
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(split->name, "a:b");
  EXPECT_EQ(split->dtype, DType::kFloat32);
  EXPECT_THAT(split->shape, ElementsAre(3, 5));
  EXPECT_EQ(split->split, Split::kDimension);
  EXPECT_EQ(split->dimension, 1u);
  EXPECT_EQ(ParseTensorSpec("w:int64:8x2")->split, Split::kDimension);
  EXPECT_EQ(ParseTensorSpec("w:int64:8")->split, Split::kReplicated);
  EXPECT_EQ(ParseTensorSpec("w:int64:8:local")->split, Split::kLocal);
  EXPECT_THAT(ParseTensorSpec("w:bool:")->shape, ElementsAre());
}

TEST(ParseTensorSpec, NamesWhatIsWrong) {
  EXPECT_THAT(std::string(ParseTensorSpec("w:float33:3").status().message()), HasSubstr("float33"));
  EXPECT_FALSE(ParseTensorSpec("w:float32").ok());
  EXPECT_FALSE(ParseTensorSpec("w:float32:3xx").ok());
  EXPECT_FALSE(ParseTensorSpec("w:float32:3:split=1").ok());
  EXPECT_FALSE(ParseTensorSpec("w:float32:3:split=x").ok());
}

TEST(BoxOf, SplitsAsTorchDoes) {
  const TensorSpec spec = *ParseTensorSpec("w:float32:6x2:split=0");
  EXPECT_THAT(BoxOf(spec, 0, 4)->sizes, ElementsAre(2, 2));
  EXPECT_THAT(BoxOf(spec, 2, 4)->offsets, ElementsAre(4, 0));
  EXPECT_FALSE(BoxOf(spec, 3, 4)) << "6 over 4 ranks leaves the last one nothing";
  EXPECT_TRUE(BoxOf(*ParseTensorSpec("w:float32:0x2"), 3, 4)) << "an empty tensor has no part";
}

}  // namespace
}  // namespace ckptd
