// Arena is the shared memory through which one rank's tensors pass to the disk.
//
// A memfd of equal blocks, sealed against shrinking, growing and further seals. The daemon makes
// and touches it, so its pages are charged to the daemon; the client gets the descriptor and maps
// it too. Blocks are named by index on both sides. An image stays in its blocks until they are
// needed again, so a rank's process may come back and find it, and the arena goes from a dead
// process to its successor, or back to a restarted daemon (Adopt).
//
// A block's life:
//
//     kUntouched --Touched--> kFree --Grant--> kGranted --Seal--> kSealed --Written--> kFree
//                                                  \--------------Abandon--------------/
//
// (A free block still holds its bytes.)
//
// A sealed block becomes free only when its last transfer was reaped and its checksum was checked
// after the write; a granted one only when its writer is known to have stopped (Abandon: the
// process is dead or has said so).
//
// Ownership: the arena owns descriptor and mapping. Threads: the block table belongs to the control
// loop; bytes of a sealed block are read by workers; TouchBlock() runs on a worker, for blocks that
// are kUntouched.
#ifndef CKPTD_SERVER_ARENA_H_
#define CKPTD_SERVER_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/base/page_toucher.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

class Arena {
 public:
  enum class BlockState : uint8_t { kUntouched, kFree, kGranted, kSealed };

  // A new arena; nothing is touched yet. ResourceExhausted if the memory's address space or
  // descriptor cannot be had.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(uint64_t generation, uint64_t block_bytes,
                                                       uint32_t block_count);

  // One that an earlier life of this daemon made and a client hands back: all blocks count as
  // touched. InvalidArgument unless size and seals are those that Create() gives.
  static absl::StatusOr<std::unique_ptr<Arena>> Adopt(uint64_t generation, UniqueFd fd,
                                                      uint64_t block_bytes, uint32_t block_count);
  ~Arena();

  // Runs before the memory is unmapped: whoever told the kernel about it takes that back.
  void BeforeUnmap(std::function<void(std::span<std::byte>)> detach) {
    detach_ = std::move(detach);
  }

  int fd() const { return fd_.get(); }
  uint64_t generation() const { return generation_; }
  bool adopted() const { return adopted_; }
  uint64_t block_bytes() const { return block_bytes_; }
  uint32_t block_count() const { return static_cast<uint32_t>(states_.size()); }
  uint64_t bytes() const { return block_bytes_ * states_.size(); }
  std::span<std::byte> Memory() const { return {base_, bytes()}; }
  std::span<std::byte> Block(uint32_t block) const;

  // Makes the pages of an untouched block exist, in 2 MiB pages if `huge_pages` and the kernel can.
  // ResourceExhausted if the memory is not there.
  absl::StatusOr<PageSize> TouchBlock(uint32_t block, bool huge_pages) const;

  // The blocks that are untouched stay so: nobody waits for them.
  void NoMoreTouches() { untouched_ = 0; }

  // The memory turned out not to be there: no save can use this arena.
  void SetFailure(absl::Status why) { failure_ = std::move(why); }
  const absl::Status& failure() const { return failure_; }

  void Touched(uint32_t block);  // kUntouched -> kFree.

  // Takes a free block: one that never held an image if there is any, else the one that became free
  // first. nullopt if none is free, or if untouched ones are still to come: an image that fits must
  // stay, so that it is still there after a restart of the daemon.
  std::optional<uint32_t> Grant();

  // Takes this very block, which still holds a resumed image's bytes; false unless it is free.
  bool GrantBlock(uint32_t block);

  void Seal(uint32_t block);     // kGranted -> kSealed.
  void Written(uint32_t block);  // kSealed -> kFree.
  void Abandon(uint32_t block);  // kGranted -> kFree.

  BlockState state(uint32_t block) const { return states_[block]; }
  uint32_t busy_count() const;  // Granted or sealed.

 private:
  Arena(uint64_t generation, UniqueFd fd, std::byte* base, std::byte* reserved,
        uint64_t reserved_bytes, uint64_t block_bytes, uint32_t block_count, BlockState initial);
  static absl::StatusOr<std::unique_ptr<Arena>> Map(uint64_t generation, UniqueFd fd,
                                                    uint64_t block_bytes, uint32_t block_count,
                                                    BlockState initial);
  void Free(uint32_t block);

  const uint64_t generation_;
  const bool adopted_;
  const UniqueFd fd_;
  std::byte* const base_;
  std::byte* const reserved_;  // The mapping with its alignment slack.
  const uint64_t reserved_bytes_;
  const uint64_t block_bytes_;

  std::function<void(std::span<std::byte>)> detach_;
  absl::Status failure_;
  std::vector<BlockState> states_;
  uint32_t untouched_ = 0;
  // Free blocks in the order in which they became free; taken from the front.
  std::deque<uint32_t> fresh_;  // That never held an image …
  std::deque<uint32_t> used_;   // … and that do, perhaps the one in flight.
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ARENA_H_
