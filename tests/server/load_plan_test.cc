#include "server/load_plan.h"

#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

constexpr uint64_t kReadMax = 4 * kUnitBytes;

StoredFile File(std::string name, uint32_t rank, uint64_t data_bytes, uint64_t image_offset = 0) {
  StoredFile file;
  file.name = std::move(name);
  file.rank = rank;
  file.header_bytes = 8192;
  file.bytes = file.header_bytes + data_bytes;
  file.image_offset_bytes = image_offset;
  file.unit_crc32c.resize(UnitSizes(image_offset, data_bytes).size());
  std::iota(file.unit_crc32c.begin(), file.unit_crc32c.end(), 100 * (rank + 1));
  return file;
}

StoredTensor Stored(std::string name, DType dtype, Shape shape, std::vector<StoredChunk> chunks,
                    std::optional<uint32_t> rank_local = std::nullopt) {
  StoredTensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.chunks = std::move(chunks);
  tensor.rank_local = rank_local;
  return tensor;
}

Want Wanted(std::string name, DType dtype, Shape shape, std::vector<Box> boxes,
            bool rank_local = false) {
  Want want;
  want.name = std::move(name);
  want.dtype = dtype;
  want.shape = std::move(shape);
  want.boxes = std::move(boxes);
  want.rank_local = rank_local;
  return want;
}

// Two ranks of one node: "w" (int8, 2 rows of 3 MiB, a row each), "rng" of each rank, "empty".
std::vector<Fragment> TwoRanks() {
  constexpr uint64_t kRow = 3 * kUnitBytes;
  Fragment fragment;
  fragment.ranks = {0, 1};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    fragment.files.push_back(File(absl::StrCat("shard", rank), rank, kRow + 16));
  }
  fragment.tensors.push_back(
      Stored("w", DType::kInt8, {2, kRow},
             {{{{0, 0}, {1, kRow}}, 0, 8192, kRow}, {{{1, 0}, {1, kRow}}, 1, 8192, kRow}}));
  for (uint32_t rank = 0; rank < 2; ++rank) {
    fragment.tensors.push_back(
        Stored("rng", DType::kUInt8, {16}, {{{{0}, {16}}, rank, 8192 + kRow, 16}}, rank));
  }
  fragment.tensors.push_back(Stored("empty", DType::kFloat32, {0, 4}, {}));
  return {fragment};
}

absl::StatusOr<LoadPlan> Plan(const std::vector<Want>& wants, LoadOptions options = {},
                              uint32_t rank = 0, uint64_t read_max = kReadMax) {
  return PlanLoad(TwoRanks(), wants, rank, options, read_max);
}

Want Row(uint64_t row, uint64_t begin, uint64_t count) {
  return Wanted("w", DType::kInt8, {2, 3 * kUnitBytes}, {{{row, begin}, {1, count}}});
}

