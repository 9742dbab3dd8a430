// What a daemon says about checkpoints. Values; times are UTC, unknown ones absent.
#ifndef CKPTD_CLIENT_CPP_CHECKPOINT_INFO_H_
#define CKPTD_CLIENT_CPP_CHECKPOINT_INFO_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/tensor.h"

namespace ckptd::inline client {

// A committed one.
struct CheckpointInfo {
  std::string job;
  std::string id;
  int64_t step = 0;
  uint64_t sequence = 0;
  std::string attempt;
  uint32_t world_size = 0;
  std::vector<std::string> nodes;
  uint64_t tensor_count = 0;
  uint64_t item_count = 0;
  uint64_t bytes = 0;
  uint64_t file_count = 0;
  absl::Time begun;
  absl::Time committed;
  std::string path;  // Absolute, on the daemon's node.
};

// Why a save or load failed. `status` has code and text; the rest as far as it is known.
struct FailureInfo {
  absl::Status status;
  std::optional<uint32_t> rank;
  std::string node;
  std::string phase;  // admit join plan stage write sync commit settle, or empty.
};

// One try at a checkpoint: in flight, or failed.
struct AttemptInfo {
  std::string job;
  std::string id;
  int64_t step = 0;
  uint64_t sequence = 0;
  std::string attempt;  // Empty while it waits for admission.
  uint32_t world_size = 0;
  std::string state;  // waiting joining staging writing durable committed failed unknown
  uint64_t planned_bytes = 0;
  uint64_t staged_bytes = 0;
  uint64_t written_bytes = 0;
  std::vector<uint32_t> ranks_missing;
  std::optional<FailureInfo> error;
};

struct CheckpointList {
  std::vector<CheckpointInfo> checkpoints;  // By sequence.
  std::vector<AttemptInfo> attempts;
};

struct StoredChunkInfo {
  Box box;
  std::string file;
  uint64_t file_offset_bytes = 0;
  uint64_t bytes = 0;
};

struct StoredTensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::optional<uint32_t> rank_local;  // The rank whose own it is.
  std::vector<StoredChunkInfo> chunks;
};

struct StoredItemInfo {
  std::string name;
  ItemKind kind = ItemKind::kJson;
  std::optional<uint32_t> rank;  // Whose, if it is rank-local.
  uint64_t bytes = 0;
  std::string value;  // Empty if it is larger than kInlineItemBytesMax.
};

struct Description {
  CheckpointInfo checkpoint;
  std::vector<StoredTensorInfo> tensors;
  std::vector<StoredItemInfo> items;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_CHECKPOINT_INFO_H_
