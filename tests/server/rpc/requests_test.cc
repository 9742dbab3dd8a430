#include "server/rpc/requests.h"

#include <string>

#include "gtest/gtest.h"

namespace ckptd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

v1::SaveBegin Begin() {
  v1::SaveBegin begin;
  begin.set_checkpoint_id("step-1");
  begin.set_step(-3);
  begin.set_request_id("request");
  return begin;
}

TEST(Requests, ASaveHasDefaults) {
  auto options = ParseSaveBegin(Begin());
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->checkpoint_id, "step-1");
  EXPECT_EQ(options->step, -3);
  EXPECT_EQ(options->request_id, "request");
  EXPECT_FALSE(options->replace);
  EXPECT_FALSE(options->reject_overlap);
  EXPECT_EQ(options->replicas, ReplicaPolicy::kError);
  EXPECT_EQ(options->join_timeout, absl::ZeroDuration());
}

TEST(Requests, ASaveSaysWhatItWants) {
  v1::SaveBegin begin = Begin();
  begin.set_on_existing(v1::ON_EXISTING_REPLACE);
  begin.set_on_overlap(v1::ON_OVERLAP_REJECT);
  begin.set_replicas(v1::REPLICAS_LOWEST_RANK);
  begin.set_join_timeout_ms(1500);
  auto options = ParseSaveBegin(begin);
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->replace);
  EXPECT_TRUE(options->reject_overlap);
  EXPECT_EQ(options->replicas, ReplicaPolicy::kLowestRank);
  EXPECT_EQ(options->join_timeout, absl::Milliseconds(1500));
}

TEST(Requests, NamesAndChoicesThatAreNoneAreRefused) {
  auto code = [](const auto& change) {
    v1::SaveBegin begin = Begin();
    change(begin);
    return ParseSaveBegin(begin).status().code();
  };
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_checkpoint_id(""); }), kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_checkpoint_id(std::string(201, 'a')); }), kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_checkpoint_id(std::string(67, '/')); }), kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_request_id(""); }), kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_request_id(std::string(201, 'r')); }), kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_on_existing(static_cast<v1::OnExisting>(9)); }),
            kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_on_overlap(static_cast<v1::OnOverlap>(9)); }),
            kInvalid);
  EXPECT_EQ(code([](v1::SaveBegin& b) { b.set_replicas(static_cast<v1::Replicas>(9)); }), kInvalid);
}

TEST(Requests, AJoinTimeoutIsNeverNegative) {
  for (uint64_t ms : {uint64_t{1}, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0}}) {
    v1::SaveBegin begin = Begin();
    begin.set_join_timeout_ms(ms);
    auto options = ParseSaveBegin(begin);
    ASSERT_TRUE(options.ok());
    EXPECT_GT(options->join_timeout, absl::ZeroDuration()) << ms;
    v1::LoadBegin load;
    load.set_wait_ms(ms);
    EXPECT_GT(ParseLoadBegin(load).wait, absl::ZeroDuration()) << ms;
  }
}

TEST(Requests, APlanIsPutTogetherFromItsParts) {
  v1::PlanPart part;
  v1::TensorEntry& tensor = *part.add_tensors();
  tensor.set_name("w");
  tensor.set_dtype(static_cast<uint32_t>(DType::kBFloat16));
  tensor.add_shape(4);
  tensor.add_shape(6);
  v1::Box& box = *tensor.add_chunks();
  box.add_offsets(0);
  box.add_offsets(1);
  box.add_sizes(4);
  box.add_sizes(2);
  tensor.set_content_crc32c(0);
  RankPlan plan;
  PlanSize size;
  ASSERT_TRUE(AppendPlanPart(part, plan, size).ok());
  part.Clear();
  v1::ItemEntry& item = *part.add_items();
  item.set_name("lr");
  item.set_kind(v1::ITEM_KIND_TEXT);
  item.set_rank_local(true);
  item.set_bytes(3);
  item.set_crc32c(9);
  item.set_value("0.5");
  ASSERT_TRUE(AppendPlanPart(part, plan, size).ok());
  ASSERT_EQ(plan.tensors.size(), 1u);
  EXPECT_EQ(plan.tensors[0].dtype, DType::kBFloat16);
  EXPECT_EQ(plan.tensors[0].shape, (Shape{4, 6}));
  EXPECT_EQ(plan.tensors[0].chunks, (std::vector<Box>{{{0, 1}, {4, 2}}}));
  EXPECT_EQ(plan.tensors[0].content_crc32c, std::optional<uint32_t>(0));
  ASSERT_EQ(plan.items.size(), 1u);
  EXPECT_EQ(plan.items[0].kind, ItemKind::kText);
  EXPECT_TRUE(plan.items[0].rank_local);
  EXPECT_EQ(plan.items[0].value, "0.5");
}