TEST(LoadPlan, ReadsTheUnitsThatTheBoxesNeedAndNoOthers) {
  auto plan = Plan({Row(1, kUnitBytes + 5, 10)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->reads.size(), 1u);
  EXPECT_EQ(plan->files[plan->reads[0].file].name, "shard1");
  EXPECT_EQ(plan->reads[0].file_offset_bytes, 8192 + kUnitBytes);
  EXPECT_EQ(plan->reads[0].bytes, kUnitBytes);
  EXPECT_EQ(plan->reads[0].unit_bytes, (std::vector<uint64_t>{kUnitBytes}));
  EXPECT_EQ(plan->reads[0].unit_crc32c, (std::vector<uint32_t>{201}));
  EXPECT_EQ(plan->read_bytes, kUnitBytes);
  ASSERT_EQ(plan->pieces.size(), 1u);
  EXPECT_EQ(plan->pieces[0].stored, (Box{{1, 0}, {1, 3 * kUnitBytes}}));
  EXPECT_EQ(plan->pieces[0].file_offset_bytes, 8192u);
  EXPECT_TRUE(plan->files[0].unit_crc32c.empty()) << "not sent";
}

TEST(LoadPlan, TheBordersOfUnitsAreExact) {
  auto units = [](uint64_t begin, uint64_t count) {
    auto plan = Plan({Row(0, begin, count)});
    EXPECT_TRUE(plan.ok());
    return plan->read_bytes / kUnitBytes;
  };
  EXPECT_EQ(units(0, 1), 1u);
  EXPECT_EQ(units(0, kUnitBytes), 1u);
  EXPECT_EQ(units(kUnitBytes - 1, 1), 1u);
  EXPECT_EQ(units(kUnitBytes - 1, 2), 2u);
  EXPECT_EQ(units(kUnitBytes, kUnitBytes), 1u);
  EXPECT_EQ(units(1, 2 * kUnitBytes), 3u);
}

TEST(LoadPlan, FindsEachOfManyChunksAndWhatLiesInside) {
  // Rows of a grid, cut along both dimensions; the second copy of a box is never the one.
  constexpr uint64_t kRows = 20'000, kBytes = 8;
  Fragment fragment;
  StoredFile file;
  file.name = "shard";
  file.header_bytes = 4096;
  file.bytes = 4096 + kRows * 2 * kBytes;
  file.unit_crc32c = {7};
  fragment.files.push_back(file);
  std::vector<StoredChunk> chunks;
  std::vector<Box> boxes;
  for (uint64_t row = kRows; row-- > 0;) {  // In no order that would help.
    for (uint64_t half = 0; half < 2; ++half) {
      Box box{{row, half * kBytes}, {1, kBytes}};
      chunks.push_back({box, 0, 4096 + (row * 2 + half) * kBytes, kBytes});
      boxes.push_back(box);
    }
  }
  chunks.push_back({boxes[0], 0, 4096, kBytes});
  boxes.push_back({{17, kBytes + 3}, {1, 2}});
  const std::vector<uint64_t> shape = {kRows, 2 * kBytes};
  fragment.tensors.push_back(Stored("grid", DType::kInt8, shape, chunks));
  auto plan = PlanLoad({fragment}, {Wanted("grid", DType::kInt8, shape, boxes)}, 0, {}, kReadMax);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->pieces.size(), boxes.size());
  for (size_t i = 0; i + 1 < boxes.size(); ++i) {
    ASSERT_EQ(plan->pieces[i].stored, boxes[i]);
    ASSERT_EQ(plan->pieces[i].file_offset_bytes, chunks[i].file_offset_bytes);
  }
  EXPECT_EQ(plan->pieces.back().stored, (Box{{17, kBytes}, {1, kBytes}}));
  Want across = Wanted("grid", DType::kInt8, shape, {{{17, 0}, {1, 2 * kBytes}}});
  EXPECT_EQ(PlanLoad({fragment}, {across}, 0, {}, kReadMax).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(LoadPlan, TheLastUnitIsAsShortAsTheFile) {
  auto plan = Plan({Wanted("rng", DType::kUInt8, {16}, {{{0}, {16}}}, true)}, {}, 1);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->reads.size(), 1u);
  EXPECT_EQ(plan->reads[0].file_offset_bytes, 8192 + 3 * kUnitBytes);
  EXPECT_EQ(plan->reads[0].bytes, 16u);
  EXPECT_EQ(plan->files[plan->reads[0].file].rank, 1u) << "the asking rank's own";
}

TEST(LoadPlan, ASectionThatStartsInsideAUnitHasShortUnits) {
  Fragment fragment;
  fragment.files.push_back(File("shard0.1", 0, 2 * kUnitBytes, kUnitBytes / 2));
  fragment.tensors.push_back(Stored("t", DType::kInt8, {2 * kUnitBytes},
                                    {{{{0}, {2 * kUnitBytes}}, 0, 8192, 2 * kUnitBytes}}));
  auto plan =
      PlanLoad({fragment}, {Wanted("t", DType::kInt8, {2 * kUnitBytes}, {{{kUnitBytes / 2}, {1}}})},
               0, {}, kReadMax);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->reads.size(), 1u);
  EXPECT_EQ(plan->reads[0].file_offset_bytes, 8192 + kUnitBytes / 2);
  EXPECT_EQ(plan->reads[0].bytes, kUnitBytes);
  EXPECT_EQ(plan->reads[0].unit_crc32c, (std::vector<uint32_t>{101}));
}

