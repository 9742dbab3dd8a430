#include "server/fragment_builder.h"

#include <map>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "storage/base/units.h"
#include "tests/server/test_image.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

constexpr uint64_t kBlock = 1 * kMiB;

AttemptRecord Record(uint32_t world_size) {
  AttemptRecord record;
  record.job = "job";
  record.checkpoint_id = "step-1";
  record.step = 1;
  record.attempt = {7, 0xabc};
  record.world_size = world_size;
  record.coordinator_node = "node";
  return record;
}

// A rank that has written these ordinals of its plan; headers are 4096 bytes.
RankSave Written(uint32_t rank, RankPlan plan, std::vector<uint32_t> ordinals) {
  RankSave save;
  save.rank = rank;
  save.state = RankSave::State::kWritten;
  save.plan = std::make_shared<const RankPlan>(std::move(plan));
  save.ordinals = std::move(ordinals);
  save.layout = std::make_shared<const ImageLayout>(LayOutImage(*save.plan, save.ordinals));
  uint64_t blocks = (save.layout->image_bytes + kBlock - 1) / kBlock;
  if (blocks > 0) save.arena = *Arena::Create(1, kBlock, static_cast<uint32_t>(blocks));
  save.blocks.resize(blocks);
  std::string image = ImageBytes(*save.plan, *save.layout, rank);
  for (uint32_t block = 0; block < blocks; ++block) {
    save.blocks[block].state = ImageBlock::State::kWritten;
    save.blocks[block].unit_crc32c = UnitChecksums(*save.layout, image, block, kBlock);
  }
  for (uint32_t i = 0; i < save.layout->sections.size(); ++i) {
    save.shards.push_back({ShardFile(rank, 2, i), 4096, 0x1000 + i});
  }
  return save;
}

const StoredTensor* FindTensor(const Fragment& fragment, const std::string& name,
                               std::optional<uint32_t> rank = std::nullopt) {
  for (const StoredTensor& tensor : fragment.tensors) {
    if (tensor.name == name && tensor.rank_local == rank) return &tensor;
  }
  return nullptr;
}

// What nothing but the production decoder may object to.
void ExpectValid(const Fragment& fragment, const AttemptRecord& record) {
  std::string bytes = EncodeFragment(fragment);
  auto decoded = DecodeFragment(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, fragment);
  auto manifest = MakeManifest(record, {{FragmentFileName("node"), bytes, *decoded}});
  EXPECT_TRUE(manifest.ok()) << manifest.status();
}

TEST(FragmentBuilder, RecordsWhereEachChunkLies) {
  RankPlan plan;
  plan.tensors.push_back(
      Tensor("t", DType::kFloat32, {4, 10}, {{{0, 0}, {2, 10}}, {{2, 0}, {2, 10}}}));
  plan.tensors.push_back(Whole("u", DType::kInt64, {3}));
  std::map<uint32_t, RankSave> ranks;
  ranks[0] = Written(0, plan, {0, 1, 2});
  Fragment fragment = BuildFragment(Record(1), "node", ranks);
  EXPECT_EQ(fragment.job, "job");
  EXPECT_EQ(fragment.checkpoint_id, "step-1");
  EXPECT_EQ(fragment.attempt, (AttemptName{7, 0xabc}));
  EXPECT_EQ(fragment.node, "node");
  EXPECT_EQ(fragment.ranks, (std::vector<uint32_t>{0}));
  ASSERT_EQ(fragment.files.size(), 2u);
  // "u" has the larger elements and comes first; the second chunk of "t" has a file of its own.
  EXPECT_EQ(fragment.files[0].bytes, 4096u + 24 + 80);
  EXPECT_EQ(fragment.files[0].header_crc32c, 0x1000u);
  EXPECT_EQ(fragment.files[1].bytes, 4096u + 80);
  EXPECT_EQ(fragment.files[1].image_offset_bytes, 4096u);
  EXPECT_FALSE(fragment.files[0].crc_by_daemon);
  const StoredTensor* t = FindTensor(fragment, "t");
  ASSERT_NE(t, nullptr);
  ASSERT_EQ(t->chunks.size(), 2u);
  EXPECT_EQ(t->chunks[0].file, 0u);
  EXPECT_EQ(t->chunks[0].file_offset_bytes, 4096u + 24);
  EXPECT_EQ(t->chunks[0].bytes, 80u);
  EXPECT_EQ(t->chunks[1].file, 1u);
  EXPECT_EQ(t->chunks[1].file_offset_bytes, 4096u);
  EXPECT_EQ(FindTensor(fragment, "u")->chunks[0].file_offset_bytes, 4096u);
  ExpectValid(fragment, Record(1));
}

