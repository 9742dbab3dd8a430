#include "server/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr uint64_t kBlock = 1 * kMiB;

std::unique_ptr<Arena> Make(uint32_t blocks, bool touched = true) {
  auto arena = Arena::Create(7, kBlock, blocks);
  EXPECT_TRUE(arena.ok()) << arena.status();
  for (uint32_t block = 0; touched && block < blocks; ++block) (*arena)->Touched(block);
  return *std::move(arena);
}

UniqueFd Duplicate(const Arena& arena) { return UniqueFd(fcntl(arena.fd(), F_DUPFD_CLOEXEC, 0)); }

// The line of this process's smaps that begins with `key` and belongs to the mapping at `address`.
std::string SmapsLine(const void* address, const std::string& key) {
  std::ifstream smaps("/proc/self/smaps");
  std::string begin = absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(address)), "-");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find('-') < line.find(' ')) inside = line.compare(0, begin.size(), begin) == 0;
    if (inside && line.compare(0, key.size(), key) == 0) return line.substr(key.size());
  }
  return "";
}

TEST(Arena, IsAMemfdThatCannotChangeItsSize) {
  auto arena = Make(3);
  EXPECT_EQ(arena->generation(), 7u);
  EXPECT_EQ(arena->bytes(), 3 * kBlock);
  EXPECT_EQ(arena->block_count(), 3u);
  EXPECT_EQ(fcntl(arena->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(ftruncate(arena->fd(), kBlock), 0);
  EXPECT_NE(ftruncate(arena->fd(), 4 * kBlock), 0);
  EXPECT_NE(fcntl(arena->fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_NE(fcntl(arena->fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->Memory().data()) % (2 * kMiB), 0u);
}

TEST(Arena, BlocksLieOneAfterTheOtherInTheSharedMemory) {
  auto arena = Make(3);
  void* other = mmap(nullptr, 3 * kBlock, PROT_READ, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  for (uint32_t block = 0; block < 3; ++block) {
    ASSERT_EQ(arena->Block(block).size(), kBlock);
    std::memset(arena->Block(block).data(), 'a' + block, kBlock);
  }
  auto* seen = static_cast<const char*>(other);
  EXPECT_EQ(seen[0], 'a');
  EXPECT_EQ(seen[kBlock - 1], 'a');
  EXPECT_EQ(seen[kBlock], 'b');
  EXPECT_EQ(seen[3 * kBlock - 1], 'c');
  munmap(other, 3 * kBlock);
}

TEST(Arena, IsNotInAForkedChild) {
  auto arena = Make(1);
  arena->Block(0)[0] = std::byte{1};
  std::string flags = SmapsLine(arena->Memory().data(), "VmFlags:");
  EXPECT_NE(absl::StrCat(flags, " ").find(" dc "), std::string::npos) << flags;
}

TEST(Arena, CountsAsTouchedOnceTouched) {
  auto arena = Make(2, false);
  EXPECT_FALSE(arena->Grant().has_value());
  EXPECT_TRUE(arena->TouchBlock(1, true).ok());
  unsigned char resident[kBlock / 4096];
  ASSERT_EQ(mincore(arena->Block(1).data(), kBlock, resident), 0);
  for (unsigned char page : resident) EXPECT_EQ(page & 1, 1);
  arena->Touched(1);
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(1));
  EXPECT_FALSE(arena->Grant().has_value());
  EXPECT_EQ(arena->state(0), Arena::BlockState::kUntouched);
}

TEST(Arena, TouchingKeepsWhatABlockHolds) {
  auto arena = Make(1, false);
  std::memset(arena->Block(0).data(), 'x', kBlock);
  ASSERT_TRUE(arena->TouchBlock(0, true).ok());
  EXPECT_EQ(arena->Block(0)[0], std::byte{'x'});
  EXPECT_EQ(arena->Block(0)[kBlock - 1], std::byte{'x'});
}

TEST(Arena, GrantsUnusedBlocksFirstThenTheOneThatWasFreedFirst) {
  auto arena = Make(3);
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(0));
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(1));
  arena->Seal(1);
  arena->Written(1);
  arena->Seal(0);
  arena->Written(0);
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(2)) << "never held an image";
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(1));
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(0));
  EXPECT_FALSE(arena->Grant().has_value());
}

TEST(Arena, ABlockThatHoldsAnImageIsNotGivenAwayWhileUntouchedOnesAreToCome) {
  auto arena = Make(2, false);
  arena->Touched(0);
  ASSERT_TRUE(arena->Grant().has_value());
  arena->Seal(0);
  arena->Written(0);
  EXPECT_FALSE(arena->Grant().has_value());
  arena->Touched(1);
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(1));
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(0));
}

