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
#include "storage/plan/image_layout.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

inline constexpr uint64_t kHeaderBytesMax = 100'000'000;  // The reference reader's limit on N.

// The whole header of section `section` of rank `rank`'s image, length and padding included.
// ResourceExhausted, naming limit and size, if it does not fit kHeaderBytesMax.
absl::StatusOr<std::string> BuildShardHeader(const RankPlan& plan, const ImageLayout& layout,
                                             uint32_t section, uint32_t rank);

// The key of a tensor or item in the header: its name, but "<name>@rank<R>" if rank-local,
// "__metadata__" never, and made unique inside one file where two would collide.
struct HeaderEntry {
  std::string key;
  std::string dtype;  // As written: "F32", "U8" …
  Shape shape;
  uint64_t begin_bytes = 0;  // In the data section.
  uint64_t end_bytes = 0;
  std::vector<uint64_t> saved_offsets;  // From DCP_SHARDING_INFO; empty if absent.
};

struct ShardHeader {
  uint64_t header_bytes = 0;         // Where the data section starts.
  std::vector<HeaderEntry> entries;  // By begin_bytes.
};

// Parses the header of any safetensors file, ours or not, of `file_bytes` bytes, of which `prefix`
// holds the first ones (at least HeaderLength() of them). InvalidArgument, naming the entry, for
// anything the reference reader refuses: offsets that do not fit shape and dtype, holes, overlaps,
// trailing bytes, overflow, nesting.
absl::StatusOr<ShardHeader> ParseShardHeader(absl::string_view prefix, uint64_t file_bytes);

// 8 + N from the first 8 bytes; InvalidArgument if it exceeds the limit or the file.
absl::StatusOr<uint64_t> HeaderLength(absl::string_view first_8_bytes, uint64_t file_bytes);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_SHARD_HEADER_H_
