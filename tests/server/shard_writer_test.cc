#include "server/shard_writer.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/base/clock.h"
#include "storage/base/crc32c.h"
#include "storage/base/units.h"
#include "storage/disk/open_disk.h"
#include "storage/format/paths.h"
#include "storage/format/shard_header.h"
#include "tests/server/test_image.h"
#include "tests/storage/plan/entries.h"
#include "tests/support/fault_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

constexpr uint64_t kBlock = 1 * kMiB;
constexpr uint32_t kRank = 3;

// What two sections look like: the second chunk of "split" goes to a file of its own.
RankPlan TwoSections() {
  RankPlan plan;
  plan.tensors.push_back(Whole("weights", DType::kFloat32, {700, 1001}));
  plan.tensors.push_back(
      Tensor("split", DType::kInt16, {6, 1000}, {{{0, 0}, {2, 1000}}, {{3, 0}, {3, 999}}}));
  plan.tensors.push_back(Whole("empty", DType::kFloat32, {0, 5}));
  return plan;
}

class ShardWriterTest : public testing::Test {
 protected:
  ShardWriterTest() : loop_(SystemClock()) {
    std::filesystem::create_directory(folder_.path() + "/attempt");
    Open("");
  }

  ~ShardWriterTest() override {
    AwaitIdle();
    loop_.Stop();
    root_->writers().Stop();
  }

  void Open(const std::string& fault_plan) {
    injector_ = *FaultInjector::Create({.plan = fault_plan, .plan_file = "", .log_file = ""});
    root_ = std::make_unique<Root>("default", folder_.path(),
                                   MakeFaultDisk(*OpenDisk(folder_.path(), {}), *injector_));
  }

  template <class F>
  auto OnLoop(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_.Post([&task] { task(); });
    return result.get();
  }

