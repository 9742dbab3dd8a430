#include "storage/plan/assignment.h"

#include <algorithm>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Random = std::mt19937_64;

uint64_t Pick(Random& random, uint64_t low, uint64_t high) {
  return std::uniform_int_distribution<uint64_t>(low, high)(random);
}

PlansByRank ByRank(const std::vector<RankPlan>& plans) {
  PlansByRank by_rank;
  for (const RankPlan& plan : plans) {
    by_rank[static_cast<uint32_t>(&plan - plans.data())] = &plan;
  }
  return by_rank;
}

std::vector<uint32_t> AllRanks(const std::vector<RankPlan>& plans) {
  std::vector<uint32_t> ranks(plans.size());
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = rank;
  return ranks;
}

OrdinalsByRank AssignAll(const std::vector<RankPlan>& plans,
                         ReplicaPolicy policy = ReplicaPolicy::kError) {
  return Assign(ByRank(plans), {}, AllRanks(plans), policy);
}

// Expects FailedPrecondition with these words.
void ExpectRefused(const absl::Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

RankPlan PlanOf(std::vector<TensorEntry> tensors, std::vector<ItemEntry> items = {}) {
  return {std::move(tensors), std::move(items)};
}

constexpr uint64_t kLarge = 8 << 20;

TEST(Assign, StoresAReplicaOnce) {
  const std::vector<RankPlan> plans(2, PlanOf({Whole("t", DType::kUInt8, {kLarge})}));
  EXPECT_EQ(AssignAll(plans), (OrdinalsByRank{{0, {0}}, {1, {}}}));
}

TEST(Assign, BalancesLargeReplicasByBytes) {
  RankPlan plan;
  for (uint64_t mib : {1, 5, 2, 3, 4, 1}) {
    plan.tensors.push_back(
        Whole(absl::StrCat("t", plan.tensors.size()), DType::kUInt8, {mib << 20}));
  }
  std::vector<RankPlan> plans(2, plan);
  // 5 | 4 3 | 2 ... : 8 MiB each.
  const OrdinalsByRank assigned = AssignAll(plans);
  std::map<uint32_t, uint64_t> bytes;
  for (const auto& [rank, ordinals] : assigned) {
    for (uint32_t ordinal : ordinals) bytes[rank] += Parts(plan)[ordinal].bytes;
  }
  EXPECT_EQ(bytes, (std::map<uint32_t, uint64_t>{{0, 8 << 20}, {1, 8 << 20}}));
  // What only rank 0 has counts first.
  plans[0].tensors.push_back(Whole("own", DType::kUInt8, {100 << 20}));
  EXPECT_THAT(AssignAll(plans)[0], ElementsAre(6));
}

TEST(Assign, GivesSmallReplicasToTheLowestRank) {
  const std::vector<RankPlan> plans(
      3, PlanOf({Whole("a", DType::kUInt8, {64 << 10}), Whole("b", DType::kFloat32, {})},
                {Item("i", "value")}));
  EXPECT_EQ(AssignAll(plans), (OrdinalsByRank{{0, {0, 1, 2}}, {1, {}}, {2, {}}}));
}

TEST(Assign, UnderLowestRankNothingDependsOnBalance) {
  std::vector<RankPlan> plans(
      2, PlanOf({Whole("t", DType::kUInt8, {kLarge}), Whole("u", DType::kUInt8, {kLarge})}));
  EXPECT_EQ(AssignAll(plans, ReplicaPolicy::kLowestRank), (OrdinalsByRank{{0, {0, 1}}, {1, {}}}));
  // Rank 1 was first to come; rank 0 writes its own, and that one is recorded.
  const PlansByRank by_rank = ByRank(plans);
  OrdinalsByRank written = Assign({{1, &plans[1]}}, {}, {1}, ReplicaPolicy::kLowestRank);
  EXPECT_THAT(written[1], ElementsAre(0, 1));
  written.merge(Assign(by_rank, written, {0}, ReplicaPolicy::kLowestRank));
  EXPECT_THAT(written[0], ElementsAre(0, 1));
  EXPECT_TRUE(CheckComplete(by_rank, written).ok());
  EXPECT_THAT(Recorded(by_rank, written).at(0), ElementsAre(0, 1));
  EXPECT_THAT(Recorded(by_rank, written).at(1), IsEmpty());
}

TEST(Assign, LeavesWhatAnotherRankWrites) {
  const std::vector<RankPlan> plans(
      2, PlanOf({Whole("t", DType::kUInt8, {kLarge})}, {Item("i", "value")}));
  EXPECT_EQ(Assign(ByRank(plans), {{1, {0, 1}}}, {0}, ReplicaPolicy::kError),
            (OrdinalsByRank{{0, {}}}));
}

TEST(Assign, GivesEachRankItsRankLocalValues) {
  const std::vector<RankPlan> plans(
      2, PlanOf({RankLocal(Whole("t", DType::kUInt8, {8}))}, {RankLocal(Item("i", "value"))}));
  EXPECT_EQ(AssignAll(plans), (OrdinalsByRank{{0, {0, 1}}, {1, {0, 1}}}));
  EXPECT_TRUE(CheckComplete(ByRank(plans), AssignAll(plans)).ok());
}

TEST(Assign, SkipsChunksWithoutElementsButOneOfAnEmptyTensor) {
  std::vector<RankPlan> plans = {
      PlanOf({Tensor("t", DType::kInt8, {4}, {{{0}, {0}}})}),
      PlanOf({Tensor("t", DType::kInt8, {4}, {{{0}, {4}}}),
              Tensor("empty", DType::kInt8, {4, 0}, {{{0, 0}, {2, 0}}, {{2, 0}, {2, 0}}})}),
      PlanOf({Whole("empty", DType::kInt8, {4, 0})})};
  EXPECT_EQ(AssignAll(plans), (OrdinalsByRank{{0, {}}, {1, {0, 1}}, {2, {}}}));
  EXPECT_TRUE(CheckComplete(ByRank(plans), AssignAll(plans)).ok());
}

TEST(CheckAgreement, NamesTheEntryAndBothRanks) {
  const RankPlan one = PlanOf({Whole("t", DType::kInt8, {4})}, {Item("i", "value")});
  auto check = [&](const RankPlan& other, ReplicaPolicy policy = ReplicaPolicy::kError) {
    return CheckAgreement({{0, &one}, {3, &other}}, policy);
  };
  EXPECT_TRUE(check(one).ok());
  ExpectRefused(check(PlanOf({Whole("i", DType::kInt8, {4})})), {"\"i\"", "0 and 3", "tensor"});
  ExpectRefused(check(PlanOf({}, {Item("t", "value")})), {"\"t\"", "0 and 3", "item"});
  ExpectRefused(check(PlanOf({Whole("t", DType::kInt8, {5})})), {"\"t\"", "[4] and [5]"});
  ExpectRefused(check(PlanOf({Whole("t", DType::kUInt8, {4})})), {"\"t\"", "int8 and uint8"});
  ExpectRefused(check(PlanOf({RankLocal(Whole("t", DType::kInt8, {4}))})),
                {"\"t\"", "0 and 3", "rank-local"});
  ExpectRefused(check(PlanOf({}, {RankLocal(Item("i", "value"))})), {"\"i\"", "rank-local"});
  ExpectRefused(check(PlanOf({}, {Item("i", "value", ItemKind::kText)})), {"\"i\"", "kind"});
  const RankPlan differs = PlanOf({}, {Item("i", "other")});
  ExpectRefused(check(differs), {"\"i\"", "0 and 3", "replicas=lowest_rank"});
  EXPECT_TRUE(check(differs, ReplicaPolicy::kLowestRank).ok());
}

TEST(CheckAgreement, ComparesTensorsWhoseContentIsKnown) {
  std::vector<RankPlan> plans(4, PlanOf({Whole("t", DType::kInt8, {2})}));
  plans[1].tensors[0].content_crc32c = 5;
  plans[2].tensors[0].content_crc32c = 5;
  EXPECT_TRUE(CheckAgreement(ByRank(plans), ReplicaPolicy::kError).ok());
  plans[3].tensors[0].content_crc32c = 6;
  ExpectRefused(CheckAgreement(ByRank(plans), ReplicaPolicy::kError),
                {"\"t\"", "1 and 3", "replicas=lowest_rank", "rank-local"});
  EXPECT_TRUE(CheckAgreement(ByRank(plans), ReplicaPolicy::kLowestRank).ok());
}

TEST(CheckAgreement, LeavesRankLocalValuesAlone) {
  const std::vector<RankPlan> plans = {
      PlanOf({RankLocal(Whole("t", DType::kInt8, {4}))}, {RankLocal(Item("i", "a"))}),
      PlanOf({RankLocal(Whole("t", DType::kFloat64, {7, 7}))}, {RankLocal(Item("i", "b"))})};
  EXPECT_TRUE(CheckAgreement(ByRank(plans), ReplicaPolicy::kError).ok());
}

TEST(CheckComplete, NamesTheHoleAndTheOverlap) {
  std::vector<RankPlan> plans = {PlanOf({Tensor("w", DType::kInt8, {8, 2}, {{{0, 0}, {3, 2}}})}),
                                 PlanOf({Tensor("w", DType::kInt8, {8, 2}, {{{4, 0}, {4, 2}}})})};
  ExpectRefused(CheckComplete(ByRank(plans), AssignAll(plans)), {"\"w\"", "[3:4, 0:2]", "no rank"});
  plans[0].tensors[0].chunks[0].sizes[0] = 5;
  ExpectRefused(CheckComplete(ByRank(plans), AssignAll(plans)),
                {"\"w\"", "[4:5, 0:2]", "rank 0", "[0:5, 0:2]", "rank 1", "[4:8, 0:2]"});
  plans[0].tensors[0].chunks[0].sizes[0] = 4;
  EXPECT_TRUE(CheckComplete(ByRank(plans), AssignAll(plans)).ok());
  plans[0].items = {Item("i", "value")};
  ExpectRefused(CheckComplete(ByRank(plans), {{0, {0}}, {1, {0}}}), {"\"i\"", "no rank"});
  plans = {PlanOf({Tensor("nobody", DType::kInt8, {8}, {})})};
  ExpectRefused(CheckComplete(ByRank(plans), AssignAll(plans)), {"\"nobody\"", "[0:8]"});
}

// What ranks of a made-up training job hold.
std::vector<RankPlan> RandomJob(Random& random) {
  std::vector<RankPlan> plans(Pick(random, 1, 6));
  const uint64_t tensors = Pick(random, 1, 12);
  for (uint64_t t = 0; t < tensors; ++t) {
    const std::string name = absl::StrCat("t", t);
    const uint64_t columns = Pick(random, 0, 3) == 0 ? 30000 : Pick(random, 0, 4);
    const Shape shape = {Pick(random, 0, 9), columns};
    const uint64_t copies = Pick(random, 1, plans.size());  // Of each part.
    const uint64_t groups = plans.size() / copies;
    for (uint32_t rank = 0; rank < plans.size(); ++rank) {
      if (copies == plans.size()) {
        if (rank == 0 || Pick(random, 0, 2) > 0) {
          plans[rank].tensors.push_back(Whole(name, DType::kInt32, shape));
        }
        continue;
      }
      const uint64_t group = std::min<uint64_t>(rank / copies, groups - 1);
      const uint64_t begin = shape[0] * group / groups, end = shape[0] * (group + 1) / groups;
      std::vector<Box> chunks = {{{begin, 0}, {end - begin, columns}}};
      if (end - begin > 1 && group == 0) {  // In two chunks.
        chunks = {{{begin, 0}, {1, columns}}, {{begin + 1, 0}, {end - begin - 1, columns}}};
      }
      plans[rank].tensors.push_back(Tensor(name, DType::kInt32, shape, chunks));
    }
  }
  for (RankPlan& plan : plans) {
    plan.items.push_back(Item("step", "17"));
    if (Pick(random, 0, 1)) plan.items.push_back(RankLocal(Item("random", "state")));
    std::shuffle(plan.tensors.begin(), plan.tensors.end(), random);
  }
  return plans;
}

TEST(Assign, WhatIsRecordedTakesNoLongerPerRankTheMoreRanksThereAre) {
  constexpr int kRanks = 20'000;
  const RankPlan plan = PlanOf({Whole("t", DType::kUInt8, {8}), Whole("u", DType::kUInt8, {8}),
                                Whole("v", DType::kUInt8, {8})});
  PlansByRank plans;
  OrdinalsByRank written;  // By every rank, as if each had been released alone.
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    plans[rank] = &plan;
    written[rank] = {0, 1, 2};
  }
  const OrdinalsByRank recorded = Recorded(plans, written);
  EXPECT_THAT(recorded.at(0), ElementsAre(0, 1, 2));
  for (uint32_t rank = 1; rank < kRanks; ++rank) EXPECT_THAT(recorded.at(rank), IsEmpty());
}

