#include "server/arena_pool.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/base/clock.h"
#include "storage/base/units.h"
#include "storage/disk/open_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

constexpr uint64_t kBlock = 1 * kMiB;

class ArenaPoolTest : public testing::Test {
 protected:
  ArenaPoolTest()
      : root_("default", folder_.path(), *OpenDisk(folder_.path(), {})), loop_(SystemClock()) {
    Make(16 * kMiB);
  }

  ~ArenaPoolTest() override {
    loop_.Stop();
    root_.writers().Stop();
  }

  void Make(uint64_t limit_bytes) {
    pool_ = std::make_unique<ArenaPool>(
        loop_, ArenaPool::Options{
                   .block_bytes = kBlock,
                   .limit_bytes = limit_bytes,
                   .huge_pages = true,
                   .touch_threads = 2,
                   .on_block_free = [this](const std::string& job,
                                           uint32_t rank) { ++freed_[absl::StrCat(job, rank)]; },
                   .on_no_memory = nullptr});
  }

  template <class F>
  auto OnLoop(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_.Post([&task] { task(); });
    return result.get();
  }

  absl::StatusOr<std::shared_ptr<Arena>> Obtain(uint32_t rank, uint64_t image_bytes,
                                                uint32_t world_size = 1,
                                                const std::string& job = "job") {
    return OnLoop([&] { return pool_->Obtain(job, rank, world_size, image_bytes, root_); });
  }

  std::shared_ptr<Arena> Find(uint32_t rank, const std::string& job = "job") {
    return OnLoop([&] { return pool_->Find(job, rank); });
  }

  uint64_t Bytes() {
    return OnLoop([&] { return pool_->bytes(); });
  }

  bool HasWarning(const std::string& part) {
    return OnLoop([&] {
      return std::any_of(
          pool_->warnings().begin(), pool_->warnings().end(),
          [&](const std::string& warning) { return warning.find(part) != std::string::npos; });
    });
  }

  // Until nobody but the pool has it.
  void AwaitSettled(uint32_t rank) {
    for (int i = 0; i < 20000; ++i) {
      if (OnLoop([&] { return pool_->Find("job", rank).use_count(); }) == 2) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << "the arena of rank " << rank << " is in use";
  }

  // Until each block was told to be free.
  void AwaitTouched(const std::string& who, int blocks) {
    for (int i = 0; i < 20000; ++i) {
      if (OnLoop([&] { return freed_[who]; }) >= blocks) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    FAIL() << who << " was not touched";
  }

  TempFolder folder_;
  Root root_;
  ControlLoop loop_;
  std::map<std::string, int> freed_;
  std::unique_ptr<ArenaPool> pool_;
};

TEST_F(ArenaPoolTest, MakesAnArenaOfWholeBlocksAndTellsOfEach) {
  auto arena = Obtain(0, 2 * kBlock + 1);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->block_count(), 3u);
  EXPECT_EQ((*arena)->block_bytes(), kBlock);
  AwaitTouched("job0", 3);
  OnLoop([&] {
    EXPECT_EQ(freed_["job0"], 3);
    for (uint32_t block = 0; block < 3; ++block)
      EXPECT_EQ((*arena)->state(block), Arena::BlockState::kFree);
  });
  EXPECT_EQ(Find(0), *arena);
  EXPECT_EQ(Find(1), nullptr);
  EXPECT_EQ(Find(0, "other"), nullptr);
  EXPECT_EQ(OnLoop([&] { return pool_->BytesOf("job", 0); }), 3 * kBlock);
  EXPECT_EQ(OnLoop([&] { return pool_->BytesOf("job", 1); }), 0u);
}

TEST_F(ArenaPoolTest, KeepsAnArenaThatIsLargeEnough) {
  auto first = *Obtain(0, 3 * kBlock);
  EXPECT_EQ(*Obtain(0, 3 * kBlock), first);
  EXPECT_EQ(*Obtain(0, 1), first);
  EXPECT_EQ(*Obtain(0, 0), first);
  auto larger = *Obtain(0, 3 * kBlock + 1);
  EXPECT_NE(larger, first);
  EXPECT_GT(larger->generation(), first->generation());
  EXPECT_EQ(Find(0), larger);
  EXPECT_EQ(Bytes(), 7 * kBlock) << "the former one is in use";
  AwaitTouched("job0", 7);
  OnLoop([&] {
    first.reset();
    larger.reset();
  });
  AwaitSettled(0);
  EXPECT_EQ(Bytes(), 4 * kBlock);
}

TEST_F(ArenaPoolTest, ARankGetsItsShareOfTheLimit) {
  auto arena = Obtain(0, 10 * kBlock, 4);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->block_count(), 4u) << "16 MiB for four ranks";
  EXPECT_TRUE(HasWarning(absl::StrCat(10 * kBlock, " bytes through less memory; --arena-limit of ",
                                      40 * kBlock, " would hold it")));
  EXPECT_EQ(*Obtain(0, 10 * kBlock, 4), *arena) << "it cannot grow";
  for (uint32_t rank = 1; rank < 4; ++rank) {
    EXPECT_EQ((*Obtain(rank, 10 * kBlock, 4))->block_count(), 4u);
  }
  EXPECT_EQ(Bytes(), 16 * kBlock);
}

