// The arena as the client has it: a mapping of the daemon's memory, and who was given which block
// last.
#ifndef CKPTD_CLIENT_CPP_ARENA_MAP_H_
#define CKPTD_CLIENT_CPP_ARENA_MAP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/connection.h"
#include "client/cpp/fork_guard.h"
#include "storage/base/unique_fd.h"

namespace ckptd::inline client {

// Memory that came over the side socket, mapped where 2 MiB pages fit; forked children do not have
// it. Unmapped by the destructor.
class SharedMemory {
 public:
  // The guard outlives this object.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Map(UniqueFd fd, uint64_t bytes,
                                                           bool writable, ForkGuard& guard);
  ~SharedMemory();

  int fd() const { return fd_.get(); }
  std::span<std::byte> bytes() const { return memory_; }

 private:
  SharedMemory(UniqueFd fd, std::span<std::byte> memory, ForkGuard& guard);

  ForkGuard& guard_;
  const UniqueFd fd_;
  const std::span<std::byte> memory_;
};

// One arena. Thread-safe.
class ArenaMap {
 public:
  ArenaMap(std::unique_ptr<SharedMemory> memory, uint64_t block_bytes, uint32_t block_count);

  uint64_t block_bytes() const { return block_bytes_; }
  uint32_t block_count() const { return block_count_; }
  int fd() const { return memory_->fd(); }
  std::span<std::byte> Block(uint32_t block) const;

  // The daemon granted the block to image block `image_block` of save `save` (not 0). True if its
  // pages, which exist, may not be in this process's tables yet: EnterPages() is for the caller.
  bool Give(uint32_t block, uint64_t save, uint32_t image_block);
  // Enters the pages of a part of a block that the daemon has touched (as every granted one), which
  // is cheaper than a fault for each. Of another block it would make pages at the client's expense.
  static void EnterPages(std::span<std::byte> part);
  // Enters those of a whole block, ahead of its first Give().
  void EnterBlock(uint32_t block);

  // Nobody else was given it since.
  bool Holds(uint32_t block, uint64_t save, uint32_t image_block) const;

 private:
  struct Holder {
    uint64_t save = 0;  // 0: nobody.
    uint32_t image_block = 0;
    bool entered = false;  // Its pages are in this process's tables, or about to be.
  };

  const std::unique_ptr<SharedMemory> memory_;
  const uint64_t block_bytes_;
  const uint32_t block_count_;
  mutable std::mutex mutex_;
  std::vector<Holder> holders_;  // Guarded by mutex_.
};

// The session's arena: which mapping is the current one, and what the daemon calls it. Thread-safe.
class Arena {
 public:
  explicit Arena(ForkGuard& guard) : guard_(guard) {}

  // The arena of that generation, fetched if it is not the one at hand. Unavailable if the daemon
  // does not answer in `timeout`; the connection is lost then.
  absl::StatusOr<std::shared_ptr<ArenaMap>> Get(Connection& connection, uint64_t generation,
                                                absl::Duration timeout);

  // Hands it to a restarted daemon; forgets it if that daemon does not want it.
  void Offer(Connection& connection);

  std::shared_ptr<ArenaMap> current() const;  // Null: none yet.

 private:
  ForkGuard& guard_;
  mutable std::mutex mutex_;
  std::shared_ptr<ArenaMap> map_;  // Guarded by mutex_, as the next.
  uint64_t generation_ = 0;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_ARENA_MAP_H_
