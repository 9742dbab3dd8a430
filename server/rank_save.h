// RankSave is one rank's part of an attempt: its plan, its image, and how far each block is. A
// value with no behaviour of its own beyond bookkeeping; the attempt drives it (attempt.h). Owned
// by the control loop.
#ifndef CKPTD_SERVER_RANK_SAVE_H_
#define CKPTD_SERVER_RANK_SAVE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/arena.h"
#include "server/save_stream.h"
#include "server/shard_writer.h"
#include "storage/plan/image_layout.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

struct ImageBlock {
  enum class State : uint8_t { kNeeded, kGranted, kSealed, kWritten };
  State state = State::kNeeded;
  uint32_t arena_block = 0;
  std::vector<uint32_t> unit_crc32c;  // From sealed on.
};

struct RankSave {
  enum class State { kJoined, kStaging, kStaged, kWritten, kLost };
  // May its process still write to blocks that it was granted? kStopped: it is dead, or has said
  // so. kLost: nobody knows, and its arena is never used again.
  enum class Filler { kLiving, kStopped, kLost };

  uint32_t rank = 0;
  int64_t pid = 0;
  std::string token;  // Of the session that joined.
  std::string request_id;
  uint64_t session_ended = 0;  // Session::ended of the one that joined; 0 while it lives.
  State state = State::kJoined;
  Filler filler = Filler::kLiving;
  std::shared_ptr<const RankPlan> plan;
  std::shared_ptr<SaveStream> stream;  // Null while the connection is broken.

  // Once assigned.
  bool assigned = false;
  std::vector<uint32_t> ordinals;
  std::shared_ptr<const ImageLayout> layout;
  std::shared_ptr<Arena> arena;
  std::vector<ImageBlock> blocks;  // By image block.
  uint32_t next_block = 0;         // Blocks before it are granted or further.
  uint32_t unsealed = 0;           // Blocks that are not sealed yet.
  uint32_t unwritten = 0;
  std::shared_ptr<ShardWriter> writer;
  std::vector<WrittenShard> shards;  // Once written.

  uint64_t planned_bytes = 0;
  uint64_t staged_bytes = 0;
  uint64_t written_bytes = 0;

  // Bytes of the image in one block.
  uint64_t BlockBytes(uint32_t image_block) const {
    uint64_t begin = image_block * arena->block_bytes();
    return std::min(arena->block_bytes(), layout->image_bytes - begin);
  }

  bool staged() const { return state == State::kStaged || state == State::kWritten; }
};

// For outcome records and status: joined staging staged durable lost.
inline const char* RankStateName(RankSave::State state, bool node_durable) {
  switch (state) {
    case RankSave::State::kJoined:
      return "joined";
    case RankSave::State::kStaging:
      return "staging";
    case RankSave::State::kStaged:
      return "staged";
    case RankSave::State::kWritten:
      return node_durable ? "durable" : "staged";
    case RankSave::State::kLost:
      return "lost";
  }
  return "";
}

}  // namespace ckptd

#endif  // CKPTD_SERVER_RANK_SAVE_H_
