#include "server/loads.h"

#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/base/units.h"
#include "tests/server/save_rig.h"
#include "tests/server/test_image.h"

namespace ckptd {
namespace {

// A client that copies what it wants out of each block, and gives it back unless told to hold.
class FakeLoad : public LoadStream {
 public:
  explicit FakeLoad(std::vector<Want> wants) : wants(std::move(wants)) {
    for (const Want& want : this->wants) {
      auto& buffers = bytes.emplace_back();
      for (const Box& box : want.boxes)
        buffers.emplace_back(Elements(box.sizes) * Info(want.dtype).size_bytes, '\0');
    }
  }

  void Planned(const CheckpointInfo& info, const LoadPlan& load_plan, uint64_t load_id,
               uint64_t window_block_bytes, uint32_t window_blocks) override {
    checkpoint = info;
    plan = load_plan;
    id = load_id;
    block_bytes = window_block_bytes;
    blocks = window_blocks;
  }

  void Filled(uint32_t window_block, const LoadRead& read) override {
    filled.push_back(window_block);
    most_filled = std::max(most_filled, filled.size());
    std::span<std::byte> memory = loads->Window(session, id).value()->Block(window_block);
    uint64_t end = read.file_offset_bytes + read.bytes;
    for (const LoadPiece& piece : plan.pieces) {
      if (piece.file != read.file) continue;
      const Want& want = wants[piece.want];
      ForEachRun(piece.stored, want.boxes[piece.box], Info(want.dtype).size_bytes,
                 [&](uint64_t outer, uint64_t inner, uint64_t length) {
                   uint64_t begin = piece.file_offset_bytes + outer;
                   uint64_t from = std::max(begin, read.file_offset_bytes);
                   uint64_t to = std::min(begin + length, end);
                   if (from >= to) return;
                   std::memcpy(bytes[piece.want][piece.box].data() + inner + (from - begin),
                               memory.data() + (from - read.file_offset_bytes), to - from);
                 });
    }
    if (!hold) GiveBack();
  }

  void GiveBack() {
    rig->loop().Post([this, blocks = std::exchange(filled, {})] { loads->Consumed(id, blocks); });
  }

  void Done(uint64_t memory_bytes, uint64_t disk_bytes) override {
    EXPECT_EQ(memory_bytes, 0u);
    done_bytes = disk_bytes;
    done = true;
  }

  void Failed(const Failure& why) override {
    failure = why;
    failed = true;
  }

  SaveRig* rig = nullptr;
  Loads* loads = nullptr;
  Session session;
  const std::vector<Want> wants;
  std::vector<std::vector<std::string>> bytes;  // By want and box.
  bool hold = false;

  CheckpointInfo checkpoint;
  LoadPlan plan;
  uint64_t id = 0, block_bytes = 0, done_bytes = 0;
  uint32_t blocks = 0;
  std::vector<uint32_t> filled;  // And not given back.
  size_t most_filled = 0;
  bool done = false, failed = false;
  Failure failure;
};

class LoadsTest : public testing::Test {
 protected:
  LoadsTest() { Make(64 * kMiB); }
  ~LoadsTest() override { rig_.Crash(); }

  void Make(uint64_t window_bytes) {
    loads_ = std::make_unique<Loads>(rig_.loop(), rig_.attempts(),
                                     Loads::Options{.node = SaveRig::kNode,
                                                    .block_bytes = kMiB,
                                                    .window_bytes = window_bytes,
                                                    .on_point = nullptr,
                                                    .on_let_go = [this] { ++let_go_; }});
  }

  // Everything of a rank's plan.
  static std::vector<Want> Wants(const RankPlan& plan) {
    std::vector<Want> wants;
    for (const TensorEntry& tensor : plan.tensors)
      wants.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.rank_local, tensor.chunks});
    return wants;
  }

  std::shared_ptr<FakeLoad> Start(
      uint32_t rank, std::vector<Want> wants,
      const std::function<void(LoadRequest&, FakeLoad&)>& change = [](LoadRequest&, FakeLoad&) {}) {
    auto load = std::make_shared<FakeLoad>(std::move(wants));
    load->rig = &rig_;
    load->loads = loads_.get();
    load->session = rig_.NewSession(rank, 4);
    LoadRequest request;
    request.wants = load->wants;
    change(request, *load);
    rig_.OnLoop(
        [&] { loads_->Start(load->session, rig_.root_pointer(), std::move(request), load); });
    return load;
  }

  bool AwaitEnd(const std::shared_ptr<FakeLoad>& load) {
    return rig_.Await([&] { return load->done || load->failed; });
  }

