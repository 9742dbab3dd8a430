// RankPlan: what one rank brings to a checkpoint, without the bytes. Values.
#ifndef CKPTD_STORAGE_PLAN_RANK_PLAN_H_
#define CKPTD_STORAGE_PLAN_RANK_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "storage/plan/box.h"
#include "storage/plan/dtype.h"

namespace ckptd {

// Limits. A plan beyond one of them is InvalidArgument, naming limit and entry.
inline constexpr size_t kNameBytesMax = 64 << 10;
inline constexpr size_t kEntriesPerRankMax = 4'000'000;       // Tensors, their chunks and items.
inline constexpr uint64_t kRankBytesMax = uint64_t{1} << 44;  // Of all chunks and staged items;
                                                              // each block is kept track of.
inline constexpr uint64_t kInlineItemBytesMax = 64 << 10;  // A larger item is staged like a tensor.
inline constexpr uint64_t kItemBytesMax = 32 << 20;        // It travels in one message when loaded.
inline constexpr uint64_t kCheckedReplicaBytesMax =
    64 << 10;  // Replicas up to this size are compared by content.

struct TensorEntry {
  std::string name;  // UTF-8, no NUL.
  DType dtype = DType::kFloat32;
  Shape shape;  // Of the whole tensor.
  bool rank_local =
      false;  // Kept per rank; never compared or joined with another rank's tensor of that name.
  std::vector<Box>
      chunks;  // What this rank holds; perhaps nothing. Of a rank-local tensor they tile it.
  // CRC32C of the row-major content, set for a tensor that is held whole and has at most
  // kCheckedReplicaBytesMax bytes.
  std::optional<uint32_t> content_crc32c;

  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

enum class ItemKind : uint8_t { kJson = 1, kText = 2, kBytes = 3 };

struct ItemEntry {
  std::string name;
  ItemKind kind = ItemKind::kJson;
  bool rank_local = false;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // Of the value.
  std::string value;    // Empty if bytes > kInlineItemBytesMax: then it is staged.

  friend bool operator==(const ItemEntry&, const ItemEntry&) = default;
};

// Everything that a rank can write has a number, its *ordinal*: the chunks of tensors[0], of
// tensors[1] …, then each item. Both sides of the wire count alike, so a list of ordinals says what
// a rank writes.
struct RankPlan {
  std::vector<TensorEntry> tensors;
  std::vector<ItemEntry> items;

  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

// What one ordinal is.
struct PlanPart {
  const TensorEntry* tensor = nullptr;  // Either a chunk of this …
  uint32_t tensor_index = 0;
  uint32_t chunk_index = 0;
  const ItemEntry* item = nullptr;  // … or this item.
  uint32_t item_index = 0;
  uint64_t bytes = 0;
  bool staged =
      false;  // Its bytes go through the arena (every chunk with elements, every large item).
};

uint32_t OrdinalCount(const RankPlan& plan);
std::vector<PlanPart> Parts(const RankPlan& plan);  // By ordinal; points into `plan`.

// Is this a part of a tensor without elements? Such a tensor has no bytes anywhere; the chunk that
// Assign() picks only has it named in a shard's header.
bool IsOfEmptyTensor(const PlanPart& part);

// InvalidArgument unless the name of a tensor or item is UTF-8 without NUL of at most kNameBytesMax
// bytes. The empty name is one.
absl::Status CheckEntryName(absl::string_view name);

// A name for a message: in quotes, escaped, shortened if it is long; UTF-8 whatever the name is.
std::string QuoteName(absl::string_view name);

// InvalidArgument, naming the entry, for: a name that is not UTF-8, holds NUL, is too long or comes
// twice (tensors and items share one space of names); a shape too large; a box outside its tensor;
// chunks of one tensor that overlap; a rank-local tensor that its chunks do not tile; an item whose
// size, checksum and value contradict; limits. What several ranks together hold is
// CheckComplete()'s to judge (assignment.h).
absl::Status ValidateRankPlan(const RankPlan& plan);

// Identifies names, dtypes, shapes, boxes, kinds and the sizes of what is staged, not contents: 128
// bits as 32 hexadecimal digits. Plans of one signature get the same assignment and layout (a small
// item may change its value and length).
std::string LayoutSignature(const RankPlan& plan);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_PLAN_RANK_PLAN_H_
