#include "client/cpp/strided_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

namespace ckptd {
namespace {

using Sizes = std::vector<uint64_t>;
using Strides = std::vector<int64_t>;

std::vector<std::byte> Numbered(size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (size_t i = 0; i < bytes; ++i) result[i] = static_cast<std::byte>(i * 7 + i / 251);
  return result;
}

// Row-major content, element by element.
std::vector<std::byte> Reference(const std::byte* data, const Sizes& sizes, uint64_t element_bytes,
                                 const Strides& strides) {
  std::vector<std::byte> result;
  Sizes index(sizes.size());
  uint64_t count = 1;
  for (uint64_t size : sizes) count *= size;
  for (uint64_t n = 0; n < count; ++n) {
    uint64_t left = n;
    const std::byte* at = data;
    for (size_t i = sizes.size(); i-- > 0; left /= sizes[i]) {
      at += static_cast<int64_t>(left % sizes[i]) * strides[i];
    }
    result.insert(result.end(), at, at + element_bytes);
  }
  return result;
}

struct Case {
  const char* name;
  Sizes sizes;
  uint64_t element_bytes;
  Strides strides;
  int64_t first = 0;  // Byte of the lowest corner.
};

const Case kCases[] = {
    {"contiguous", {4, 5, 6}, 4, {120, 24, 4}},
    {"transposed", {6, 5}, 8, {8, 48}},
    {"every third", {50}, 4, {12}},
    {"expanded", {7, 9}, 2, {0, 0}},
    {"channels last", {2, 3, 4, 5}, 4, {240, 4, 60, 12}},
    {"backwards", {10}, 4, {-4}, 36},
    {"columns", {8, 3}, 4, {40, 4}},
    {"odd start", {11}, 8, {8}, 3},
    {"ones inside", {1, 6, 1, 4}, 4, {999, 32, 5, 4}},
    {"16-byte elements", {3, 4}, 16, {16, 48}},
    {"zero-d", {}, 4, {}},
};

TEST(StridedView, GathersEveryRangeAsTheReferenceDoes) {
  const std::vector<std::byte> memory = Numbered(4096);
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::vector<std::byte> copy = memory;
    const StridedView view(copy.data() + c.first, c.sizes, c.element_bytes, c.strides);
    const std::vector<std::byte> want =
        Reference(memory.data() + c.first, c.sizes, c.element_bytes, c.strides);
    ASSERT_EQ(view.bytes(), want.size());
    for (size_t begin = 0; begin <= want.size(); ++begin) {
      for (size_t end : {begin, begin + 1, begin + 3, begin + 16, want.size()}) {
        if (end > want.size()) continue;
        std::vector<std::byte> got(end - begin);
        view.Gather(begin, got);
        ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin() + begin))
            << begin << " " << end;
      }
    }
  }
}

TEST(StridedView, RunsAreContiguousAndNotEmpty) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::vector<std::byte> memory = Numbered(4096);
    const StridedView view(memory.data() + c.first, c.sizes, c.element_bytes, c.strides);
    const std::vector<std::byte> want =
        Reference(memory.data() + c.first, c.sizes, c.element_bytes, c.strides);
    for (size_t at = 0; at < want.size(); ++at) {
      const std::span<const std::byte> run = view.RunAt(at);
      ASSERT_GE(run.size(), 1u);
      ASSERT_LE(run.size(), want.size() - at);
      ASSERT_TRUE(std::equal(run.begin(), run.end(), want.begin() + at));
    }
  }
}

TEST(StridedView, ScatterUndoesGather) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    if (c.strides == Strides{0, 0}) continue;  // No target has two elements at one address.
    std::vector<std::byte> source = Numbered(4096);
    std::vector<std::byte> target(4096);
    const StridedView from(source.data() + c.first, c.sizes, c.element_bytes, c.strides);
    const StridedView to(target.data() + c.first, c.sizes, c.element_bytes, c.strides);
    std::vector<std::byte> content(from.bytes());
    from.Gather(0, content);
    for (size_t at = 0; at < content.size(); at += 13) {
      const size_t part = std::min<size_t>(13, content.size() - at);
      to.Scatter(at, std::span(content).subspan(at, part));
    }
    std::vector<std::byte> again(content.size());
    to.Gather(0, again);
    EXPECT_EQ(again, content);
  }
}

TEST(StridedView, AnEmptyBoxHasNoBytes) {
  EXPECT_EQ(StridedView(nullptr, {3, 0}, 4, {}).bytes(), 0u);
  EXPECT_EQ(StridedView(nullptr, {3, 0}, 4, {4, 4}).bytes(), 0u);
}

TEST(CheckStrides, RefusesWrongNumbersAndMissingData) {
  int x;
  EXPECT_TRUE(CheckStrides({2, 3}, {}, &x).ok());
  EXPECT_TRUE(CheckStrides({2, 3}, {12, 4}, &x).ok());
  EXPECT_TRUE(CheckStrides({0}, {}, nullptr).ok());
  EXPECT_EQ(CheckStrides({2, 3}, {4}, &x).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckStrides({2, 3}, {}, nullptr).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ckptd