  void ExpectLoaded(const std::shared_ptr<FakeLoad>& load, const RankPlan& plan, uint32_t rank) {
    ASSERT_TRUE(AwaitEnd(load));
    ASSERT_TRUE(load->done) << load->failure.status;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const TensorEntry& tensor = plan.tensors[i];
      for (size_t box = 0; box < load->wants[i].boxes.size(); ++box) {
        EXPECT_TRUE(load->bytes[i][box] == BoxBytes(tensor, load->wants[i].boxes[box], rank))
            << tensor.name;
      }
    }
  }

  void ExpectFailed(const std::shared_ptr<FakeLoad>& load, absl::StatusCode code,
                    const std::string& part) {
    ASSERT_TRUE(AwaitEnd(load));
    EXPECT_EQ(load->failure.status.code(), code) << load->failure.status;
    EXPECT_TRUE(absl::StrContains(load->failure.status.message(), part)) << load->failure.status;
  }

  std::filesystem::path ShardOf(const std::string& id, uint32_t rank, uint32_t world_size) {
    return absl::StrCat(rig_.path(), "/", CheckpointDir("job", id), "/",
                        ShardFile(rank, world_size, 0));
  }

  static void Flip(const std::filesystem::path& path, uint64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }

  SaveRig rig_;
  std::unique_ptr<Loads> loads_;
  int let_go_ = 0;  // On the loop.
};

TEST_F(LoadsTest, GivesEachRankItsBytesBack) {
  auto ranks = rig_.SaveAll(4);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  for (uint32_t rank = 0; rank < 4; ++rank) {
    auto load = Start(rank, Wants(*ranks[rank]->plan));
    ExpectLoaded(load, *ranks[rank]->plan, rank);
    EXPECT_EQ(load->checkpoint.id, "a");
    EXPECT_EQ(load->done_bytes, load->plan.read_bytes);
    EXPECT_TRUE(load->plan.missing.empty());
    EXPECT_TRUE(load->plan.extra.empty());
    ASSERT_EQ(load->plan.items.size(), 3u);
    for (const StoredItem& item : load->plan.items) {
      std::string expected = item.name == "step" ? "7"
                             : item.name == "lr" ? absl::StrCat("0.", rank + 1)
                                                 : TestBytes("vocabulary", 70000);
      EXPECT_TRUE(item.value == expected) << item.name;
    }
  }
  EXPECT_TRUE(rig_.OnLoop([&] { return loads_->Status().empty(); }));
}

TEST_F(LoadsTest, GivesBoxesThatNobodyStored) {
  auto ranks = rig_.SaveAll(2);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  Want want{"w",
            DType::kFloat32,
            {2 * 650, 1000},
            false,
            {{{3, 17}, {600, 500}}, {{651, 999}, {649, 1}}, {{10, 10}, {0, 5}}}};
  auto load = Start(3, {want});
  RankPlan plan;
  plan.tensors.push_back({"w", DType::kFloat32, {2 * 650, 1000}, false, {}, {}});
  ExpectLoaded(load, plan, 0);
}

TEST_F(LoadsTest, AWindowIsFilledOnlyAsBlocksComeBack) {
  Make(4 * 2 * kMiB);  // Two blocks for each of four ranks.
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  auto load =
      Start(0, Wants(*ranks[0]->plan), [](LoadRequest&, FakeLoad& load) { load.hold = true; });
  ASSERT_TRUE(rig_.Await([&] { return load->filled.size() == 2; }));
  rig_.OnLoop([&] {
    EXPECT_EQ(load->blocks, 2u);
    EXPECT_EQ(load->block_bytes, kMiB);
    EXPECT_EQ(loads_->Status()[0].done_bytes, 0u);
    EXPECT_EQ(loads_->Status()[0].total_bytes, load->plan.read_bytes);
    EXPECT_EQ(loads_->Status()[0].id, "a");
    load->hold = false;
    load->GiveBack();
  });
  ExpectLoaded(load, *ranks[0]->plan, 0);
  EXPECT_LE(load->most_filled, 2u);
}

TEST_F(LoadsTest, OnceItIsPlannedItLetsGoOfAllItDoesNotRead) {
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  AttemptName other{.sequence = 1000, .random = 1};
  auto load = Start(0, Wants(*ranks[0]->plan), [](LoadRequest&, FakeLoad& l) { l.hold = true; });
  ASSERT_TRUE(rig_.Await([&] { return !load->filled.empty(); }));
  rig_.OnLoop([&] {
    EXPECT_EQ(let_go_, 1) << "what waits for it is told";
    EXPECT_FALSE(loads_->Reads(rig_.root(), "job", other));
    EXPECT_TRUE(loads_->Reads(rig_.root(), "job", ranks[0]->attempt));
    load->hold = false;
  });
  load->GiveBack();
  ASSERT_TRUE(AwaitEnd(load));
  rig_.OnLoop([&] { EXPECT_EQ(let_go_, 2); });
}