TEST(LoadPlan, JoinsNeighboursUpToTheLargestRead) {
  auto whole = Plan({Row(0, 0, 3 * kUnitBytes)});
  ASSERT_EQ(whole->reads.size(), 1u);
  EXPECT_EQ(whole->reads[0].unit_bytes.size(), 3u);
  auto small = Plan({Row(0, 0, 3 * kUnitBytes)}, {}, 0, 2 * kUnitBytes);
  ASSERT_EQ(small->reads.size(), 2u);
  EXPECT_EQ(small->reads[0].bytes, 2 * kUnitBytes);
  EXPECT_EQ(small->reads[1].file_offset_bytes, 8192 + 2 * kUnitBytes);
  EXPECT_EQ(small->reads[1].bytes, kUnitBytes);
  // A hole parts them.
  Want want = Row(0, 0, 1);
  want.boxes.push_back({{0, 2 * kUnitBytes}, {1, 1}});
  auto hole = Plan({want});
  ASSERT_EQ(hole->reads.size(), 2u);
  EXPECT_EQ(hole->read_bytes, 2 * kUnitBytes);
}

TEST(LoadPlan, ReadsAUnitThatSeveralBoxesNeedOnce) {
  Want want = Row(0, 0, 10);
  want.boxes.push_back({{0, 20}, {1, 10}});
  auto plan = Plan({want, Row(0, 5, 10)});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->reads.size(), 1u);
  EXPECT_EQ(plan->read_bytes, kUnitBytes);
  ASSERT_EQ(plan->pieces.size(), 3u);
  EXPECT_EQ(plan->pieces[1].want, 0u);
  EXPECT_EQ(plan->pieces[1].box, 1u);
  EXPECT_EQ(plan->pieces[2].want, 1u);
}

TEST(LoadPlan, ABoxAcrossTwoStoredChunksIsRefusedByName) {
  auto plan = Plan({Wanted("w", DType::kInt8, {2, 3 * kUnitBytes}, {{{0, 0}, {2, 5}}})});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(plan.status().message().find("\"w\""), std::string::npos) << plan.status();
  EXPECT_NE(plan.status().message().find("[0:2, 0:5]"), std::string::npos) << plan.status();
}

TEST(LoadPlan, OtherDTypesShapesAndBoxesAreRefusedByName) {
  auto expect = [](const Want& want, const std::string& part) {
    auto plan = Plan({want});
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << part;
    EXPECT_NE(plan.status().message().find(part), std::string::npos) << plan.status();
    EXPECT_NE(plan.status().message().find(absl::StrCat("\"", want.name, "\"")), std::string::npos);
  };
  expect(Wanted("w", DType::kUInt8, {2, 3 * kUnitBytes}, {}),
         "int8 [2, 3145728], and the target is uint8");
  expect(Wanted("w", DType::kInt8, {2, 3}, {}), "[2, 3]");
  expect(Wanted("w", DType::kInt8, {2}, {}), "[2]");
  expect(Wanted("w", DType::kInt8, {2, 3 * kUnitBytes}, {{{1, 0}, {2, 1}}}), "w");
  expect(Wanted("w", DType::kInt8, {2, 3 * kUnitBytes}, {{{1}, {1}}}), "w");
  expect(Wanted("w", DType::kInt8, {2, 3 * kUnitBytes}, {{{1, ~uint64_t{0}}, {1, 2}}}), "w");
}