TEST(Arena, GrantsAChosenBlockOnlyIfItIsFree) {
  auto arena = Make(3);
  EXPECT_TRUE(arena->GrantBlock(2));
  EXPECT_FALSE(arena->GrantBlock(2));
  EXPECT_FALSE(arena->GrantBlock(3));
  arena->Seal(2);
  EXPECT_FALSE(arena->GrantBlock(2));
  arena->Written(2);
  EXPECT_TRUE(arena->GrantBlock(2));
  EXPECT_EQ(arena->Grant(), std::optional<uint32_t>(0));
}

TEST(Arena, CountsGrantedAndSealedBlocksAsBusy) {
  auto arena = Make(3);
  EXPECT_EQ(arena->busy_count(), 0u);
  arena->Grant();
  arena->Grant();
  EXPECT_EQ(arena->busy_count(), 2u);
  arena->Seal(0);
  EXPECT_EQ(arena->busy_count(), 2u);
  arena->Written(0);
  arena->Abandon(1);
  EXPECT_EQ(arena->busy_count(), 0u);
}

TEST(ArenaDeathTest, EveryWrongStepOfABlocksLifeEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto arena = Make(4);
  arena->Grant();        // 0 is granted …
  arena->GrantBlock(1);  // … 1 sealed …
  arena->Seal(1);        // … 2 and 3 free.
  EXPECT_DEATH(arena->Seal(2), "only a granted block is sealed");
  EXPECT_DEATH(arena->Seal(1), "only a granted block is sealed");
  EXPECT_DEATH(arena->Written(0), "only a sealed block is written");
  EXPECT_DEATH(arena->Written(2), "only a sealed block is written");
  EXPECT_DEATH(arena->Abandon(1), "only a granted block is abandoned");
  EXPECT_DEATH(arena->Abandon(2), "only a granted block is abandoned");
  EXPECT_DEATH(arena->Touched(2), "touched once");
  EXPECT_DEATH(arena->Block(4), "a block of this arena");
}

TEST(Arena, IsTakenBackWithItsBytes) {
  auto arena = Make(2);
  std::memset(arena->Block(1).data(), 'y', kBlock);
  UniqueFd fd = Duplicate(*arena);
  arena.reset();
  auto adopted = Arena::Adopt(9, std::move(fd), kBlock, 2);
  ASSERT_TRUE(adopted.ok()) << adopted.status();
  EXPECT_EQ((*adopted)->generation(), 9u);
  EXPECT_EQ((*adopted)->Block(1)[5], std::byte{'y'});
  EXPECT_EQ((*adopted)->state(0), Arena::BlockState::kFree);
  EXPECT_TRUE((*adopted)->GrantBlock(1));
}

TEST(Arena, RefusesToTakeBackWhatItDidNotMake) {
  auto arena = Make(2);
  auto code = [](const auto& adopted) { return adopted.status().code(); };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  auto size = Arena::Adopt(1, Duplicate(*arena), kBlock, 3);
  EXPECT_EQ(code(size), kInvalid);
  EXPECT_NE(size.status().message().find("2097152"), std::string::npos) << size.status();
  EXPECT_EQ(code(Arena::Adopt(1, Duplicate(*arena), 2 * kBlock, 2)), kInvalid);
  EXPECT_EQ(code(Arena::Adopt(1, Duplicate(*arena), kBlock, 0)), kInvalid);

  UniqueFd unsealed(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(unsealed.get(), kBlock), 0);
  EXPECT_EQ(code(Arena::Adopt(1, std::move(unsealed), kBlock, 1)), kInvalid);

  UniqueFd half(memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(half.get(), kBlock), 0);
  ASSERT_EQ(fcntl(half.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(code(Arena::Adopt(1, std::move(half), kBlock, 1)), kInvalid);

  UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid()) {
    ASSERT_EQ(ftruncate(file.get(), kBlock), 0);
    EXPECT_EQ(code(Arena::Adopt(1, std::move(file), kBlock, 1)), kInvalid);
  }
  EXPECT_FALSE(Arena::Adopt(1, UniqueFd(), kBlock, 1).ok());
}

TEST(Arena, TellsBeforeItsMemoryGoes) {
  auto arena = Make(1);
  std::span<std::byte> told;
  std::byte* base = arena->Memory().data();
  arena->BeforeUnmap([&](std::span<std::byte> memory) {
    memory[0] = std::byte{1};  // Still mapped.
    told = memory;
  });
  arena.reset();
  EXPECT_EQ(told.data(), base);
  EXPECT_EQ(told.size(), kBlock);
}

}  // namespace
}  // namespace ckptd