  bool Await(const std::function<bool()>& check) {
    for (int i = 0; i < 30000; ++i) {
      if (OnLoop([&] { return check(); })) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  void AwaitIdle() {
    if (writer_ == nullptr) return;
    EXPECT_TRUE(Await([&] { return writer_->in_flight() == 0; }));
    OnLoop([&] {
      writer_->TakeFiles();
      writer_.reset();
    });
  }

  // A writer of that plan, every block of its image in the arena of the same number.
  void Make(const RankPlan& plan, bool replace_leftovers = false, uint32_t recheck_every = 1) {
    AwaitIdle();
    plan_ = std::make_shared<const RankPlan>(plan);
    layout_ = std::make_shared<const ImageLayout>(LayOutImage(*plan_, AllOrdinals(*plan_)));
    image_ = ImageBytes(*plan_, *layout_, kRank);
    blocks_ = static_cast<uint32_t>((layout_->image_bytes + kBlock - 1) / kBlock);
    arena_ = *Arena::Create(1, kBlock, std::max(blocks_, 1u));
    std::memcpy(arena_->Memory().data(), image_.data(), image_.size());
    written_ = failures_ = idle_ = finished_ = 0;
    progress_ = 0;
    failure_ = absl::OkStatus();
    ShardWriter::Options options;
    options.attempt_dir = "attempt";
    options.rank = kRank;
    options.world_size = 8;
    options.plan = plan_;
    options.layout = layout_;
    options.arena = arena_;
    options.file_mode = 0640;
    options.replace_leftovers = replace_leftovers;
    options.recheck_every = recheck_every;
    ShardWriter::Callbacks callbacks;
    callbacks.progress = [this](uint64_t bytes) { progress_ += bytes; };
    callbacks.written = [this](uint32_t, uint32_t) { ++written_; };
    callbacks.finished = [this] { ++finished_; };
    callbacks.failed = [this](absl::Status status) {
      ++failures_;
      failure_ = std::move(status);
    };
    callbacks.idle = [this] { ++idle_; };
    OnLoop([&] {
      writer_ =
          std::make_shared<ShardWriter>(loop_, *root_, std::move(options), std::move(callbacks));
      writer_->Start();
    });
  }

  void WriteBlock(uint32_t block) {
    OnLoop([&] { writer_->Write(block, block, UnitChecksums(*layout_, image_, block, kBlock)); });
  }

  // `then` runs when all of them have started and none is complete.
  void WriteAllBlocks(const std::function<void()>& then = [] {}) {
    std::vector<std::vector<uint32_t>> checksums;
    for (uint32_t block = 0; block < blocks_; ++block)
      checksums.push_back(UnitChecksums(*layout_, image_, block, kBlock));
    OnLoop([&] {
      for (uint32_t block = 0; block < blocks_; ++block)
        writer_->Write(block, block, checksums[block]);
      then();
    });
  }

  // Everything written and cut.
  bool Complete() {
    if (!Await([&] { return written_ == blocks_ || failures_ > 0; }) || failures_ > 0) return false;
    OnLoop([&] { writer_->Finish(); });
    return Await([&] { return finished_ == 1 || failures_ > 0; }) && failures_ == 0;
  }

  std::string ReadFile(const std::string& name) {
    std::ifstream file(absl::StrCat(folder_.path(), "/attempt/", name), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }

  // Header and data are the file, to the byte.
  void ExpectFiles() {
    auto shards = OnLoop([&] { return writer_->shards(); });
    ASSERT_EQ(shards.size(), layout_->sections.size());
    for (uint32_t i = 0; i < shards.size(); ++i) {
      const Section& section = layout_->sections[i];
      EXPECT_EQ(shards[i].name, ShardFile(kRank, 8, i));
      std::string header = *BuildShardHeader(*plan_, *layout_, i, kRank);
      EXPECT_EQ(shards[i].header_bytes, header.size());
      EXPECT_EQ(shards[i].header_crc32c, Crc32c(header));
      std::string file = ReadFile(shards[i].name);
      EXPECT_EQ(file.size(), header.size() + section.bytes);
      EXPECT_TRUE(file == header + image_.substr(section.image_offset_bytes, section.bytes))
          << "section " << i;
    }
  }

  TempFolder folder_;
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<Root> root_;
  ControlLoop loop_;
  std::shared_ptr<const RankPlan> plan_;
  std::shared_ptr<const ImageLayout> layout_;
  std::string image_;
  uint32_t blocks_ = 0;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<ShardWriter> writer_;
  uint32_t written_ = 0;  // These belong to the loop.
  int failures_ = 0, idle_ = 0, finished_ = 0;
  uint64_t progress_ = 0;
  absl::Status failure_;
};

TEST_F(ShardWriterTest, WritesHeaderAndDataToTheExactByte) {
  Make(TwoSections());
  ASSERT_EQ(layout_->sections.size(), 2u);
  ASSERT_EQ(blocks_, 3u);
  WriteBlock(2);  // In any order.
  WriteBlock(0);
  WriteBlock(1);
  ASSERT_TRUE(Complete()) << failure_;
  ExpectFiles();
  EXPECT_GE(progress_, layout_->image_bytes - kSectionAlignment);
  EXPECT_EQ(OnLoop([&] { return writer_->in_flight(); }), 0);
}

TEST_F(ShardWriterTest, WritesSeveralSectionsOfOneBlock) {
  RankPlan plan;
  std::vector<Box> rows;
  for (uint64_t row = 0; row < 9; ++row) rows.push_back({{row, 0}, {1, 37 + row * 100}});
  plan.tensors.push_back(Tensor("rows", DType::kInt8, {9, 1000}, rows));
  Make(plan);
  ASSERT_EQ(layout_->sections.size(), 9u);
  ASSERT_EQ(blocks_, 1u);
  WriteAllBlocks();
  ASSERT_TRUE(Complete()) << failure_;
  ExpectFiles();
}

TEST_F(ShardWriterTest, WritesAFileForTensorsWithoutElements) {
  RankPlan plan;
  plan.tensors.push_back(Whole("empty", DType::kFloat32, {0, 5}));
  Make(plan);
  ASSERT_EQ(layout_->sections.size(), 1u);
  ASSERT_EQ(blocks_, 0u);
  ASSERT_TRUE(Complete()) << failure_;
  ExpectFiles();
}

TEST_F(ShardWriterTest, WritesNothingForARankWithNothing) {
  Make(RankPlan());
  ASSERT_TRUE(Complete()) << failure_;
  EXPECT_TRUE(OnLoop([&] { return writer_->shards(); }).empty());
  EXPECT_TRUE(root_->disk().List("attempt")->empty());
}

TEST_F(ShardWriterTest, GoesOnAfterShortWrites) {
  Open("write=short:100000");
  Make(TwoSections());
  WriteAllBlocks();
  ASSERT_TRUE(Complete()) << failure_;
  ExpectFiles();
}

TEST_F(ShardWriterTest, TellsTheFirstErrorOnceAndComesToRest) {
  Open("write@3+=error:EIO");
  Make(TwoSections());
  WriteAllBlocks();
  ASSERT_TRUE(Await([&] { return failures_ > 0 && writer_->in_flight() == 0; }));
  EXPECT_EQ(failures_, 1);
  EXPECT_GE(idle_, 1);
  EXPECT_NE(failure_.message().find("shard-00003"), std::string::npos) << failure_;
  WriteBlock(0);  // Nothing happens any more.
  OnLoop([&] {
    EXPECT_EQ(writer_->in_flight(), 0);
    EXPECT_EQ(failures_, 1);
    EXPECT_EQ(finished_, 0);
  });
}

TEST_F(ShardWriterTest, AnErrorOfAnyCallIsTold) {
  for (std::string plan : {"create=error:ENOSPC", "create@2=error:EIO", "allocate=error:ENOSPC",
                           "allocate@2=error:EIO", "write@1=error:EIO", "write@2=error:EIO",
                           "truncate=error:EIO", "truncate@2=error:EIO"}) {
    Open(plan);
    Make(TwoSections(), true);
    WriteAllBlocks();
    EXPECT_FALSE(Complete()) << plan;
    EXPECT_TRUE(Await([&] { return writer_->in_flight() == 0; })) << plan;
    EXPECT_EQ(failures_, 1) << plan;
    EXPECT_FALSE(failure_.ok()) << plan;
    AwaitIdle();
  }
}

TEST_F(ShardWriterTest, SeesEveryBlockThatChangesAfterItWasSealed) {
  for (int i = 0; i < 100; ++i) {
    Open(i % 3 == 0 ? "" : "write=delay:50ms");
    Make(TwoSections(), true);
    // One byte, anywhere in the image; before or while it is written.
    uint64_t at = (i * 104729) % image_.size();
    bool in_a_gap =
        at >= layout_->sections[0].bytes && at < layout_->sections[1].image_offset_bytes;
    auto scribble = [&] { arena_->Memory()[at] ^= std::byte{1}; };
    if (i % 3 == 0) scribble();
    WriteAllBlocks([&] {
      if (i % 3 != 0) scribble();
    });
    bool complete = Complete();
    AwaitIdle();
    if (in_a_gap) {
      EXPECT_TRUE(complete) << "byte " << at << " belongs to no file";
      continue;
    }
    EXPECT_FALSE(complete) << "byte " << at;
    EXPECT_EQ(failure_.code(), absl::StatusCode::kDataLoss) << failure_;
    EXPECT_NE(failure_.message().find("rank 3 changed a sealed block"), std::string::npos);
    EXPECT_NE(failure_.message().find(absl::StrCat("image block ", at / kBlock)), std::string::npos)
        << failure_ << at;
  }
}

TEST_F(ShardWriterTest, ChecksEveryNthBlockIfToldSo) {
  auto fails = [&](uint32_t recheck_every, uint64_t at) {
    Make(TwoSections(), true, recheck_every);
    arena_->Memory()[at] ^= std::byte{1};
    WriteAllBlocks();
    return !Complete();
  };
  EXPECT_TRUE(fails(2, 5));
  EXPECT_FALSE(fails(2, kBlock + 5));
  EXPECT_TRUE(fails(2, 2 * kBlock + 5));
  EXPECT_FALSE(fails(0, 5));
}

TEST_F(ShardWriterTest, ReplacesWhatAFormerLifeLeftOnlyIfToldSo) {
  std::string name = ShardFile(kRank, 8, 0);
  std::ofstream(absl::StrCat(folder_.path(), "/attempt/", name)) << "left over";
  Make(TwoSections());
  WriteAllBlocks();
  EXPECT_FALSE(Complete());
  EXPECT_EQ(failure_.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadFile(name), "left over");

  Make(TwoSections(), true);
  WriteAllBlocks();
  ASSERT_TRUE(Complete()) << failure_;
  ExpectFiles();
}

TEST_F(ShardWriterTest, StoppedItReapsWhatIsInFlightAndSaysNothingButIdle) {
  Open("write=delay:30ms");
  Make(TwoSections());
  WriteAllBlocks();
  OnLoop([&] {
    writer_->Stop();
    written_ = 0;
  });
  ASSERT_TRUE(Await([&] { return writer_->in_flight() == 0; }));
  EXPECT_EQ(written_, 0u);
  EXPECT_EQ(failures_, 0);
  EXPECT_GE(idle_, 1);
}

}  // namespace
}  // namespace ckptd