TEST(Requests, ChunksAndBoxesCountBeforeTheLastPart) {
  v1::PlanPart part;
  v1::TensorEntry& tensor = *part.add_tensors();
  tensor.set_dtype(1);
  for (int i = 0; i < 200'000; ++i) tensor.add_chunks();
  v1::LoadWants want_part;
  v1::Want& want = *want_part.add_wants();
  want.set_dtype(1);
  for (int i = 0; i < 200'000; ++i) want.add_boxes();
  RankPlan plan;
  std::vector<Want> wants;
  PlanSize plan_size{.entries = kEntriesPerRankMax - 200'000}, wants_size = plan_size;
  EXPECT_EQ(AppendPlanPart(part, plan, plan_size).code(), kInvalid);
  EXPECT_EQ(AppendWants(want_part, wants, wants_size).code(), kInvalid);
  EXPECT_TRUE(plan.tensors.empty());
  EXPECT_TRUE(wants.empty());
}

TEST(Requests, PlansAreLimitedInBytesToo) {
  v1::PlanPart part;
  part.add_tensors()->set_dtype(1);
  part.mutable_tensors(0)->set_name(std::string(100, 'n'));
  RankPlan plan;
  PlanSize size{.bytes = kPlanBytesMax - 50};
  absl::Status status = AppendPlanPart(part, plan, size);
  EXPECT_EQ(status.code(), kInvalid);
  EXPECT_NE(status.message().find("1073741824"), std::string::npos) << status;
}

TEST(Requests, ContentWithoutChecksumHasNone) {
  v1::PlanPart part;
  part.add_tensors()->set_dtype(1);
  RankPlan plan;
  PlanSize size;
  ASSERT_TRUE(AppendPlanPart(part, plan, size).ok());
  EXPECT_FALSE(plan.tensors[0].content_crc32c.has_value());
}

TEST(Requests, EveryNumberThatIsNoDTypeIsRefusedByName) {
  for (uint32_t number = 0; number < 300; ++number) {
    v1::PlanPart part;
    part.add_tensors()->set_dtype(number);
    part.mutable_tensors(0)->set_name("the tensor");
    RankPlan plan;
    PlanSize size;
    absl::Status status = AppendPlanPart(part, plan, size);
    EXPECT_EQ(status.ok(), number >= 1 && number <= 23) << number;
    if (!status.ok()) {
      EXPECT_EQ(status.code(), kInvalid);
      EXPECT_NE(status.message().find("\"the tensor\""), std::string::npos);
    }
  }
  v1::PlanPart part;
  part.add_tensors()->set_dtype(1 + (1u << 31));
  RankPlan plan;
  PlanSize size;
  EXPECT_FALSE(AppendPlanPart(part, plan, size).ok());
}

TEST(Requests, EveryNumberThatIsNoKindIsRefusedByName) {
  for (int kind = -1; kind < 300; ++kind) {
    v1::PlanPart part;
    part.add_items()->set_kind(static_cast<v1::ItemKind>(kind));
    part.mutable_items(0)->set_name("the item");
    RankPlan plan;
    PlanSize size;
    absl::Status status = AppendPlanPart(part, plan, size);
    EXPECT_EQ(status.ok(), kind >= 1 && kind <= 3) << kind;
    if (!status.ok()) {
      EXPECT_NE(status.message().find("\"the item\""), std::string::npos);
    }
  }
}

TEST(Requests, AResumeNamesItsAttempt) {
  v1::Resume resume;
  resume.set_attempt("17-00c0ffee00c0ffee");
  resume.add_ordinals(3);
  resume.set_staged(true);
  v1::SealedBlock& block = *resume.add_sealed();
  block.set_image_block(1);
  block.set_arena_block(2);
  block.add_unit_crc32c(7);
  auto state = ParseResume(resume);
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(state->attempt, (AttemptName{17, 0x00c0ffee00c0ffee}));
  EXPECT_EQ(state->ordinals, (std::vector<uint32_t>{3}));
  EXPECT_TRUE(state->staged);
  ASSERT_EQ(state->sealed.size(), 1u);
  EXPECT_EQ(state->sealed[0].arena_block, 2u);
  EXPECT_EQ(state->sealed[0].unit_crc32c, (std::vector<uint32_t>{7}));
  for (const char* name :
       {"", "17", "17-", "x-00c0ffee00c0ffee", "17-00C0FFEE00C0FFEE", "../17-00c0ffee00c0ffee"}) {
    resume.set_attempt(name);
    EXPECT_EQ(ParseResume(resume).status().code(), kInvalid) << name;
  }
}

TEST(Requests, ALoadSaysWhatItWants) {
  v1::LoadBegin begin;
  begin.set_checkpoint_id("a");
  begin.set_restore_id("initial");
  begin.set_partial(true);
  begin.set_strict(true);
  begin.set_wait_ms(20);
  LoadRequest request = ParseLoadBegin(begin);
  EXPECT_EQ(request.checkpoint_id, "a");
  EXPECT_EQ(request.restore_id, "initial");
  EXPECT_TRUE(request.options.partial);
  EXPECT_TRUE(request.options.strict);
  EXPECT_EQ(request.wait, absl::Milliseconds(20));
}

TEST(Requests, WantsOfNoDTypeOrTooLargeAreRefusedByName) {
  auto append = [](uint32_t dtype, std::vector<uint64_t> shape) {
    v1::LoadWants part;
    v1::Want& want = *part.add_wants();
    want.set_name("x");
    want.set_dtype(dtype);
    want.mutable_shape()->Add(shape.begin(), shape.end());
    std::vector<Want> wants;
    PlanSize size;
    return AppendWants(part, wants, size);
  };
  EXPECT_TRUE(append(2, {3, 4}).ok());
  EXPECT_TRUE(append(2, {}).ok());
  EXPECT_TRUE(append(2, {0, 4}).ok());
  for (const absl::Status& status :
       {append(0, {}), append(24, {}), append(1u << 20, {}),
        append(2, {uint64_t{1} << 62, uint64_t{1} << 62}), append(2, {0, ~uint64_t{0}}),
        append(2, std::vector<uint64_t>(65, 1))}) {
    EXPECT_EQ(status.code(), kInvalid) << status;
    EXPECT_NE(status.message().find("\"x\""), std::string::npos) << status;
  }
}

TEST(Requests, ItemsAndBoxesTravel) {
  StoredItem item;
  item.name = "lr";
  item.kind = ItemKind::kBytes;
  item.rank_local = 3;
  item.bytes = 2;
  item.crc32c = 5;
  item.value = "ab";
  v1::ItemEntry message = ToProto(item);
  EXPECT_EQ(message.name(), "lr");
  EXPECT_EQ(message.kind(), v1::ITEM_KIND_BYTES);
  EXPECT_TRUE(message.rank_local());
  EXPECT_EQ(message.rank(), 3u);
  EXPECT_EQ(message.value(), "ab");
  v1::Box box = ToProto(Box{{1, 2}, {3, 4}});
  EXPECT_EQ(box.offsets(1), 2u);
  EXPECT_EQ(box.sizes(0), 3u);
}

}  // namespace
}  // namespace ckptd
