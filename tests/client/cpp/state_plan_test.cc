#include "client/cpp/state_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/base/crc32c.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;

float g_numbers[64] = {1, 2, 3};

TensorView Valid(std::string name = "w") {
  return WholeTensor(std::move(name), DType::kFloat32, {8, 8}, g_numbers);
}

absl::Status Refusal(State state) { return PlanState(std::move(state)).status(); }

TEST(PlanState, KeepsWhatTheTrainerSays) {
  State state;
  state.tensors = {Valid("a"), Valid("b")};
  state.tensors[1].rank_local = true;
  state.items = {{"step", ItemKind::kJson, false, "17"},
                 {"blob", ItemKind::kBytes, true, std::string(100'000, 'x')}};
  auto planned = PlanState(std::move(state));
  ASSERT_TRUE(planned.ok()) << planned.status();
  const RankPlan& plan = (*planned)->plan;
  EXPECT_EQ(plan.tensors[0].name, "a");
  EXPECT_EQ(plan.tensors[0].content_crc32c, Crc32c(std::as_bytes(std::span(g_numbers))));
  EXPECT_FALSE(plan.tensors[1].content_crc32c) << "rank-local tensors are not compared";
  EXPECT_EQ(plan.items[0].value, "17");
  EXPECT_EQ(plan.items[1].value, "") << "a large item is staged";
  ASSERT_EQ((*planned)->views.size(), 4u);
  EXPECT_EQ((*planned)->views[0].bytes(), 256u);
  EXPECT_EQ((*planned)->views[2].bytes(), 0u);
  EXPECT_EQ((*planned)->views[3].bytes(), 100'000u);
  EXPECT_EQ((*planned)->views[3].RunAt(0)[0], std::byte{'x'});
}

TEST(PlanState, ChecksumsTheContentOfAViewAndNotItsMemory) {
  State state;
  state.tensors = {Valid()};
  state.tensors[0].chunks[0].strides_bytes = {4, 32};  // Transposed.
  auto planned = PlanState(std::move(state));
  ASSERT_TRUE(planned.ok()) << planned.status();
  float transposed[64];
  for (int i = 0; i < 64; ++i) transposed[i] = g_numbers[i % 8 * 8 + i / 8];
  EXPECT_EQ((*planned)->plan.tensors[0].content_crc32c,
            Crc32c(std::as_bytes(std::span(transposed))));
}

TEST(PlanState, RefusesBadInputAndNamesIt) {
  TensorView outside = Valid("too/wide");
  outside.chunks[0].box.sizes = {8, 9};
  EXPECT_THAT(Refusal({{outside}, {}}).message(), HasSubstr("\"too/wide\""));
  TensorView strides = Valid("strided");
  strides.chunks[0].strides_bytes = {4};
  EXPECT_THAT(Refusal({{strides}, {}}).message(), HasSubstr("\"strided\""));
  TensorView null = Valid("null");
  null.chunks[0].data = nullptr;
  EXPECT_THAT(Refusal({{null}, {}}).message(), HasSubstr("\"null\""));
  EXPECT_THAT(Refusal({{Valid("w"), Valid("w")}, {}}).message(), HasSubstr("twice"));
  EXPECT_THAT(Refusal({{Valid("w")}, {{"w", ItemKind::kText, false, ""}}}).message(),
              HasSubstr("twice"));
  EXPECT_THAT(Refusal({{Valid("\xff")}, {}}).message(), HasSubstr("UTF-8"));
  EXPECT_THAT(Refusal({{Valid(std::string("a\0b", 3))}, {}}).message(), HasSubstr("NUL"));
  TensorView huge = Valid("huge");
  huge.shape = {uint64_t{1} << 62, 8};
  EXPECT_THAT(Refusal({{huge}, {}}).message(), HasSubstr("\"huge\""));
  TensorView dtype = Valid("dtype");
  dtype.dtype = static_cast<DType>(99);
  EXPECT_THAT(Refusal({{dtype}, {}}).message(), HasSubstr("99"));
}

TEST(PlanState, TakesEmptyAndZeroDimensionalTensors) {
  State state;
  state.tensors = {WholeTensor("empty", DType::kFloat32, {0, 3}, nullptr),
                   WholeTensor("scalar", DType::kFloat32, {}, g_numbers), TensorView{"absent"}};
  auto planned = PlanState(std::move(state));
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ((*planned)->views[0].bytes(), 0u);
  EXPECT_EQ((*planned)->views[1].bytes(), 4u);
}

TEST(CheckTargets, RefusesBadTargetsAndNamesThem) {
  const TensorTarget good = WholeTarget("w", DType::kFloat32, {8, 8}, g_numbers);
  EXPECT_TRUE(CheckTargets({good}).ok());
  EXPECT_THAT(CheckTargets({good, good}).message(), HasSubstr("twice"));
  TensorTarget outside = good;
  outside.boxes[0].box.offsets = {1, 0};
  EXPECT_THAT(CheckTargets({outside}).message(), HasSubstr("\"w\""));
  TensorTarget null = good;
  null.boxes[0].data = nullptr;
  EXPECT_EQ(CheckTargets({null}).code(), absl::StatusCode::kInvalidArgument);
}

TEST(CheckText, TakesIdsOfAnyTextButNotOfAnyBytes) {
  EXPECT_TRUE(CheckText("checkpoint id", "step 7/ä").ok());
  EXPECT_FALSE(CheckText("checkpoint id", "").ok());
  EXPECT_FALSE(CheckText("checkpoint id", "\xff").ok());
  EXPECT_FALSE(CheckText("checkpoint id", std::string(201, 'a')).ok());
  EXPECT_FALSE(CheckText("checkpoint id", std::string("a\0", 2)).ok());
}

}  // namespace
}  // namespace ckptd
