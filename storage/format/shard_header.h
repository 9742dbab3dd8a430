// The header of a shard file: safetensors, readable by the reference library and by PyTorch's own
// HuggingFaceStorageReader.
//
// Bytes: 8-byte little-endian length N, then N bytes of JSON padded with spaces, so that the data
// section starts at 8 + N, a multiple of 4096. Every entry is named in
// __metadata__.DCP_SHARDING_INFO with its saved_offsets, items and rank-local entries too (one that
// is not makes the folder unreadable for the stock reader). FORMAT.md has a worked example.
#ifndef CKPTD_STORAGE_FORMAT_SHARD_HEADER_H_
#define CKPTD_STORAGE_FORMAT_SHARD_HEADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/plan/image_layout.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // The reference reader's limit on N.

// The whole header of section `section` of rank `rank`'s image, length and padding included: every
// part of the section by its offset, then the section's empty tensors. A function of plan and
// layout alone, so its size is known before a byte is staged. ResourceExhausted, naming limit and
// size, if it does not fit kHeaderBytesMax.
//
// The key of an entry is the name of the tensor or item; "<name>@rank<R>" if that is rank-local.
// A name "__metadata__", and a rank-local key that is also a name of the plan, get as many '@'
// appended as it takes to be none. True names are in the fragment.
//
// Items are U8 tensors of one dimension. A dtype that the stock PyTorch reader does not know is U8
// with one more dimension, of the size of an element.
absl::StatusOr<std::string> BuildShardHeader(const RankPlan& plan, const ImageLayout& layout,
                                             uint32_t section, uint32_t rank);

// One tensor as a header names it.
struct HeaderEntry {
  std::string key;
  std::string dtype;         // As written: "F32", "U8" …
  Shape shape;               // As written.
  uint64_t begin_bytes = 0;  // In the data section.
  uint64_t end_bytes = 0;
  std::vector<uint64_t> saved_offsets;  // From DCP_SHARDING_INFO; empty too for a 0-d tensor.
  bool has_saved_offsets = false;       // Is it named there?
};

struct ShardHeader {
  uint64_t header_bytes = 0;         // Where the data section starts.
  std::vector<HeaderEntry> entries;  // By begin_bytes.
};

// Parses the header of any safetensors file, ours or not, of `file_bytes` bytes, of which `prefix`
// holds the first ones (at least HeaderLength() of them). InvalidArgument, naming the entry, for
// anything the reference reader refuses: offsets that do not fit shape and dtype, holes, overlaps,
// trailing bytes, overflow, nesting. Also refused: a key that comes twice, more than
// kDimensionsMax dimensions, a DCP_SHARDING_INFO that is not what PyTorch writes.
absl::StatusOr<ShardHeader> ParseShardHeader(absl::string_view prefix, uint64_t file_bytes);

// 8 + N from the first 8 bytes; InvalidArgument if it exceeds the limit or the file.
absl::StatusOr<uint64_t> HeaderLength(absl::string_view first_8_bytes, uint64_t file_bytes);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_SHARD_HEADER_H_