TEST_F(LoadsTest, ABlockThatIsNotFilledCannotBeGivenBack) {
  Make(4 * 2 * kMiB);  // Two blocks for each of four ranks.
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  for (std::vector<uint32_t> blocks : {std::vector<uint32_t>{7}, {0, 0}}) {
    auto load =
        Start(0, Wants(*ranks[0]->plan), [](LoadRequest&, FakeLoad& load) { load.hold = true; });
    ASSERT_TRUE(rig_.Await([&] { return load->filled.size() == 2; }));
    rig_.OnLoop([&] { loads_->Consumed(load->id, blocks); });
    ExpectFailed(load, absl::StatusCode::kInvalidArgument, "is not filled");
  }
  rig_.OnLoop([&] { loads_->Consumed(12345, {0}); });  // No such load: nothing.
}

TEST_F(LoadsTest, NothingCanBeGivenBackBeforeThePlan) {
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  for (std::vector<uint32_t> blocks : {std::vector<uint32_t>{}, {0}}) {
    auto load = std::make_shared<FakeLoad>(Wants(*ranks[0]->plan));
    LoadRequest request;
    request.wants = load->wants;
    // The plan is made on a worker, and comes to the loop after this.
    rig_.OnLoop([&] {
      uint64_t id = loads_->Start(ranks[0]->session, rig_.root_pointer(), std::move(request), load);
      loads_->Consumed(id, blocks);
    });
    ExpectFailed(load, absl::StatusCode::kInvalidArgument, "before the load is planned");
  }
}

TEST_F(LoadsTest, AFlippedByteIsDataLossNamingFileTensorAndRange) {
  auto ranks = rig_.SaveAll(2);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  Flip(ShardOf("a", 1, 2), 4096 + 2 * kMiB + 5);
  auto load = Start(1, Wants(*ranks[1]->plan));
  ExpectFailed(load, absl::StatusCode::kDataLoss, "\"w\"");
  EXPECT_TRUE(absl::StrContains(load->failure.status.message(), ShardFile(1, 2, 0)));
  EXPECT_TRUE(absl::StrContains(load->failure.status.message(),
                                absl::StrCat("bytes ", 4096 + 2 * kMiB, " to ")))
      << load->failure.status;
  EXPECT_EQ(load->failure.phase, "load");
  // Who does not need that unit loads.
  ExpectLoaded(Start(0, Wants(*ranks[0]->plan)), *ranks[0]->plan, 0);
}

TEST_F(LoadsTest, ATruncatedFileIsDataLoss) {
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  std::filesystem::resize_file(ShardOf("a", 0, 1), 4096 + kMiB);
  ExpectFailed(Start(0, Wants(*ranks[0]->plan)), absl::StatusCode::kDataLoss, "shard-00000");
  std::filesystem::remove(ShardOf("a", 0, 1));
  EXPECT_TRUE(AwaitEnd(Start(0, Wants(*ranks[0]->plan))));
}

TEST_F(LoadsTest, NothingThereAndOnlyUnfinishedThereAreTwoErrors) {
  ExpectFailed(Start(0, {}), absl::StatusCode::kNotFound, "");
  auto ranks = rig_.SaveAll(2, "a", [](FakeRank& rank) { rank.seal_max = 1; });
  ASSERT_TRUE(rig_.Await([&] { return ranks[0]->attempt.sequence != 0; }));
  ExpectFailed(Start(0, {}), absl::StatusCode::kFailedPrecondition, "a");
  ExpectFailed(Start(0, {}, [](LoadRequest& request, FakeLoad&) { request.checkpoint_id = "b"; }),
               absl::StatusCode::kNotFound, "b");
}

