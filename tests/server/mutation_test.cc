// Are the checks of the other tests able to see a block that is reused before its completion?
#include "server/mutation.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tests/server/save_rig.h"

namespace ckptd {
namespace {

// A save whose image goes twice through its arena, on a disk that takes its time.
std::vector<std::shared_ptr<FakeRank>> StreamThroughSmallArena(SaveRig& rig) {
  std::vector<std::shared_ptr<FakeRank>> ranks = rig.SaveAll(1);
  EXPECT_TRUE(rig.AwaitEnd(ranks));
  return ranks;
}

const SaveRig::Options kSlowAndSmall = {.arena_limit_bytes = 2 << 20,
                                        .faults = "write:shard=delay:30ms"};

TEST(BlockMutation, WithoutAMistakeNothingIsCaught) {
  active_block_mutation = BlockMutation::kNone;
  SaveRig rig(kSlowAndSmall);
  auto ranks = StreamThroughSmallArena(rig);
  EXPECT_TRUE(ranks[0]->committed) << ranks[0]->failure.status;
  EXPECT_EQ(ranks[0]->arena->block_count(), 2u);
  rig.ExpectStored("a", ranks);
  rig.ExpectQuiet();
}

TEST(BlockMutation, ReusingABlockBeforeItsCompletionIsCaught) {
  active_block_mutation = BlockMutation::kReuseBeforeCompletion;
  {
    SaveRig rig(kSlowAndSmall);
    auto ranks = StreamThroughSmallArena(rig);
    EXPECT_TRUE(ranks[0]->failed);
    EXPECT_EQ(ranks[0]->failure.status.code(), absl::StatusCode::kDataLoss)
        << ranks[0]->failure.status;
  }
  active_block_mutation = BlockMutation::kNone;
}

}  // namespace
}  // namespace ckptd
