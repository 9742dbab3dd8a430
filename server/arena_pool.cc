#include "server/arena_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "absl/strings/str_cat.h"
#include "storage/base/memory_limits.h"
#include "storage/base/units.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

ArenaPool::ArenaPool(ControlLoop& loop, Options options)
    : loop_(loop),
      options_(std::move(options)),
      // Clients tell a new arena from an old one by its generation, over restarts of the daemon
      // too.
      next_generation_(static_cast<uint64_t>(absl::ToInt64Nanoseconds(loop.clock().Monotonic()))),
      touchers_(std::make_shared<Workers>(options_.touch_threads)) {}

ArenaPool::~ArenaPool() { touchers_->Stop(); }

// Unmapping gigabytes takes a while: not on the loop.
std::shared_ptr<Arena> ArenaPool::Own(std::unique_ptr<Arena> arena) {
  std::shared_ptr<Arena> owned(arena.release(), [touchers = touchers_](Arena* dropped) {
    touchers->Post([arena = std::unique_ptr<Arena>(dropped)] {});
  });
  all_.push_back(owned);
  return owned;
}

absl::StatusOr<std::shared_ptr<Arena>> ArenaPool::Obtain(const std::string& job, uint32_t rank,
                                                         uint32_t world_size, uint64_t image_bytes,
                                                         Root& root) {
  Key key{job, rank};
  uint64_t block_bytes = options_.block_bytes;
  uint64_t wanted = std::max(RoundUp(image_bytes, block_bytes), block_bytes);
  std::shared_ptr<Arena> present = Find(job, rank);
  if (present != nullptr && present->bytes() >= wanted && present->block_bytes() == block_bytes)
    return present;

  uint64_t room = RoomFor(key, world_size, wanted) / block_bytes * block_bytes;
  uint64_t granted = std::min(wanted, room);
  if (granted < wanted) {
    uint64_t others = bytes() - BytesOf(job, rank);
    Warn(absl::StrCat("rank ", rank, " of job \"", job, "\" streams an image of ", image_bytes,
                      " bytes through less memory; --arena-limit of ",
                      std::max(others + wanted, wanted * world_size), " would hold it"));
  }
  if (present != nullptr && present->bytes() >= granted) return present;
  if (granted == 0) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "an arena for rank ", rank, " of job \"", job, "\": needs ", wanted,
        " bytes, and of --arena-limit ", options_.limit_bytes, " only ", room, " are left"));
  }
  auto made =
      Arena::Create(next_generation_++, block_bytes, static_cast<uint32_t>(granted / block_bytes));
  if (!made.ok()) return made.status();
  std::shared_ptr<Arena> arena = Own(*std::move(made));
  given_up_.erase(key);
  entries_[key] = Entry{arena};
  Touch(key, arena, root);
  return arena;
}

std::shared_ptr<Arena> ArenaPool::Find(const std::string& job, uint32_t rank) const {
  auto found = entries_.find({job, rank});
  return found == entries_.end() ? nullptr : found->second.arena;
}

absl::StatusOr<std::shared_ptr<Arena>> ArenaPool::Adopt(const std::string& job, uint32_t rank,
                                                        UniqueFd fd, uint64_t block_bytes,
                                                        uint32_t block_count) {
  // An earlier life may have had another --block-size; this arena keeps its own.
  if (!std::has_single_bit(block_bytes) || block_bytes < kMiB || block_bytes > kGiB) {
    return absl::InvalidArgumentError(
        absl::StrCat("the offered arena has blocks of ", block_bytes, " bytes"));
  }
  if (block_count > kRankBytesMax / block_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the offered arena has ", block_count, " blocks of ", block_bytes,
                     " bytes; no image is larger than ", FormatSize(kRankBytesMax)));
  }
  auto adopted = Arena::Adopt(next_generation_++, std::move(fd), block_bytes, block_count);
  if (!adopted.ok()) return adopted.status();
  std::shared_ptr<Arena> arena = Own(*std::move(adopted));
  entries_[{job, rank}] = Entry{arena};
  return arena;
}

void ArenaPool::AttachAdopted(const std::string& job, uint32_t rank, Root& root) {
  std::shared_ptr<Arena> arena = Find(job, rank);
  if (arena != nullptr && arena->adopted()) Attach(arena, root);
}

absl::Status ArenaPool::WhyNone(const std::string& job, uint32_t rank) const {
  auto found = given_up_.find({job, rank});
  return found == given_up_.end() ? absl::NotFoundError("this session has no arena")
                                  : found->second;
}

void ArenaPool::Orphan(const std::string& job, uint32_t rank) {
  auto found = entries_.find({job, rank});
  if (found != entries_.end()) found->second.orphaned_at = next_orphan_++;
}

