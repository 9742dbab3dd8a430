#include "storage/plan/rank_plan.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;

RankPlan Example() {
  RankPlan plan;
  plan.tensors = {Tensor("w", DType::kFloat32, {8, 4}, {{{0, 0}, {2, 4}}, {{4, 0}, {1, 4}}}),
                  Whole("scalar", DType::kBool, {}), Whole("empty", DType::kInt64, {0, 3}),
                  Tensor("absent", DType::kInt8, {5}, {})};
  plan.items = {Item("step", "17", ItemKind::kJson), Item("log", std::string(70000, 'x'))};
  return plan;
}

// Expects InvalidArgument with these words.
void ExpectRefused(const RankPlan& plan, const std::vector<std::string>& words) {
  const absl::Status status = ValidateRankPlan(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

void ExpectTensorRefused(const TensorEntry& tensor, const std::vector<std::string>& words) {
  RankPlan plan;
  plan.tensors = {tensor};
  ExpectRefused(plan, words);
}

void ExpectItemRefused(const ItemEntry& item, const std::vector<std::string>& words) {
  RankPlan plan;
  plan.items = {item};
  ExpectRefused(plan, words);
}

TEST(Parts, CountsChunksThenItems) {
  const RankPlan plan = Example();
  ASSERT_TRUE(ValidateRankPlan(plan).ok()) << ValidateRankPlan(plan);
  const std::vector<PlanPart> parts = Parts(plan);
  ASSERT_EQ(parts.size(), 6u);
  EXPECT_EQ(OrdinalCount(plan), 6u);
  EXPECT_EQ(parts[1].tensor, &plan.tensors[0]);
  EXPECT_EQ(parts[1].chunk_index, 1u);
  EXPECT_EQ(parts[0].bytes, 32u);
  EXPECT_EQ(parts[1].bytes, 16u);
  EXPECT_EQ(parts[2].bytes, 1u);
  EXPECT_TRUE(parts[2].staged);
  EXPECT_EQ(parts[3].bytes, 0u);
  EXPECT_FALSE(parts[3].staged);
  EXPECT_TRUE(IsOfEmptyTensor(parts[3]));
  EXPECT_FALSE(IsOfEmptyTensor(parts[2]));
  EXPECT_EQ(parts[4].item, &plan.items[0]);
  EXPECT_FALSE(parts[4].staged) << "a small item goes into the fragment";
  EXPECT_EQ(parts[5].item_index, 1u);
  EXPECT_TRUE(parts[5].staged);
}

TEST(ValidateRankPlan, TakesOddNames) {
  RankPlan plan;
  for (const char* name :
       {"a/b", "../../x", "/abs", ".", "..", "", " ", "a\nb", "\xD0\xB4\xE4\xBD\xA0",
        "\xF0\x9F\x98\x80", "\xC3\xA9", "e\xCC\x81", "__metadata__", ".metadata"}) {
    plan.tensors.push_back(Whole(name, DType::kInt8, {1}));
  }
  plan.tensors.push_back(Whole(std::string(kNameBytesMax, 'k'), DType::kInt8, {1}));
  EXPECT_TRUE(ValidateRankPlan(plan).ok()) << ValidateRankPlan(plan);
}

TEST(ValidateRankPlan, RefusesNamesThatAreNoText) {
  ExpectTensorRefused(Whole(std::string("a\0b", 3), DType::kInt8, {1}), {"\"a\\000b\"", "NUL"});
  ExpectTensorRefused(Whole(std::string(kNameBytesMax + 1, 'k'), DType::kInt8, {1}),
                      {"65537 bytes", "at most 65536"});
  for (const char* name : {"\xFF", "\x80", "\xC3", "\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                           "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xF5\x80\x80\x80", "a\xE2\x82"}) {
    ExpectTensorRefused(Whole(name, DType::kInt8, {1}), {"UTF-8"});
  }
}

TEST(ValidateRankPlan, RefusesANameTwice) {
  RankPlan plan = Example();
  plan.items.push_back(Item("w", "x"));
  ExpectRefused(plan, {"item \"w\"", "twice"});
  plan = Example();
  plan.tensors.push_back(Whole("scalar", DType::kBool, {}));
  ExpectRefused(plan, {"tensor \"scalar\"", "twice"});
}

TEST(ValidateRankPlan, RefusesShapesAndBoxesThatDoNotFit) {
  ExpectTensorRefused(Tensor("t", DType::kInt8, {uint64_t{1} << 40, uint64_t{1} << 40}, {}),
                      {"\"t\"", "63 bits"});
  ExpectTensorRefused(Tensor("t", DType::kInt8, {4}, {{{2}, {3}}}), {"\"t\"", "[2:5]", "[4]"});
  ExpectTensorRefused(Tensor("t", DType::kInt8, {4}, {{{0, 0}, {1, 1}}}), {"\"t\"", "not inside"});
  ExpectTensorRefused(Tensor("t", DType::kInt8, {4}, {{{0}, {3}}, {{2}, {2}}}), {"\"t\"", "[2:3]"});
  ExpectTensorRefused(Tensor("t", DType::kInt8, {4}, {{{0}, {3}}, {{0}, {3}}}), {"[0:3]"});
  ExpectTensorRefused(RankLocal(Tensor("t", DType::kInt8, {4}, {{{0}, {3}}})),
                      {"\"t\"", "rank-local", "[3:4]"});
  ExpectTensorRefused(Tensor("t", static_cast<DType>(24), {4}, {}), {"\"t\"", "dtype 24"});
  TensorEntry tensor = Tensor("t", DType::kInt8, {4}, {{{0}, {3}}});
  tensor.content_crc32c = 1;
  ExpectTensorRefused(tensor, {"\"t\"", "content checksum"});
  RankPlan plan;
  for (int i = 0; i < 2; ++i) {
    plan.tensors.push_back(
        Whole(std::string(1, static_cast<char>('a' + i)), DType::kInt8, {kRankBytesMax}));
  }
  ExpectRefused(plan, {"\"b\"", "exceed"});
}

TEST(ValidateRankPlan, RefusesItemsThatContradictThemselves) {
  ItemEntry item = Item("i", "value");
  item.crc32c ^= 1;
  ExpectItemRefused(item, {"\"i\"", "checksum"});
  item = Item("i", "value");
  item.bytes = 4;
  ExpectItemRefused(item, {"4 bytes", "5 bytes"});
  item = Item("i", std::string(kInlineItemBytesMax + 1, 'x'));
  item.value = "x";
  ExpectItemRefused(item, {"65537"});
  item = Item("i", std::string(kInlineItemBytesMax + 1, 'x'));
  item.bytes = kItemBytesMax + 1;
  ExpectItemRefused(item, {"at most"});
  item = Item("i", "x");
  item.kind = static_cast<ItemKind>(0);
  ExpectItemRefused(item, {"kind 0"});
}

TEST(ValidateRankPlan, RefusesTooManyEntries) {
  RankPlan plan;
  plan.tensors = {Tensor("t", DType::kInt8, {0}, {})};
  plan.tensors[0].chunks.assign(kEntriesPerRankMax, WholeBox({0}));
  ExpectRefused(plan, {"4000001", "at most 4000000"});
}

TEST(QuoteName, IsATextWhateverTheNameIs) {
  EXPECT_EQ(QuoteName("\xFF\xC3"), "\"\\xff\\xc3\"");
  EXPECT_EQ(QuoteName(std::string("a\0b", 3)), "\"a\\000b\"");
  EXPECT_EQ(QuoteName("\xC3\xA9"), "\"\xC3\xA9\"");
  EXPECT_TRUE(CheckEntryName(QuoteName(std::string(300, '\xA9'))).ok());
}

TEST(QuoteName, EscapesAndShortens) {
  EXPECT_EQ(QuoteName("a\"b\n"), "\"a\\\"b\\n\"");
  const std::string quoted = QuoteName(std::string(5000, 'k'));
  EXPECT_LT(quoted.size(), 300u);
  EXPECT_THAT(quoted, HasSubstr("5000 bytes"));
  EXPECT_THAT(QuoteName(std::string(199, 'k') + "\xC3\xA9"), HasSubstr("k...\""));
}

TEST(LayoutSignature, ChangesWithTheLayoutAndNotWithValues) {
  const RankPlan plan = Example();
  const std::string signature = LayoutSignature(plan);
  EXPECT_EQ(signature.size(), 32u);
  std::set<std::string> signatures = {signature};
  auto expect_new = [&](auto change) {
    RankPlan other = plan;
    change(other);
    EXPECT_TRUE(signatures.insert(LayoutSignature(other)).second);
  };
  expect_new([](RankPlan& p) { p.tensors[0].name = "v"; });
  expect_new([](RankPlan& p) { p.tensors[0].dtype = DType::kInt32; });
  expect_new([](RankPlan& p) { p.tensors[0].shape[0] = 9; });
  expect_new([](RankPlan& p) { p.tensors[0].rank_local = true; });
  expect_new([](RankPlan& p) { p.tensors[0].chunks[1].offsets[0] = 5; });
  expect_new([](RankPlan& p) { p.tensors[0].chunks[1].sizes[0] = 2; });
  expect_new([](RankPlan& p) { p.tensors[0].chunks.pop_back(); });
  expect_new([](RankPlan& p) { p.tensors.pop_back(); });
  expect_new([](RankPlan& p) { std::swap(p.tensors[0], p.tensors[1]); });
  expect_new([](RankPlan& p) { p.items[0].name = "steq"; });
  expect_new([](RankPlan& p) { p.items[0].kind = ItemKind::kText; });
  expect_new([](RankPlan& p) { p.items[0].rank_local = true; });
  expect_new([](RankPlan& p) { p.items[1].bytes += 1; });
  expect_new([](RankPlan& p) { p.items.pop_back(); });
  RankPlan same = plan;
  same.items[0] = Item("step", "18000", ItemKind::kJson);
  same.items[1].crc32c ^= 1;
  same.tensors[1].content_crc32c = 7;
  EXPECT_EQ(LayoutSignature(same), signature);
}

TEST(LayoutSignature, DoesNotChangeBetweenReleases) {
  EXPECT_EQ(LayoutSignature(Example()), "b5ef3f9551a3c24208f450519bd31899");
}

}  // namespace
}  // namespace ckptd