TEST(LoadPlan, EmptyBoxesAndEmptyTensorsNeedNothing) {
  auto plan = Plan({Wanted("empty", DType::kFloat32, {0, 4}, {{{0, 0}, {0, 4}}}), Row(0, 7, 0)});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->reads.empty());
  EXPECT_TRUE(plan->pieces.empty());
  EXPECT_EQ(plan->read_bytes, 0u);
}

TEST(LoadPlan, MissingNamesAreAnErrorUnlessPartial) {
  std::vector<Want> wants = {Row(0, 0, 1), Wanted("nobody", DType::kInt8, {1}, {}),
                             Wanted("rng", DType::kUInt8, {16}, {})};  // Not rank-local: another.
  auto plan = Plan(wants);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(plan.status().message().find("\"nobody\", \"rng\""), std::string::npos)
      << plan.status();
  auto partial = Plan(wants, {.partial = true, .strict = false});
  ASSERT_TRUE(partial.ok());
  EXPECT_EQ(partial->missing, (std::vector<std::string>{"nobody", "rng"}));
  EXPECT_EQ(partial->pieces.size(), 1u);
}

TEST(LoadPlan, ExtraNamesAreListedAndAnErrorIfStrict) {
  auto plan = Plan({Row(0, 0, 1)});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->extra, (std::vector<std::string>{"empty", "rng"})) << "the other rank's is none";
  auto strict = Plan({Row(0, 0, 1)}, {.partial = false, .strict = true});
  EXPECT_EQ(strict.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(strict.status().message().find("\"empty\", \"rng\""), std::string::npos);
  auto all = Plan({Row(0, 0, 1), Wanted("empty", DType::kFloat32, {0, 4}, {}),
                   Wanted("rng", DType::kUInt8, {16}, {}, true)},
                  {.partial = false, .strict = true});
  EXPECT_TRUE(all.ok()) << all.status();
}

TEST(LoadPlan, ALongListOfNamesIsCutShort) {
  std::vector<Want> wants;
  for (int i = 0; i < 1000; ++i)
    wants.push_back(Wanted(absl::StrCat("name", i), DType::kInt8, {1}, {}));
  auto plan = Plan(wants);
  EXPECT_NE(plan.status().message().find("and 990 more"), std::string::npos);
  EXPECT_LT(plan.status().message().size(), 300u);
}

TEST(LoadPlan, GivesTheSharedItemsAndTheRanksOwn) {
  std::vector<Fragment> fragments = TwoRanks();
  auto item = [](std::string name, std::optional<uint32_t> rank, uint64_t bytes) {
    StoredItem item;
    item.name = std::move(name);
    item.rank_local = rank;
    item.bytes = bytes;
    item.file = 1;
    return item;
  };
  fragments[0].items = {item("step", std::nullopt, 3), item("lr", 0, 3), item("lr", 1, 4),
                        item("large", std::nullopt, kInlineItemBytesMax + 1)};
  auto plan = PlanLoad(fragments, {}, 1, {}, kReadMax);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->items.size(), 3u);
  EXPECT_EQ(plan->items[1].bytes, 4u);
  EXPECT_EQ(plan->item_files, (std::vector<std::string>{"", "", "shard1"}));
}

TEST(LoadPlan, FilesAreNumberedOverAllFragments) {
  std::vector<Fragment> fragments = TwoRanks();
  Fragment other;
  other.files.push_back(File("shard2", 2, 40));
  other.tensors.push_back(Stored("x", DType::kInt8, {40}, {{{{0}, {40}}, 0, 8192, 40}}));
  fragments.push_back(other);
  auto plan = PlanLoad(fragments, {Wanted("x", DType::kInt8, {40}, {{{1}, {2}}})}, 0, {}, kReadMax);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(plan->reads.size(), 1u);
  EXPECT_EQ(plan->files[plan->reads[0].file].name, "shard2");
  EXPECT_EQ(plan->pieces[0].file, plan->reads[0].file);
}

}  // namespace
}  // namespace ckptd