void ArenaPool::Claim(const std::string& job, uint32_t rank) {
  auto found = entries_.find({job, rank});
  if (found != entries_.end()) found->second.orphaned_at = 0;
}

void ArenaPool::Drop(const std::string& job, uint32_t rank) {
  entries_.erase({job, rank});
  given_up_.erase({job, rank});
}

uint64_t ArenaPool::bytes() const {
  uint64_t sum = 0;
  for (const std::weak_ptr<Arena>& weak : all_) {
    if (std::shared_ptr<Arena> arena = weak.lock()) sum += arena->bytes();
  }
  return sum;
}

uint64_t ArenaPool::BytesOf(const std::string& job, uint32_t rank) const {
  std::shared_ptr<Arena> arena = Find(job, rank);
  return arena == nullptr ? 0 : arena->bytes();
}

// Room under the limit, its own present arena not counted (a new one replaces it as soon as its
// saves are written). A rank gets at most its equal share as long as others may come.
uint64_t ArenaPool::RoomFor(const Key& key, uint32_t world_size, uint64_t wanted_bytes) {
  std::erase_if(all_, [](const std::weak_ptr<Arena>& weak) { return weak.expired(); });
  uint64_t own = BytesOf(key.first, key.second);
  uint64_t share = std::max(options_.limit_bytes / std::max(world_size, 1u), options_.block_bytes);
  uint64_t wanted = std::min(wanted_bytes, share);
  EvictOrphans(key, wanted);
  uint64_t used = bytes() - own;
  uint64_t room = options_.limit_bytes > used ? options_.limit_bytes - used : 0;
  return std::min(room, share);
}

void ArenaPool::EvictOrphans(const Key& except, uint64_t room_bytes) {
  while (bytes() - BytesOf(except.first, except.second) + room_bytes > options_.limit_bytes) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->second.orphaned_at == 0 || entry->first == except) continue;
      if (oldest == entries_.end() || entry->second.orphaned_at < oldest->second.orphaned_at)
        oldest = entry;
    }
    if (oldest == entries_.end()) return;
    entries_.erase(oldest);
  }
}

void ArenaPool::Touch(const Key& key, const std::shared_ptr<Arena>& arena, Root& root) {
  auto left = std::make_shared<std::atomic<uint32_t>>(arena->block_count());
  auto given_up = std::make_shared<std::atomic<bool>>(false);
  std::weak_ptr<Arena> weak = arena;
  touchers_->Post([this, key, weak, given_up] {
    std::shared_ptr<Arena> arena = weak.lock();
    if (arena == nullptr) return;
    absl::Status room = CheckMemoryRoom("an arena", arena->bytes());
    if (!room.ok() && !given_up->exchange(true)) GiveUp(key, arena, room);
  });
  for (uint32_t block = 0; block < arena->block_count(); ++block) {
    touchers_->Post([this, key, weak, block, left, given_up, &root] {
      std::shared_ptr<Arena> arena = weak.lock();
      if (arena == nullptr || *given_up) return;
      absl::StatusOr<PageSize> touched = arena->TouchBlock(block, options_.huge_pages);
      if (!touched.ok()) {
        if (!given_up->exchange(true)) GiveUp(key, arena, touched.status());
        return;
      }
      bool last = --*left == 0;
      loop_.Post([this, key, arena, block, huge = *touched == PageSize::kHuge, last, &root] {
        huge_pages_ = huge;
        arena->Touched(block);
        options_.on_block_free(key.first, key.second);
        if (last) Attach(arena, root);
      });
    });
  }
}

// On a worker. The save fails; the next one tries again.
void ArenaPool::GiveUp(const Key& key, const std::shared_ptr<Arena>& arena,
                       const absl::Status& why) {
  loop_.Post([this, key, arena, why] {
    arena->SetFailure(why);
    auto entry = entries_.find(key);
    if (entry != entries_.end() && entry->second.arena == arena) entries_.erase(entry);
    given_up_[key] = why;
    Warn(absl::StrCat("rank ", key.second, " of job \"", key.first, "\": ", why.message()));
    if (options_.on_no_memory) options_.on_no_memory(key.first, key.second, *arena);
  });
}

void ArenaPool::Attach(const std::shared_ptr<Arena>& arena, Root& root) {
  touchers_->Post([weak = std::weak_ptr<Arena>(arena), &root] {
    std::shared_ptr<Arena> arena = weak.lock();
    if (arena == nullptr) return;
    root.disk().AttachMemory(arena->Memory());
    arena->BeforeUnmap([&root](std::span<std::byte> memory) { root.disk().DetachMemory(memory); });
  });
}

void ArenaPool::Warn(std::string text) {
  constexpr size_t kWarningsMax = 20;
  if (std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end()) return;
  if (warnings_.size() == kWarningsMax) warnings_.erase(warnings_.begin());
  warnings_.push_back(std::move(text));
}

}  // namespace ckptd
