#include "client/cpp/wire.h"

#include <gtest/gtest.h>

#include "proto/ckptd/version.h"

namespace ckptd {
namespace {

TEST(ForEachPlanPart, CutsALargePlanAndMarksTheLastPart) {
  RankPlan plan;
  for (int i = 0; i < 5000; ++i) {
    TensorEntry& tensor = plan.tensors.emplace_back();
    tensor.name = std::string(500, 'n') + std::to_string(i);
    tensor.shape = {4, 4};
    tensor.chunks = {WholeBox(tensor.shape)};
  }
  for (int i = 0; i < 3; ++i) {
    ItemEntry& item = plan.items.emplace_back();
    item.name = "i" + std::to_string(i);
    item.kind = ItemKind::kText;
    item.bytes = 2;
    item.value = "ab";
  }
  size_t tensors = 0, items = 0, parts = 0, last = 0;
  ForEachPlanPart(plan, [&](const v1::PlanPart& part) {
    EXPECT_LE(part.ByteSizeLong(), kStreamPartBytes + 70'000);
    for (const v1::TensorEntry& tensor : part.tensors()) {
      EXPECT_EQ(tensor.name(), plan.tensors[tensors].name);
      ++tensors;
    }
    items += part.items_size();
    ++parts;
    last += part.last();
    return true;
  });
  EXPECT_EQ(tensors, 5000u);
  EXPECT_EQ(items, 3u);
  EXPECT_GT(parts, 2u);
  EXPECT_EQ(last, 1u);
}

TEST(ForEachPlanPart, SendsAnEmptyPlanToo) {
  int parts = 0;
  ForEachPlanPart({}, [&](const v1::PlanPart& part) {
    EXPECT_TRUE(part.last());
    return ++parts > 0;
  });
  EXPECT_EQ(parts, 1);
}

TEST(FromProto, AFailureIsNeverOk) {
  v1::Failure failure;
  EXPECT_EQ(FromProto(failure).status.code(), absl::StatusCode::kUnknown);
  failure.set_code("OK");
  EXPECT_EQ(FromProto(failure).status.code(), absl::StatusCode::kInternal);
  failure.set_code("RESOURCE_EXHAUSTED");
  failure.set_rank(0);
  EXPECT_EQ(FromProto(failure).status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(FromProto(failure).rank, 0u);
}

TEST(FromProto, AnUnknownDtypeIsDataLoss) {
  v1::StoredTensor tensor;
  tensor.set_dtype(200);
  EXPECT_EQ(FromProto(tensor).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace ckptd
