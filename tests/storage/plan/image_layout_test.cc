#include "storage/plan/image_layout.h"

#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint32_t> AllOrdinals(const RankPlan& plan) {
  std::vector<uint32_t> ordinals(OrdinalCount(plan));
  for (uint32_t i = 0; i < ordinals.size(); ++i) ordinals[i] = i;
  return ordinals;
}

TEST(LayOutImage, OrdersPartsByElementSize) {
  RankPlan plan;
  plan.tensors = {
      Whole("bytes", DType::kUInt8, {3}),     Whole("doubles", DType::kFloat64, {2}),
      Whole("halves", DType::kBFloat16, {5}), Whole("complex", DType::kComplex128, {1}),
      Whole("more", DType::kInt64, {}),       Whole("float4", DType::kFloat4E2M1FNX2, {7})};
  plan.items = {Item("small", "value"), Item("large", std::string(70000, 'x'))};
  const ImageLayout layout = LayOutImage(plan, AllOrdinals(plan));
  ASSERT_EQ(layout.sections.size(), 1u);
  std::vector<uint32_t> ordinals;
  uint64_t end = 0;
  for (const PlacedPart& part : layout.sections[0].parts) {
    EXPECT_EQ(part.offset_bytes, end);
    end += part.bytes;
    ordinals.push_back(part.ordinal);
  }
  EXPECT_THAT(ordinals, ElementsAre(3, 1, 4, 2, 0, 5, 7));
  EXPECT_EQ(layout.sections[0].bytes, end);
  EXPECT_EQ(layout.image_bytes, end);
}

TEST(LayOutImage, PutsFurtherChunksOfATensorIntoFurtherSections) {
  RankPlan plan;
  plan.tensors = {Tensor("a", DType::kInt8, {9}, {{{0}, {2}}, {{3}, {0}}, {{4}, {1}}, {{6}, {3}}}),
                  Tensor("b", DType::kInt8, {9}, {{{0}, {5}}, {{5}, {4}}})};
  const ImageLayout layout = LayOutImage(plan, AllOrdinals(plan));
  ASSERT_EQ(layout.sections.size(), 3u);
  EXPECT_EQ(layout.sections[0].bytes, 7u);
  EXPECT_EQ(layout.sections[1].image_offset_bytes, 4096u);
  EXPECT_EQ(layout.sections[1].bytes, 5u);
  EXPECT_EQ(layout.sections[2].image_offset_bytes, 8192u);
  EXPECT_EQ(layout.sections[2].bytes, 3u);
  EXPECT_EQ(layout.image_bytes, 8195u);
  // The second chunk is the first that this rank writes.
  const uint32_t second[] = {2};
  EXPECT_EQ(LayOutImage(plan, second).sections.size(), 1u);
}

TEST(LayOutImage, NamesEmptyTensorsInTheFirstSection) {
  RankPlan plan;
  plan.tensors = {Whole("empty", DType::kInt8, {0}), Whole("full", DType::kInt8, {2})};
  ImageLayout layout = LayOutImage(plan, AllOrdinals(plan));
  ASSERT_EQ(layout.sections.size(), 1u);
  EXPECT_EQ(layout.sections[0].parts.size(), 1u);
  EXPECT_THAT(layout.sections[0].empty_tensors, ElementsAre(0));
  const uint32_t only_empty[] = {0};
  layout = LayOutImage(plan, only_empty);
  ASSERT_EQ(layout.sections.size(), 1u);
  EXPECT_EQ(layout.sections[0].bytes, 0u);
  EXPECT_THAT(layout.sections[0].parts, IsEmpty());
  EXPECT_EQ(layout.image_bytes, 0u);
}

TEST(LayOutImage, HasNoSectionForARankThatStoresNothing) {
  RankPlan plan;
  plan.tensors = {Whole("full", DType::kInt8, {2})};
  plan.items = {Item("small", "value")};
  EXPECT_THAT(LayOutImage(plan, {}).sections, IsEmpty());
  const uint32_t item[] = {1};
  EXPECT_THAT(LayOutImage(plan, item).sections, IsEmpty());
}

TEST(UnitSizes, CutsAtEachMebibyteOfTheImage) {
  EXPECT_THAT(UnitSizes(0, 0), IsEmpty());
  EXPECT_THAT(UnitSizes(4096, 0), IsEmpty());
  EXPECT_THAT(UnitSizes(0, 1), ElementsAre(1));
  EXPECT_THAT(UnitSizes(0, kUnitBytes), ElementsAre(kUnitBytes));
  EXPECT_THAT(UnitSizes(4096, kUnitBytes), ElementsAre(kUnitBytes - 4096, 4096));
  EXPECT_THAT(UnitSizes(kUnitBytes - 4096, 2 * kUnitBytes),
              ElementsAre(4096, kUnitBytes, kUnitBytes - 4096));
}

TEST(UnitsOf, BlocksTogetherHaveTheUnitsOfTheSections) {
  std::mt19937_64 random(1);
  auto pick = [&](uint64_t low, uint64_t high) {
    return std::uniform_int_distribution<uint64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    ImageLayout layout;
    const uint64_t sections = pick(0, 5);
    for (uint64_t i = 0; i < sections; ++i) {
      Section& section = layout.sections.emplace_back();
      section.image_offset_bytes = (layout.image_bytes + 4095) / 4096 * 4096;
      section.bytes = pick(0, 2) == 0 ? pick(1, 100) : pick(1, 5 * kUnitBytes);
      layout.image_bytes = section.image_offset_bytes + section.bytes;
    }
    const uint64_t block_bytes = kUnitBytes * pick(1, 4);
    std::vector<Unit> units;
    for (uint64_t begin = 0; begin < layout.image_bytes; begin += block_bytes) {
      const uint64_t end = std::min(begin + block_bytes, layout.image_bytes);
      for (const Unit& unit : UnitsOf(layout, begin, end)) {
        EXPECT_GE(unit.image_offset_bytes, begin);
        EXPECT_LE(unit.image_offset_bytes + unit.bytes, end);
        units.push_back(unit);
      }
    }
    size_t at = 0;
    for (uint32_t i = 0; i < layout.sections.size(); ++i) {
      uint64_t offset = layout.sections[i].image_offset_bytes;
      for (uint64_t bytes : UnitSizes(offset, layout.sections[i].bytes)) {
        ASSERT_LT(at, units.size());
        EXPECT_EQ(units[at].section, i);
        EXPECT_EQ(units[at].image_offset_bytes, offset);
        EXPECT_EQ(units[at].bytes, bytes);
        offset += bytes;
        ++at;
      }
      EXPECT_EQ(offset, layout.sections[i].image_offset_bytes + layout.sections[i].bytes);
    }
    EXPECT_EQ(at, units.size());
    if (HasFailure()) FAIL() << "round " << round;
  }
}

}  // namespace
}  // namespace ckptd
