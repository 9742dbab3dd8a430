#include "client/cpp/arena_map.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd::inline client {
namespace {

constexpr absl::Duration kOfferTimeout = absl::Seconds(30);
constexpr uint64_t kPageBytes = 4 * kKiB;
constexpr uint64_t kHugePageBytes = 2 * kMiB;

// At a multiple of 2 MiB: elsewhere the kernel enters even huge pages in pieces of 4 KiB.
void* MapAligned(int fd, uint64_t bytes, int protection) {
  const uint64_t room_bytes = bytes + kHugePageBytes;
  void* room =
      mmap(nullptr, room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return MAP_FAILED;
  const auto room_begin = reinterpret_cast<uintptr_t>(room);
  const uintptr_t begin = RoundUp(room_begin, kHugePageBytes);
  const uintptr_t end = RoundUp(begin + bytes, kPageBytes);
  void* memory =
      mmap(reinterpret_cast<void*>(begin), bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    munmap(room, room_bytes);
    errno = error;
    return MAP_FAILED;
  }
  if (begin > room_begin) munmap(room, begin - room_begin);
  if (room_begin + room_bytes > end) {
    munmap(reinterpret_cast<void*>(end), room_begin + room_bytes - end);
  }
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Map(UniqueFd fd, uint64_t bytes,
                                                                bool writable, ForkGuard& guard) {
  struct stat status;
  if (!fd.valid() || fstat(fd.get(), &status) != 0 ||
      static_cast<uint64_t>(status.st_size) < bytes || bytes == 0) {
    return absl::InternalError(
        absl::StrCat("ckptd sent no memory of ", bytes, " bytes over the side socket"));
  }
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = MapAligned(fd.get(), bytes, protection);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, absl::StrCat("mapping ", bytes, " bytes"));
  madvise(memory, bytes, MADV_DONTFORK);
  return std::unique_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), {static_cast<std::byte*>(memory), bytes}, guard));
}

SharedMemory::SharedMemory(UniqueFd fd, std::span<std::byte> memory, ForkGuard& guard)
    : guard_(guard), fd_(std::move(fd)), memory_(memory) {
  guard_.Add(fd_.get());
}

SharedMemory::~SharedMemory() {
  guard_.Forget(fd_.get());
  munmap(memory_.data(), memory_.size());
}

ArenaMap::ArenaMap(std::unique_ptr<SharedMemory> memory, uint64_t block_bytes, uint32_t block_count)
    : memory_(std::move(memory)),
      block_bytes_(block_bytes),
      block_count_(block_count),
      holders_(block_count) {}

std::span<std::byte> ArenaMap::Block(uint32_t block) const {
  CKPT_CHECK(block < block_count_, "a block lies inside the arena");
  return memory_->bytes().subspan(block * block_bytes_, block_bytes_);
}

bool ArenaMap::Give(uint32_t block, uint64_t save, uint32_t image_block) {
  std::lock_guard lock(mutex_);
  const bool entered = holders_[block].entered;
  holders_[block] = {save, image_block, true};
  return !entered;
}

void ArenaMap::EnterPages(std::span<std::byte> part) {
  // Kernels before 5.14 do not know how, and enter one page at a time.
  madvise(part.data(), part.size(), MADV_POPULATE_WRITE);
}

void ArenaMap::EnterBlock(uint32_t block) {
  EnterPages(Block(block));
  std::lock_guard lock(mutex_);
  holders_[block].entered = true;
}

bool ArenaMap::Holds(uint32_t block, uint64_t save, uint32_t image_block) const {
  std::lock_guard lock(mutex_);
  return holders_[block].save == save && holders_[block].image_block == image_block;
}

absl::StatusOr<std::shared_ptr<ArenaMap>> Arena::Get(Connection& connection, uint64_t generation,
                                                     absl::Duration timeout) {
  std::lock_guard lock(mutex_);
  if (map_ != nullptr && generation_ == generation) return map_;
  v1::SideRequest request;
  request.mutable_get_arena();
  ASSIGN_OR_RETURN(SideChannel::Reply reply, connection.side().Call(request, -1, timeout));
  const v1::ArenaGiven& given = reply.message.arena();
  if (given.block_bytes() == 0 || given.block_bytes() % 4096 != 0 || given.block_count() == 0) {
    return absl::InternalError("ckptd gives an arena without blocks");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<SharedMemory> memory,
                   SharedMemory::Map(std::move(reply.fd), given.block_bytes() * given.block_count(),
                                     true, guard_));
  map_ = std::make_shared<ArenaMap>(std::move(memory), given.block_bytes(), given.block_count());
  generation_ = given.generation();
  return map_;
}

void Arena::Offer(Connection& connection) {
  std::lock_guard lock(mutex_);
  if (map_ == nullptr) return;
  v1::SideRequest request;
  request.mutable_offer_arena()->set_block_bytes(map_->block_bytes());
  request.mutable_offer_arena()->set_block_count(map_->block_count());
  absl::StatusOr<SideChannel::Reply> reply =
      connection.side().Call(request, map_->fd(), kOfferTimeout);
  if (reply.ok()) {
    generation_ = reply->message.arena().generation();
  } else {
    map_ = nullptr;
  }
}

std::shared_ptr<ArenaMap> Arena::current() const {
  std::lock_guard lock(mutex_);
  return map_;
}

}  // namespace ckptd::inline client