TEST(Assign, WhoeverComesFirstEverythingIsRecordedExactlyOnce) {
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<RankPlan> plans = RandomJob(random);
    const PlansByRank by_rank = ByRank(plans);
    const ReplicaPolicy policy =
        round % 2 == 0 ? ReplicaPolicy::kError : ReplicaPolicy::kLowestRank;
    ASSERT_TRUE(CheckAgreement(by_rank, policy).ok());
    std::vector<uint32_t> order = AllRanks(plans);
    std::shuffle(order.begin(), order.end(), random);
    OrdinalsByRank written;
    PlansByRank joined;
    while (!order.empty()) {
      const auto end = order.begin() + static_cast<int64_t>(Pick(random, 1, order.size()));
      const std::vector<uint32_t> now(order.begin(), end);
      order.erase(order.begin(), end);
      for (uint32_t rank : now) joined[rank] = &plans[rank];
      const OrdinalsByRank more = Assign(joined, written, now, policy);
      std::vector<uint32_t> reversed(now.rbegin(), now.rend());
      EXPECT_EQ(Assign(joined, written, reversed, policy), more);
      for (uint32_t rank : now) ASSERT_TRUE(more.contains(rank));
      for (const auto& [rank, ordinals] : more) {
        EXPECT_TRUE(std::is_sorted(ordinals.begin(), ordinals.end()));
        written[rank] = ordinals;
      }
    }
    const absl::Status complete = CheckComplete(by_rank, written);
    ASSERT_TRUE(complete.ok()) << complete;
    std::map<std::string, std::vector<Box>> boxes;
    std::map<std::string, int> items;
    const OrdinalsByRank recorded = Recorded(by_rank, written);
    for (const auto& [rank, plan] : by_rank) {
      const std::vector<PlanPart> parts = Parts(*plan);
      for (uint32_t ordinal : recorded.at(rank)) {
        const PlanPart& part = parts[ordinal];
        if (part.item != nullptr) {
          ++items[part.item->rank_local ? absl::StrCat("random", rank) : part.item->name];
        } else {
          boxes[part.tensor->name].push_back(part.tensor->chunks[part.chunk_index]);
          if (policy == ReplicaPolicy::kLowestRank) {
            for (uint32_t lower = 0; lower < rank; ++lower) {
              for (const TensorEntry& other : plans[lower].tensors) {
                EXPECT_FALSE(other.name == part.tensor->name && part.staged &&
                             std::count(other.chunks.begin(), other.chunks.end(),
                                        boxes[part.tensor->name].back()) > 0);
              }
            }
          }
        }
      }
    }
    for (const RankPlan& plan : plans) {
      for (const TensorEntry& tensor : plan.tensors) {
        EXPECT_TRUE(CheckTiling(tensor.shape, boxes[tensor.name]).ok());
      }
    }
    for (const auto& [name, count] : items) EXPECT_EQ(count, 1) << name;
    EXPECT_EQ(items["step"], 1);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Assign, TakesManyRanksWithManyTensors) {
  std::vector<RankPlan> plans(64);
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    for (int t = 0; t < 500; ++t) {
      plans[rank].tensors.push_back(Tensor(absl::StrCat("layer.", t, ".weight"), DType::kBFloat16,
                                           {64, 1024}, {{{rank, 0}, {1, 1024}}}));
      plans[rank].tensors.push_back(
          Whole(absl::StrCat("layer.", t, ".bias"), DType::kBFloat16, {1024}));
    }
  }
  const OrdinalsByRank assigned = AssignAll(plans);
  EXPECT_TRUE(CheckComplete(ByRank(plans), assigned).ok());
  EXPECT_EQ(assigned.at(0).size(), 1000u);
  EXPECT_EQ(assigned.at(63).size(), 500u);
}

}  // namespace
}  // namespace ckptd
