#include "client/cpp/arena_map.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "client/cpp/fork_guard.h"
#include "storage/base/unique_fd.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;

UniqueFd MemoryOf(uint64_t bytes) {
  UniqueFd fd(memfd_create("arena", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

TEST(SharedMemory, LiesWhereHugePagesFitWhateverItsSize) {
  ForkGuard guard;
  for (uint64_t bytes : {uint64_t{1}, 4 * kKiB, 3 * kMiB + 5, 6 * kMiB}) {
    auto memory = SharedMemory::Map(MemoryOf(bytes), bytes, true, guard);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->bytes().data()) % kHugePageBytes, 0u);
    ASSERT_EQ((*memory)->bytes().size(), bytes);
    (*memory)->bytes().front() = std::byte{1};
    (*memory)->bytes().back() = std::byte{2};
  }
}

TEST(SharedMemory, OfLessThanWasPromisedIsRefused) {
  ForkGuard guard;
  EXPECT_FALSE(SharedMemory::Map(MemoryOf(4096), 4097, true, guard).ok());
  EXPECT_FALSE(SharedMemory::Map(UniqueFd(), 1, true, guard).ok());
}

TEST(ArenaMap, ABlockIsEnteredOnceAndHeldByWhoGotItLast) {
  ForkGuard guard;
  auto memory = SharedMemory::Map(MemoryOf(3 * kMiB), 3 * kMiB, true, guard);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ArenaMap map(*std::move(memory), kMiB, 3);
  EXPECT_TRUE(map.Give(0, 1, 7));
  EXPECT_FALSE(map.Give(0, 2, 8));
  EXPECT_FALSE(map.Holds(0, 1, 7));
  EXPECT_TRUE(map.Holds(0, 2, 8));
  map.EnterBlock(1);
  EXPECT_FALSE(map.Holds(1, 0, 1));
  EXPECT_FALSE(map.Give(1, 1, 0)) << "it was entered ahead";
  EXPECT_TRUE(map.Give(2, 1, 0));
}

}  // namespace
}  // namespace ckptd
