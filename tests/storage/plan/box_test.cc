#include "storage/plan/box.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;
using Random = std::mt19937_64;

uint64_t Pick(Random& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

Box RandomBox(Random& random, const Shape& shape) {
  Box box;
  for (uint64_t size : shape) {
    box.offsets.push_back(Pick(random, 0, size));
    box.sizes.push_back(Pick(random, 0, size - box.offsets.back()));
  }
  return box;
}

// Calls `visit` with the row-major index of each element of a box of this shape.
void ForEachElement(const Shape& shape, const Box& box,
                    const std::function<void(uint64_t index)>& visit) {
  std::function<void(size_t, uint64_t)> descend = [&](size_t d, uint64_t index) {
    if (d == shape.size()) return visit(index);
    for (uint64_t i = 0; i < box.sizes[d]; ++i) {
      descend(d + 1, index * shape[d] + box.offsets[d] + i);
    }
  };
  descend(0, 0);
}

// How often each element is covered.
std::vector<int> Cover(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<int> cover(Elements(shape), 0);
  for (const Box& box : boxes) {
    ForEachElement(shape, box, [&](uint64_t index) { ++cover[index]; });
  }
  return cover;
}

// Cuts the shape by planes, at random, into at most `count` boxes.
std::vector<Box> RandomTiling(Random& random, const Shape& shape, size_t count) {
  std::vector<Box> boxes = {WholeBox(shape)};
  for (size_t tries = 0; tries < 4 * count && boxes.size() < count && !shape.empty(); ++tries) {
    Box& box = boxes[Pick(random, 0, boxes.size() - 1)];
    const size_t d = Pick(random, 0, shape.size() - 1);
    if (box.sizes[d] < 2) continue;
    const uint64_t cut = Pick(random, 1, box.sizes[d] - 1);
    Box rest = box;
    rest.offsets[d] += cut;
    rest.sizes[d] -= cut;
    box.sizes[d] = cut;
    boxes.push_back(rest);
  }
  std::shuffle(boxes.begin(), boxes.end(), random);
  return boxes;
}

// Compares FindTilingFault() with counting.
void ExpectRightVerdict(const Shape& shape, const std::vector<Box>& boxes) {
  const std::vector<int> cover = Cover(shape, boxes);
  const bool twice = std::any_of(cover.begin(), cover.end(), [](int n) { return n > 1; });
  const bool never = std::any_of(cover.begin(), cover.end(), [](int n) { return n == 0; });
  const std::optional<TilingFault> fault = FindTilingFault(shape, boxes);
  EXPECT_EQ(CheckTiling(shape, boxes).ok(), !twice && !never);
  ASSERT_EQ(fault.has_value(), twice || never);
  if (!fault) return;
  ASSERT_EQ(fault->overlap.has_value(), twice);
  ASSERT_TRUE(CheckInside(fault->region, shape).ok());
  EXPECT_GT(Elements(fault->region.sizes), 0u);
  ForEachElement(shape, fault->region, [&](uint64_t index) {
    EXPECT_TRUE(twice ? cover[index] > 1 : cover[index] == 0) << ToString(fault->region);
  });
  if (!twice) return;
  EXPECT_LT(fault->overlap->first, fault->overlap->second);
  EXPECT_EQ(Intersect(boxes[fault->overlap->first], boxes[fault->overlap->second]), fault->region);
}

TEST(CheckedBytes, RefusesWhatDoesNotFitInto63Bits) {
  EXPECT_EQ(*CheckedBytes({}, 8), 8u);
  EXPECT_EQ(*CheckedBytes({3, 5}, 4), 60u);
  EXPECT_EQ(*CheckedBytes({3, 0}, 4), 0u);
  EXPECT_EQ(*CheckedBytes({uint64_t{1} << 62}, 1), uint64_t{1} << 62);
  const uint64_t huge = uint64_t{1} << 40;
  EXPECT_THAT(CheckedBytes({huge, huge}, 1).status().message(), HasSubstr("63 bits"));
  EXPECT_FALSE(CheckedBytes({uint64_t{1} << 62}, 2).ok());
  EXPECT_FALSE(CheckedBytes({0, huge, huge}, 1).ok());
  EXPECT_FALSE(CheckedBytes({huge, huge, 0}, 1).ok());
  EXPECT_TRUE(CheckedBytes(Shape(64, 1), 1).ok());
  EXPECT_EQ(CheckedBytes(Shape(65, 1), 1).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckInside, NamesBoxAndShape) {
  EXPECT_TRUE(CheckInside({{}, {}}, {}).ok());
  EXPECT_TRUE(CheckInside({{4}, {0}}, {4}).ok());
  const absl::Status status = CheckInside({{2, 0}, {3, 1}}, {4, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("[2:5, 0:1]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("[4, 1]"));
  const uint64_t max = std::numeric_limits<uint64_t>::max();
  EXPECT_FALSE(CheckInside({{max}, {2}}, {4}).ok());
  EXPECT_FALSE(CheckInside({{2}, {max}}, {4}).ok());
  EXPECT_FALSE(CheckInside({{0}, {1}}, {4, 1}).ok());
  EXPECT_FALSE(CheckInside({{0, 0}, {1}}, {4, 1}).ok());
}

TEST(Intersect, FindsTheElementsThatBothHave) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    Shape shape(Pick(random, 0, 3));
    for (uint64_t& size : shape) size = Pick(random, 1, 6);
    const Box a = RandomBox(random, shape), b = RandomBox(random, shape);
    std::vector<int> cover = Cover(shape, {a, b});
    const std::optional<Box> common = Intersect(a, b);
    uint64_t twice = 0;
    for (int n : cover) twice += n == 2;
    ASSERT_EQ(common.has_value(), twice > 0);
    if (!common) continue;
    EXPECT_EQ(Elements(common->sizes), twice);
    ForEachElement(shape, *common, [&](uint64_t index) { EXPECT_EQ(cover[index], 2); });
  }
}

TEST(CheckTiling, AgreesWithCountingOnTilingsAndOnTilingsWithAFault) {
  Random random(2);
  for (int round = 0; round < 2000; ++round) {
    Shape shape(Pick(random, 0, 4));
    for (uint64_t& size : shape) size = Pick(random, 1, 7);
    std::vector<Box> boxes = RandomTiling(random, shape, Pick(random, 1, 30));
    ExpectRightVerdict(shape, boxes);
    Box& box = boxes[Pick(random, 0, boxes.size() - 1)];
    switch (Pick(random, 0, 3)) {
      case 0:
        box = boxes.back();
        boxes.pop_back();
        break;
      case 1:
        boxes.push_back(RandomBox(random, shape));
        break;
      case 2:
        box = RandomBox(random, shape);
        break;
      default:  // The volume stays, the place changes.
        for (size_t d = 0; d < shape.size(); ++d) {
          box.offsets[d] = Pick(random, 0, shape[d] - box.sizes[d]);
        }
    }
    ExpectRightVerdict(shape, boxes);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(CheckTiling, AgreesWithCountingOnAnyBoxes) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    Shape shape(Pick(random, 0, 4));
    for (uint64_t& size : shape) size = Pick(random, 0, 4);
    std::vector<Box> boxes(Pick(random, 0, 6));
    for (Box& box : boxes) box = RandomBox(random, shape);
    ExpectRightVerdict(shape, boxes);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(CheckTiling, TakesTilingsThatNoPlaneSeparates) {
  const std::vector<Box> pinwheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  ExpectRightVerdict({3, 3}, pinwheel);
  EXPECT_TRUE(CheckTiling({3, 3}, pinwheel).ok());
  // In three dimensions: 2x2x2 without two opposite corners, around which three bars wind.
  const std::vector<Box> bars = {{{0, 0, 0}, {1, 1, 1}},
                                 {{1, 1, 1}, {1, 1, 1}},
                                 {{0, 1, 0}, {1, 1, 2}},
                                 {{1, 0, 0}, {1, 2, 1}},
                                 {{0, 0, 1}, {2, 1, 1}}};
  ExpectRightVerdict({2, 2, 2}, bars);
  EXPECT_TRUE(CheckTiling({2, 2, 2}, bars).ok());
}

TEST(CheckTiling, NamesTheRegionThatIsMissingOrTwofold) {
  const absl::Status missing = CheckTiling({8, 4}, {{{0, 0}, {3, 4}}, {{5, 0}, {3, 4}}});
  EXPECT_EQ(missing.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(missing.message(), "region [3:5, 0:4] of [8, 4] is missing");
  const absl::Status twofold = CheckTiling({8, 4}, {{{0, 0}, {5, 4}}, {{4, 0}, {4, 4}}});
  EXPECT_EQ(twofold.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(twofold.message(), "region [4:5, 0:4] is in two boxes: [0:5, 0:4] and [4:8, 0:4]");
  EXPECT_EQ(CheckTiling({8}, {{{0}, {9}}}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckTiling({}, {}).message(), "region [] of [] is missing");
}

TEST(CheckTiling, IgnoresEmptyBoxesAndTensors) {
  EXPECT_TRUE(CheckTiling({4}, {{{0}, {4}}, {{2}, {0}}, {{4}, {0}}}).ok());
  EXPECT_TRUE(CheckTiling({0, 3}, {}).ok());
  EXPECT_TRUE(CheckTiling({0, 3}, {{{0, 0}, {0, 3}}, {{0, 0}, {0, 3}}}).ok());
}

TEST(CheckTiling, TakesThousandsOfBoxesAtOnce) {
  std::vector<std::pair<Shape, std::vector<Box>>> cases(5);
  for (uint64_t i = 0; i < 50000; ++i) {  // Rows; a grid; a grid of three dimensions.
    cases[0].second.push_back({{i, 0}, {1, 7}});
    cases[1].second.push_back({{i / 250 * 3, i % 250 * 2}, {3, 2}});
    cases[2].second.push_back({{i / 1250, i / 25 % 50, i % 25}, {1, 1, 1}});
  }
  for (uint64_t i = 0; i < 2500; ++i) {  // Columns, each cut at its own height: 5 000 boxes.
    cases[3].second.push_back({{0, i}, {i + 1, 1}});
    cases[3].second.push_back({{i + 1, i}, {2500 - i, 1}});
  }
  Random random(4);
  cases[4] = {{300, 300, 300}, RandomTiling(random, {300, 300, 300}, 5000)};
  cases[0].first = {50000, 7};
  cases[1].first = {600, 500};
  cases[2].first = {40, 50, 25};
  cases[3].first = {2501, 2500};
  for (auto& [shape, boxes] : cases) {
    std::shuffle(boxes.begin(), boxes.end(), random);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(CheckTiling(shape, boxes).ok());
    Box lost = boxes.back();
    boxes.pop_back();
    EXPECT_FALSE(CheckTiling(shape, boxes).ok());
    boxes.push_back(lost);
    boxes.push_back(lost);
    EXPECT_FALSE(CheckTiling(shape, boxes).ok());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 20) << boxes.size() << " boxes of " << ShapeString(shape);
    RecordProperty("milliseconds of " + ShapeString(shape), std::to_string(took.count() * 1e3));
  }
}

TEST(ForEachRun, MovesTheElementsOfTheInnerBoxInAsFewRunsAsThereAre) {
  Random random(5);
  for (int round = 0; round < 2000; ++round) {
    Shape shape(Pick(random, 0, 4));
    for (uint64_t& size : shape) size = Pick(random, 1, 5);
    const Box outer = RandomBox(random, shape);
    Box inner = outer;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (Pick(random, 0, 1) == 0) continue;
      const uint64_t skip = Pick(random, 0, outer.sizes[d]);
      inner.offsets[d] += skip;
      inner.sizes[d] = Pick(random, 0, outer.sizes[d] - skip);
    }
    // Each element is a 16-bit number: its place in the tensor.
    std::vector<uint16_t> outer_values, inner_values;
    ForEachElement(shape, outer, [&](uint64_t index) { outer_values.push_back(index); });
    ForEachElement(shape, inner, [&](uint64_t index) { inner_values.push_back(index); });
    std::vector<uint16_t> moved(inner_values.size(), 0xFFFF);
    uint64_t expected_inner = 0, outer_end = 0;
    ForEachRun(outer, inner, 2, [&](uint64_t from, uint64_t to, uint64_t bytes) {
      EXPECT_EQ(to, expected_inner);
      EXPECT_TRUE(to == 0 || from > outer_end) << "two runs that touch";
      ASSERT_LE(from + bytes, outer_values.size() * 2);
      ASSERT_LE(to + bytes, moved.size() * 2);
      std::memcpy(reinterpret_cast<char*>(moved.data()) + to,
                  reinterpret_cast<const char*>(outer_values.data()) + from, bytes);
      expected_inner = to + bytes;
      outer_end = from + bytes;
    });
    EXPECT_EQ(moved, inner_values);
    if (HasFailure()) FAIL() << ToString(outer) << " " << ToString(inner);
  }
}

TEST(ToString, WritesRangesAndSizes) {
  EXPECT_EQ(ToString(Box{{0, 16}, {4, 16}}), "[0:4, 16:32]");
  EXPECT_EQ(ToString(Box{}), "[]");
  EXPECT_EQ(ShapeString({8, 32}), "[8, 32]");
  EXPECT_EQ(ShapeString({}), "[]");
}

}  // namespace
}  // namespace ckptd