TEST(FragmentBuilder, GathersTheChecksumsOfSeveralBlocksByFile) {
  RankPlan plan;
  plan.tensors.push_back(
      Tensor("big", DType::kInt8, {2, 3000000}, {{{0, 0}, {1, 3000000}}, {{1, 0}, {1, 3000000}}}));
  std::map<uint32_t, RankSave> ranks;
  ranks[0] = Written(0, plan, {0, 1});
  std::string image = ImageBytes(plan, *ranks[0].layout, 0);
  Fragment fragment = BuildFragment(Record(1), "node", ranks);
  ASSERT_EQ(fragment.files.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    const StoredFile& file = fragment.files[i];
    std::vector<uint64_t> sizes = UnitSizes(file.image_offset_bytes, 3000000);
    ASSERT_EQ(file.unit_crc32c.size(), sizes.size());
    uint64_t at = file.image_offset_bytes;
    for (size_t unit = 0; unit < sizes.size(); at += sizes[unit++]) {
      EXPECT_EQ(file.unit_crc32c[unit], Crc32c(absl::string_view(image).substr(at, sizes[unit])));
    }
  }
  ExpectValid(fragment, Record(1));
}

TEST(FragmentBuilder, RecordsAReplicaThatTwoRanksWroteOnce) {
  RankPlan plan;
  plan.tensors.push_back(Whole("shared", DType::kFloat32, {100}));
  plan.items.push_back(Item("step", "12", ItemKind::kJson));
  std::map<uint32_t, RankSave> ranks;
  ranks[1] = Written(1, plan, {0, 1});
  ranks[0] = Written(0, plan, {0, 1});
  Fragment fragment = BuildFragment(Record(2), "node", ranks);
  EXPECT_EQ(fragment.ranks, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(fragment.files.size(), 2u) << "both files are there, and are checked";
  ASSERT_EQ(FindTensor(fragment, "shared")->chunks.size(), 1u);
  EXPECT_EQ(fragment.files[FindTensor(fragment, "shared")->chunks[0].file].rank, 0u);
  EXPECT_EQ(fragment.items.size(), 1u);
  ExpectValid(fragment, Record(2));
}

TEST(FragmentBuilder, KeepsRankLocalEntriesOfEachRank) {
  RankPlan plan;
  plan.tensors.push_back(RankLocal(Whole("rng", DType::kUInt8, {16})));
  plan.items.push_back(RankLocal(Item("lr", "0.5", ItemKind::kJson)));
  std::map<uint32_t, RankSave> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) ranks[rank] = Written(rank, plan, {0, 1});
  Fragment fragment = BuildFragment(Record(2), "node", ranks);
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const StoredTensor* tensor = FindTensor(fragment, "rng", rank);
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->chunks.size(), 1u);
    EXPECT_EQ(fragment.files[tensor->chunks[0].file].rank, rank);
    EXPECT_EQ(fragment.items[rank].rank_local, std::optional<uint32_t>(rank));
  }
  ExpectValid(fragment, Record(2));
}

TEST(FragmentBuilder, NamesATensorWithoutElements) {
  RankPlan plan;
  plan.tensors.push_back(Whole("none", DType::kBFloat16, {0, 7}));
  std::map<uint32_t, RankSave> ranks;
  ranks[0] = Written(0, plan, {0});
  Fragment fragment = BuildFragment(Record(1), "node", ranks);
  ASSERT_NE(FindTensor(fragment, "none"), nullptr);
  EXPECT_TRUE(FindTensor(fragment, "none")->chunks.empty());
  EXPECT_EQ(FindTensor(fragment, "none")->shape, (Shape{0, 7}));
  ExpectValid(fragment, Record(1));
}

TEST(FragmentBuilder, KeepsSmallItemsAndPlacesLargeOnes) {
  RankPlan plan;
  plan.items.push_back(Item("small", "hello", ItemKind::kText));
  plan.items.push_back(Item("large", TestBytes("large", 100000), ItemKind::kBytes));
  plan.items.push_back(Item("edge", TestBytes("edge", kInlineItemBytesMax), ItemKind::kBytes));
  std::map<uint32_t, RankSave> ranks;
  ranks[0] = Written(0, plan, {0, 1, 2});
  Fragment fragment = BuildFragment(Record(1), "node", ranks);
  ASSERT_EQ(fragment.items.size(), 3u);
  EXPECT_EQ(fragment.items[0].value, "hello");
  EXPECT_EQ(fragment.items[0].kind, ItemKind::kText);
  EXPECT_EQ(fragment.items[1].value, "");
  EXPECT_EQ(fragment.items[1].bytes, 100000u);
  EXPECT_EQ(fragment.items[1].crc32c, Crc32c(TestBytes("large", 100000)));
  EXPECT_EQ(fragment.items[1].file_offset_bytes, 4096u);
  EXPECT_EQ(fragment.items[2].value.size(), kInlineItemBytesMax);
  ExpectValid(fragment, Record(1));
}

TEST(FragmentBuilder, NamesRanksThatWroteNothing) {
  RankPlan plan;
  plan.tensors.push_back(Whole("shared", DType::kFloat32, {10}));
  std::map<uint32_t, RankSave> ranks;
  ranks[0] = Written(0, plan, {0});
  ranks[1] = Written(1, plan, {});
  Fragment fragment = BuildFragment(Record(2), "node", ranks);
  EXPECT_EQ(fragment.ranks, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(fragment.files.size(), 1u);
  ExpectValid(fragment, Record(2));
}

}  // namespace
}  // namespace ckptd
