#include "server/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr uint64_t kHugePageBytes = 2 * kMiB;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(uint64_t generation, uint64_t block_bytes,
                                                     uint32_t block_count) {
  UniqueFd fd(memfd_create("ckptd-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(block_bytes * block_count)) != 0) {
    return ErrnoStatus(
        errno, absl::StrCat("ftruncate of an arena of ", block_bytes * block_count, " bytes"));
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus(errno, "F_ADD_SEALS");
  return Map(generation, std::move(fd), block_bytes, block_count, BlockState::kUntouched);
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Adopt(uint64_t generation, UniqueFd fd,
                                                    uint64_t block_bytes, uint32_t block_count) {
  struct stat info;
  if (fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "fstat of an offered arena");
  if (block_count == 0 || static_cast<uint64_t>(info.st_size) != block_bytes * block_count) {
    return absl::InvalidArgumentError(absl::StrCat("the offered arena has ", info.st_size,
                                                   " bytes, not ", block_count, " blocks of ",
                                                   block_bytes));
  }
  if (fcntl(fd.get(), F_GET_SEALS) != kSeals) {
    return absl::InvalidArgumentError("the offered arena does not have a daemon's seals");
  }
  return Map(generation, std::move(fd), block_bytes, block_count, BlockState::kFree);
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::Map(uint64_t generation, UniqueFd fd,
                                                  uint64_t block_bytes, uint32_t block_count,
                                                  BlockState initial) {
  // Aligned to 2 MiB, or the kernel could not use pages of that size.
  uint64_t bytes = block_bytes * block_count;
  uint64_t reserved_bytes = bytes + kHugePageBytes;
  void* reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED)
    return ErrnoStatus(errno, absl::StrCat("mmap of ", reserved_bytes, " bytes"));
  auto base =
      reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(reserved), kHugePageBytes));
  if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0) ==
      MAP_FAILED) {
    int error = errno;
    munmap(reserved, reserved_bytes);
    return ErrnoStatus(error, absl::StrCat("mmap of an arena of ", bytes, " bytes"));
  }
  madvise(base, bytes, MADV_DONTFORK);
  return std::unique_ptr<Arena>(new Arena(generation, std::move(fd), base,
                                          static_cast<std::byte*>(reserved), reserved_bytes,
                                          block_bytes, block_count, initial));
}

Arena::Arena(uint64_t generation, UniqueFd fd, std::byte* base, std::byte* reserved,
             uint64_t reserved_bytes, uint64_t block_bytes, uint32_t block_count,
             BlockState initial)
    : generation_(generation),
      adopted_(initial == BlockState::kFree),
      fd_(std::move(fd)),
      base_(base),
      reserved_(reserved),
      reserved_bytes_(reserved_bytes),
      block_bytes_(block_bytes),
      states_(block_count, initial) {
  if (adopted_) {
    for (uint32_t block = 0; block < block_count; ++block) used_.push_back(block);
  } else {
    untouched_ = block_count;
  }
}

Arena::~Arena() {
  if (detach_) detach_(Memory());
  munmap(reserved_, reserved_bytes_);
}

std::span<std::byte> Arena::Block(uint32_t block) const {
  CKPT_CHECK(block < block_count(), "a block of this arena");
  return {base_ + block * block_bytes_, block_bytes_};
}

absl::StatusOr<PageSize> Arena::TouchBlock(uint32_t block, bool huge_pages) const {
  std::span<std::byte> memory = Block(block);
  ASSIGN_OR_RETURN(PageSize size,
                   TouchPages(fd_.get(), block * block_bytes_, block_bytes_, huge_pages));
  madvise(memory.data(), memory.size(),
          MADV_POPULATE_READ);  // Into our own page table, ahead of use.
  return size;
}

void Arena::Touched(uint32_t block) {
  CKPT_CHECK(states_[block] == BlockState::kUntouched, "a block is touched once");
  states_[block] = BlockState::kFree;
  fresh_.push_back(block);
  --untouched_;
}

std::optional<uint32_t> Arena::Grant() {
  if (fresh_.empty() && (used_.empty() || untouched_ > 0)) return std::nullopt;
  std::deque<uint32_t>& free = fresh_.empty() ? used_ : fresh_;
  uint32_t block = free.front();
  free.pop_front();
  states_[block] = BlockState::kGranted;
  return block;
}

bool Arena::GrantBlock(uint32_t block) {
  if (block >= block_count() || states_[block] != BlockState::kFree) return false;
  std::erase(fresh_, block);
  std::erase(used_, block);
  states_[block] = BlockState::kGranted;
  return true;
}

void Arena::Seal(uint32_t block) {
  CKPT_CHECK(states_[block] == BlockState::kGranted, "only a granted block is sealed");
  states_[block] = BlockState::kSealed;
}

void Arena::Written(uint32_t block) {
  CKPT_CHECK(states_[block] == BlockState::kSealed, "only a sealed block is written");
  Free(block);
}

void Arena::Abandon(uint32_t block) {
  CKPT_CHECK(states_[block] == BlockState::kGranted, "only a granted block is abandoned");
  Free(block);
}

uint32_t Arena::busy_count() const {
  return static_cast<uint32_t>(std::count_if(states_.begin(), states_.end(), [](BlockState state) {
    return state == BlockState::kGranted || state == BlockState::kSealed;
  }));
}

void Arena::Free(uint32_t block) {
  states_[block] = BlockState::kFree;
  used_.push_back(block);
}

}  // namespace ckptd
