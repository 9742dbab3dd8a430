// ShardWriter writes one rank's image to its shard files, block by block, as they are sealed.
//
// Life:  Start (creates the files, takes their space, writes their headers) -> Write per sealed
// block, in any order -> Finish (cuts the files to their exact length) -> TakeFiles. After an
// error, or when its attempt ends early, it does nothing new, and in_flight() falls to 0.
//
// Each block: transfers of its part of each section; when all are reaped, every unit's checksum is
// computed once more from the arena and compared with the client's: only a check *after* the write
// catches a rank that changed a sealed block while it was being written. Only then the block is
// reported written.
//
// Threads: methods on the control loop; work on the root's workers and the disk's engine; callbacks
// on the loop. Held by shared_ptr: work in flight keeps it alive.
#ifndef CKPTD_SERVER_SHARD_WRITER_H_
#define CKPTD_SERVER_SHARD_WRITER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/arena.h"
#include "server/control_loop.h"
#include "server/root.h"
#include "storage/disk/disk.h"
#include "storage/plan/image_layout.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

// A shard as the fragment records it.
struct WrittenShard {
  std::string name;
  uint64_t header_bytes = 0;
  uint32_t header_crc32c = 0;
};

class ShardWriter : public std::enable_shared_from_this<ShardWriter> {
 public:
  struct Options {
    std::string attempt_dir;
    uint32_t rank = 0;
    uint32_t world_size = 0;
    std::shared_ptr<const RankPlan> plan;
    std::shared_ptr<const ImageLayout> layout;
    std::shared_ptr<Arena> arena;
    uint32_t file_mode = 0;
    bool replace_leftovers =
        false;  // A former life of this daemon left part of these files: they are removed first.
    uint32_t recheck_every =
        1;  // 1: every block is checked again after its write; N: every N-th; 0: none.
    std::function<void(absl::string_view)> on_point;
  };

  struct Callbacks {  // On the loop.
    std::function<void(uint64_t bytes)> progress;
    std::function<void(uint32_t image_block, uint32_t arena_block)> written;
    std::function<void()> finished;
    std::function<void(absl::Status)> failed;  // Once; the first error.
    std::function<void()> idle;                // in_flight() fell to 0.
  };

  ShardWriter(ControlLoop& loop, Root& root, Options options, Callbacks callbacks);

  void Start();
  // `taken_back`: sealed in an earlier life of this daemon, so it is checked whatever recheck_every
  // says.
  void Write(uint32_t image_block, uint32_t arena_block, std::vector<uint32_t> unit_crc32c,
             bool taken_back = false);
  void Finish();  // After the last block was reported written.
  void Stop();    // No callback but `idle` comes any more.

  int in_flight() const { return in_flight_; }

  // After `finished`.
  const std::vector<WrittenShard>& shards() const { return shards_; }
  std::vector<std::pair<std::string, std::unique_ptr<File>>>
  TakeFiles();  // Path and open file, by section.

 private:
  struct Block {
    uint32_t image_block = 0;
    uint32_t arena_block = 0;
    std::vector<uint32_t> unit_crc32c;
    bool taken_back = false;
  };
  struct Opened {
    absl::Status status;
    std::vector<WrittenShard> shards;
    std::vector<std::unique_ptr<File>> files;
  };
  struct Transfers;

  Opened Open() const;  // On a worker.
  // The one place where shard files are made. `bytes`: of the whole file.
  absl::StatusOr<std::unique_ptr<File>> CreateShard(const std::string& path, uint64_t bytes,
                                                    const std::string& header) const;
  void StartWaiting();
  void StartTransfers(Block block);
  static void Transfer(std::shared_ptr<Transfers> transfers, File* file, uint64_t offset,
                       std::span<const std::byte> data);
  void Reaped(std::shared_ptr<Transfers> transfers);  // On an engine thread.
  absl::Status Recheck(const Block& block) const;     // On a worker.
  void Fail(absl::Status status);
  void Begin() { ++in_flight_; }
  void End();
  std::string Path(uint32_t section) const;

  ControlLoop& loop_;
  Root& root_;
  const Options options_;
  const Callbacks callbacks_;

  bool opened_ = false;
  bool stopped_ = false;
  bool finishing_ = false;     // As soon as the files are open.
  int in_flight_ = 0;          // Jobs and blocks between start and end.
  std::deque<Block> waiting_;  // Sealed, not started.
  uint64_t started_ = 0;       // Blocks between their first transfer and their check.
  std::vector<WrittenShard> shards_;
  std::vector<std::unique_ptr<File>> files_;  // Changed only while nothing is in flight.
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_SHARD_WRITER_H_
