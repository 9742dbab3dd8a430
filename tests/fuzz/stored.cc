#include "tests/fuzz/stored.h"

#include "tests/storage/plan/entries.h"

namespace ckptd {

std::vector<RankPlan> StoredPlans() {
  std::vector<RankPlan> plans(2);
  for (uint32_t rank : {0, 1}) {
    std::vector<TensorEntry>& tensors = plans[rank].tensors;
    tensors.push_back(Tensor("rows", DType::kFloat32, {4, 3}, {{{2 * rank, 0}, {2, 3}}}));
    tensors.push_back(Whole("bias", DType::kBFloat16, {5}));
    tensors.push_back(Whole("scalar", DType::kInt64, {}));
    tensors.push_back(Whole("empty", DType::kFloat32, {0, 3}));
    tensors.push_back(RankLocal(Whole("own", DType::kComplex128, {2})));
    plans[rank].items = {Item("step", "17", ItemKind::kJson),
                         Item("\xC3\xA9/..", "", ItemKind::kText),
                         RankLocal(Item("rng", "\x01\xFF", ItemKind::kBytes))};
  }
  plans[0].tensors.push_back(
      Tensor("chunks", DType::kUInt8, {6}, {{{0}, {1}}, {{1}, {2}}, {{3}, {3}}}));
  plans[0].tensors.push_back(Whole("__metadata__", DType::kBool, {1}));
  plans[0].items.push_back(LargeItem("blob", kInlineItemBytesMax + 1));
  return plans;
}

const SampleFiles& StoredSample() {
  static const auto& sample = *new SampleFiles(WriteSample(StoredPlans(), {"node-a", "node-a"}));
  return sample;
}

const std::vector<Fragment>& StoredFragments() {
  static const auto& fragments = *new std::vector<Fragment>{StoredSample().fragments[0].fragment};
  return fragments;
}

}  // namespace ckptd