TEST_F(ArenaPoolTest, GivesWhatIsLeftAndThenNothingNamingBothNumbers) {
  ASSERT_TRUE(Obtain(0, 13 * kBlock).ok());
  auto rest = Obtain(1, 5 * kBlock);
  ASSERT_TRUE(rest.ok());
  EXPECT_EQ((*rest)->block_count(), 3u);
  EXPECT_TRUE(HasWarning(absl::StrCat("--arena-limit of ", 18 * kBlock)));
  auto none = Obtain(2, 5 * kBlock);
  EXPECT_EQ(none.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(none.status().message().find(absl::StrCat(5 * kBlock)), std::string::npos);
  EXPECT_NE(none.status().message().find(absl::StrCat(16 * kBlock)), std::string::npos);
  EXPECT_NE(none.status().message().find("rank 2 of job \"job\""), std::string::npos);
  EXPECT_EQ(*Obtain(1, 5 * kBlock), *rest) << "it cannot grow";
}

TEST_F(ArenaPoolTest, GivesUpOrphansOldestFirstAndOnlyAsManyAsItMust) {
  for (uint32_t rank = 0; rank < 4; ++rank) ASSERT_TRUE(Obtain(rank, 4 * kBlock).ok());
  for (uint32_t rank = 0; rank < 4; ++rank) AwaitSettled(rank);
  OnLoop([&] {
    pool_->Orphan("job", 2);
    pool_->Orphan("job", 0);
    pool_->Orphan("job", 1);
    pool_->Claim("job", 1);  // Its successor is there.
    pool_->Orphan("job", 9);
    pool_->Claim("job", 9);  // There is none: nothing.
  });
  EXPECT_NE(Find(2), nullptr) << "no pressure yet";
  EXPECT_EQ((*Obtain(5, 3 * kBlock))->block_count(), 3u);
  EXPECT_EQ(Find(2), nullptr);
  EXPECT_NE(Find(0), nullptr);
  EXPECT_NE(Find(1), nullptr);
  EXPECT_EQ((*Obtain(6, 3 * kBlock))->block_count(), 3u);
  EXPECT_EQ(Find(0), nullptr);
  EXPECT_EQ((*Obtain(7, 8 * kBlock))->block_count(), 2u) << "nobody living gives up anything";
  EXPECT_NE(Find(1), nullptr);
  EXPECT_NE(Find(3), nullptr);
}

TEST_F(ArenaPoolTest, AnArenaThatGrowsGivesUpNoOrphanForItsOwnMemory) {
  ASSERT_TRUE(Obtain(0, 4 * kBlock).ok());
  ASSERT_TRUE(Obtain(1, 8 * kBlock).ok());
  OnLoop([&] { pool_->Orphan("job", 0); });
  // 12 MiB for rank 1, whose 8 go, and 4 of the orphan.
  EXPECT_EQ((*Obtain(1, 12 * kBlock))->block_count(), 12u);
  EXPECT_NE(Find(0), nullptr);
}

TEST_F(ArenaPoolTest, ADroppedArenaIsCountedUntilItsLastSaveIsOver) {
  auto held = *Obtain(0, 10 * kBlock);
  AwaitTouched("job0", 10);
  OnLoop([&] { pool_->Drop("job", 0); });
  EXPECT_EQ(Find(0), nullptr);
  EXPECT_EQ(Bytes(), 10 * kBlock);
  EXPECT_EQ((*Obtain(0, 10 * kBlock))->block_count(), 6u);
  AwaitTouched("job0", 16);
  AwaitSettled(0);
  OnLoop([&] { held.reset(); });
  EXPECT_EQ(Bytes(), 6 * kBlock);
  EXPECT_EQ((*Obtain(0, 10 * kBlock))->block_count(), 10u);
}

TEST_F(ArenaPoolTest, TakesAnArenaBackFromAClient) {
  UniqueFd fd;
  {
    auto arena = *Obtain(0, 2 * kBlock);
    AwaitTouched("job0", 2);
    std::memset(arena->Block(1).data(), 'z', 10);
    fd = UniqueFd(fcntl(arena->fd(), F_DUPFD_CLOEXEC, 0));
  }
  uint64_t before = Find(0)->generation();
  Make(16 * kMiB);  // A daemon starts again.
  auto bad = OnLoop([&] {
    return pool_->Adopt("job", 0, UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), kBlock / 2, 4);
  });
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument) << "no block is so small";
  EXPECT_EQ(OnLoop([&] {
              return pool_
                  ->Adopt("job", 0, UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), kBlock, 5)
                  .status()
                  .code();
            }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Find(0), nullptr);
  auto adopted = OnLoop([&] { return pool_->Adopt("job", 0, std::move(fd), kBlock, 2); });
  OnLoop([&] {
    pool_->AttachAdopted("job", 0, root_);
    pool_->AttachAdopted("job", 1, root_);  // There is none.
  });
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_GT((*adopted)->generation(), before) << "a client tells it from its former one";
  EXPECT_EQ((*adopted)->Block(1)[9], std::byte{'z'});
  EXPECT_EQ(*Obtain(0, 2 * kBlock), *adopted);
  EXPECT_EQ(Bytes(), 2 * kBlock);
}

TEST_F(ArenaPoolTest, ItsLastArenasMayOutliveIt) {
  auto arena = *Obtain(0, 4 * kBlock);
  AwaitTouched("job0", 4);
  pool_.reset();
  arena->Block(0)[0] = std::byte{1};
  arena.reset();  // Unmapped here and now, by nobody's worker.
  Make(16 * kMiB);
  EXPECT_EQ(Bytes(), 0u);
}

TEST_F(ArenaPoolTest, RemembersFewWarnings) {
  for (uint64_t i = 0; i < 50; ++i) ASSERT_TRUE(Obtain(0, 20 * kMiB + i * kMiB).ok());
  OnLoop([&] { EXPECT_EQ(pool_->warnings().size(), 20u); });
}

}  // namespace
}  // namespace ckptd
