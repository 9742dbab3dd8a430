// ArenaPool holds the arenas of all ranks of this node and the limit on their sum.
//
// An arena belongs to (job, rank). When its process is dead it waits for the successor; under
// pressure such waiting arenas are given up first, oldest first. Touching happens on workers, block
// by block; every block that becomes usable is told by `on_block_free`, and once all are, the
// memory is attached to the root's disk.
//
// Owned by the control loop.
#ifndef CKPTD_SERVER_ARENA_POOL_H_
#define CKPTD_SERVER_ARENA_POOL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/arena.h"
#include "server/control_loop.h"
#include "server/root.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

class ArenaPool {
 public:
  struct Options {
    uint64_t block_bytes = 0;
    uint64_t limit_bytes = 0;  // Of all arenas together.
    bool huge_pages = true;
    int touch_threads = 2;
    std::function<void(const std::string& job, uint32_t rank)> on_block_free;
    // The memory of an arena is not there; Arena::failure() says why. May be null.
    std::function<void(const std::string& job, uint32_t rank, const Arena& arena)> on_no_memory =
        nullptr;
  };

  ArenaPool(ControlLoop& loop, Options options);
  ~ArenaPool();

  // The arena of (job, rank) for an image of that size: the present one if it is large enough or
  // cannot grow, else a new one. May be smaller than the image, which then streams through it.
  // ResourceExhausted, with both numbers, if not even one block is left.
  absl::StatusOr<std::shared_ptr<Arena>> Obtain(const std::string& job, uint32_t rank,
                                                uint32_t world_size, uint64_t image_bytes,
                                                Root& root);

  std::shared_ptr<Arena> Find(const std::string& job, uint32_t rank) const;  // Null: none.
  // Why there is none: its memory was not there; NotFound otherwise.
  absl::Status WhyNone(const std::string& job, uint32_t rank) const;

  // Takes back an arena that a client offers after a daemon restart. Its disk learns of it by
  // AttachAdopted().
  absl::StatusOr<std::shared_ptr<Arena>> Adopt(const std::string& job, uint32_t rank, UniqueFd fd,
                                               uint64_t block_bytes, uint32_t block_count);
  // Its root is there. Does nothing if there is no arena, or not one that was adopted.
  void AttachAdopted(const std::string& job, uint32_t rank, Root& root);

  // The process is dead: the arena waits for its successor.
  void Orphan(const std::string& job, uint32_t rank);
  // The process is there (again).
  void Claim(const std::string& job, uint32_t rank);
  // Nobody will need it, or somebody unknown may still write to it.
  void Drop(const std::string& job, uint32_t rank);

  // A block of that arena has become free.
  void NotifyFree(const std::string& job, uint32_t rank) { options_.on_block_free(job, rank); }

  uint64_t bytes() const;  // Of all arenas that exist, dropped ones in use included.
  uint64_t limit_bytes() const { return options_.limit_bytes; }
  uint64_t BytesOf(const std::string& job, uint32_t rank) const;
  bool huge_pages() const { return huge_pages_; }  // Of the last block that was touched.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  using Key = std::pair<std::string, uint32_t>;
  struct Entry {
    std::shared_ptr<Arena> arena;
    uint64_t orphaned_at = 0;  // 0: its process lives.
  };

  std::shared_ptr<Arena> Own(std::unique_ptr<Arena> arena);
  uint64_t RoomFor(const Key& key, uint32_t world_size, uint64_t wanted_bytes);
  void EvictOrphans(const Key& except, uint64_t room_bytes);
  void Touch(const Key& key, const std::shared_ptr<Arena>& arena, Root& root);
  void GiveUp(const Key& key, const std::shared_ptr<Arena>& arena, const absl::Status& why);
  void Attach(const std::shared_ptr<Arena>& arena, Root& root);
  void Warn(std::string text);

  ControlLoop& loop_;
  const Options options_;
  std::map<Key, Entry> entries_;
  std::map<Key, absl::Status> given_up_;  // Until the next Obtain() or Drop().
  std::vector<std::weak_ptr<Arena>> all_;
  std::vector<std::string> warnings_;
  bool huge_pages_ = false;
  uint64_t next_generation_;
  uint64_t next_orphan_ = 1;
  const std::shared_ptr<Workers> touchers_;  // Arenas that outlive the pool hold it too.
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ARENA_POOL_H_