TEST_F(LoadsTest, WaitsForACheckpointInFlightUpToItsDeadline) {
  auto ranks = rig_.SaveAll(2, "a", [](FakeRank& rank) { rank.seal_max = 1; });
  ASSERT_TRUE(rig_.Await([&] { return ranks[1]->sealed.size() == 1; }));
  auto of_a = [](absl::Duration wait) {
    return [wait](LoadRequest& request, FakeLoad&) {
      request.checkpoint_id = "a";
      request.wait = wait;
    };
  };
  auto impatient = Start(0, Wants(*ranks[0]->plan), of_a(absl::ZeroDuration()));
  ExpectFailed(impatient, absl::StatusCode::kFailedPrecondition, "not committed yet");
  auto waiting = Start(0, Wants(*ranks[0]->plan), of_a(absl::Seconds(10)));
  auto patient = Start(1, Wants(*ranks[1]->plan), of_a(absl::Seconds(100)));
  rig_.Advance(absl::Seconds(10));
  ExpectFailed(waiting, absl::StatusCode::kFailedPrecondition, "not committed yet");
  rig_.OnLoop([&] {
    EXPECT_FALSE(patient->failed);
    for (const auto& rank : ranks) {
      rank->seal_max = UINT32_MAX;
      rank->Pump();
    }
  });
  ExpectLoaded(patient, *ranks[1]->plan, 1);
}

TEST_F(LoadsTest, LatestIsResolvedOnceForEachRestore) {
  auto latest = [&](const std::string& restore, const std::string& incarnation = "") {
    auto load = Start(0, {}, [&](LoadRequest& request, FakeLoad& load) {
      request.restore_id = restore;
      load.session.info.incarnation = incarnation;
    });
    EXPECT_TRUE(AwaitEnd(load));
    EXPECT_TRUE(load->done) << load->failure.status;
    return load->checkpoint.id;
  };
  ASSERT_TRUE(rig_.AwaitCommitted(rig_.SaveAll(1, "a")));
  EXPECT_EQ(latest("initial"), "a");
  ASSERT_TRUE(rig_.AwaitCommitted(rig_.SaveAll(1, "b")));
  EXPECT_EQ(latest("initial"), "a");
  EXPECT_EQ(latest("initial", "another life"), "b");
  EXPECT_EQ(latest("second"), "b");
  EXPECT_EQ(latest(""), "b");
  // An explicit id says nothing about the latest.
  auto load = Start(0, {}, [](LoadRequest& request, FakeLoad&) {
    request.checkpoint_id = "a";
    request.restore_id = "third";
  });
  ASSERT_TRUE(AwaitEnd(load));
  EXPECT_EQ(load->checkpoint.id, "a");
  EXPECT_EQ(latest("third"), "b");
  // The next life of the job looks again.
  rig_.OnLoop([&] { loads_->Forget("job", ""); });
  EXPECT_EQ(latest("initial"), "b");
}

TEST_F(LoadsTest, LatestStaysResolvedForARankWhosePlanFailed) {
  ASSERT_TRUE(rig_.AwaitCommitted(rig_.SaveAll(1, "a")));
  auto initial = [](LoadRequest& request, FakeLoad&) { request.restore_id = "initial"; };
  ExpectFailed(Start(0, {{"w", DType::kInt8, {1}, false, {}}}, initial),
               absl::StatusCode::kInvalidArgument, "\"w\"");
  ASSERT_TRUE(rig_.AwaitCommitted(rig_.SaveAll(1, "b")));
  auto load = Start(1, {}, initial);
  ASSERT_TRUE(AwaitEnd(load));
  EXPECT_EQ(load->checkpoint.id, "a");
}

TEST_F(LoadsTest, ABrokenStreamEndsItsLoad) {
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  auto load =
      Start(0, Wants(*ranks[0]->plan), [](LoadRequest&, FakeLoad& load) { load.hold = true; });
  ASSERT_TRUE(rig_.Await([&] { return !load->filled.empty(); }));
  rig_.OnLoop([&] {
    EXPECT_TRUE(loads_->Window(load->session, load->id).ok());
    Session other = rig_.NewSession(1, 4);
    EXPECT_EQ(loads_->Window(other, load->id).status().code(), absl::StatusCode::kNotFound);
    loads_->StreamGone(load->id);
    EXPECT_TRUE(loads_->Status().empty());
    EXPECT_EQ(loads_->Window(load->session, load->id).status().code(), absl::StatusCode::kNotFound);
    loads_->Consumed(load->id, {0});
    loads_->StreamGone(load->id);
  });
  EXPECT_FALSE(load->failed || load->done);
}

TEST_F(LoadsTest, ADamagedItemIsDataLoss) {
  auto ranks = rig_.SaveAll(1);
  ASSERT_TRUE(rig_.AwaitCommitted(ranks));
  auto size = std::filesystem::file_size(ShardOf("a", 0, 1));
  Flip(ShardOf("a", 0, 1), size - 100);  // Items come last.
  ExpectFailed(Start(0, {}), absl::StatusCode::kDataLoss, "vocabulary");
}

}  // namespace
}  // namespace ckptd
