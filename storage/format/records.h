// The four small files of a checkpoint as values, and their bytes (protobuf,
// proto/ckptd/format/v1/format.proto; FORMAT.md has an example).
//
// Each file ends in its own checksum: field 15, fixed32, the last five bytes, CRC32C of all bytes
// before them; so `protoc --decode` reads them. Encode* is deterministic. Decode* answers DataLoss
// for a bad checksum or a truncated file, FailedPrecondition for a newer format version,
// InvalidArgument for content that contradicts itself (boxes outside tensors, files out of range,
// sizes that do not fit, a name that is not a plain file name …), each naming the field. It never
// crashes, and the memory it takes is bounded by a fixed multiple of the input (and the 50 MB that
// Protocol Buffers reserve, without touching them, for a text longer than the file).
#ifndef CKPTD_STORAGE_FORMAT_RECORDS_H_
#define CKPTD_STORAGE_FORMAT_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "storage/format/paths.h"
#include "storage/plan/box.h"
#include "storage/plan/dtype.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

inline constexpr uint32_t kFormatVersion = 1;
inline constexpr uint64_t kRecordFileBytesMax = uint64_t{1} << 30;  // Larger ones are refused.

// ATTEMPT.pb: made before anything else by the coordinator; stays in the folder for ever.
struct AttemptRecord {
  std::string job;
  std::string checkpoint_id;
  int64_t step = 0;
  AttemptName attempt;
  std::string incarnation;
  uint32_t world_size = 0;
  std::string coordinator_node;
  bool replace = false;  // on_existing=replace.
  absl::Time begun;      // For people.

  friend bool operator==(const AttemptRecord&, const AttemptRecord&) = default;
};

// fragment-<node>.pb: what one node wrote. Our truth about the shards.
struct StoredFile {
  std::string name;  // In the same folder.
  uint32_t rank = 0;
  uint64_t bytes = 0;         // Of the whole file.
  uint64_t header_bytes = 0;  // Where the data section starts; a multiple of 4096.
  uint32_t header_crc32c = 0;
  uint64_t image_offset_bytes = 0;    // Of its section: gives the unit borders, see image_layout.h.
  std::vector<uint32_t> unit_crc32c;  // In order.
  bool crc_by_daemon = false;         // Who computed the unit checksums first: daemon, or client.

  friend bool operator==(const StoredFile&, const StoredFile&) = default;
};

struct StoredChunk {
  Box box;
  uint32_t file = 0;               // Index into Fragment::files.
  uint64_t file_offset_bytes = 0;  // From the start of the file.
  uint64_t bytes = 0;

  friend bool operator==(const StoredChunk&, const StoredChunk&) = default;
};

struct StoredTensor {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  std::optional<uint32_t> rank_local;  // The rank.
  std::vector<StoredChunk> chunks;     // Those of this node; none if the tensor has no elements.

  friend bool operator==(const StoredTensor&, const StoredTensor&) = default;
};

struct StoredItem {
  std::string name;
  ItemKind kind = ItemKind::kJson;
  std::optional<uint32_t> rank_local;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  std::string value;  // If bytes <= kInlineItemBytesMax …
  uint32_t file = 0;  // … else it is in this file, here.
  uint64_t file_offset_bytes = 0;

  friend bool operator==(const StoredItem&, const StoredItem&) = default;
};

struct Fragment {
  std::string job;
  std::string checkpoint_id;
  AttemptName attempt;
  std::string node;
  std::vector<uint32_t> ranks;  // That had a session on this node, with data or without; ascending.
  std::vector<StoredFile> files;
  std::vector<StoredTensor> tensors;
  std::vector<StoredItem> items;

  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// MANIFEST.pb: makes a checkpoint complete. A pure function of the record and the fragments' bytes.
struct FragmentRef {
  std::string node;
  std::string file;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // Of the fragment's file.

  friend bool operator==(const FragmentRef&, const FragmentRef&) = default;
};

struct Manifest {
  std::string job;
  std::string checkpoint_id;
  int64_t step = 0;
  AttemptName attempt;
  uint32_t world_size = 0;
  std::vector<FragmentRef> fragments;  // By node.
  uint64_t tensors = 0;                // Names; a rank-local one counts once a rank.
  uint64_t items = 0;                  // The same.
  uint64_t files = 0;                  // Shards.
  uint64_t bytes = 0;                  // Of all data sections.

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

// OUTCOME.pb in failed/<attempt>: why.
struct Failure {
  absl::Status status;  // Never OK.
  std::optional<uint32_t> rank;
  std::string node;   // "" if unknown.
  std::string phase;  // admit join plan stage write sync commit settle

  friend bool operator==(const Failure&, const Failure&) = default;
};

struct RankOutcome {
  uint32_t rank = 0;
  std::string node;
  int64_t pid = 0;
  std::string state;  // missing joined staging staged durable lost
  uint64_t planned_bytes = 0;
  uint64_t staged_bytes = 0;
  uint64_t written_bytes = 0;

  friend bool operator==(const RankOutcome&, const RankOutcome&) = default;
};

struct Outcome {
  AttemptRecord record;  // Job and attempt alone if nobody could read it.
  std::string root_label;
  Failure failure;
  std::vector<RankOutcome> ranks;
  absl::Time ended;  // For people.

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::string EncodeAttemptRecord(const AttemptRecord& record);
absl::StatusOr<AttemptRecord> DecodeAttemptRecord(absl::string_view bytes);
std::string EncodeFragment(const Fragment& fragment);
absl::StatusOr<Fragment> DecodeFragment(absl::string_view bytes);
std::string EncodeManifest(const Manifest& manifest);
absl::StatusOr<Manifest> DecodeManifest(absl::string_view bytes);
std::string EncodeOutcome(const Outcome& outcome);
absl::StatusOr<Outcome> DecodeOutcome(absl::string_view bytes);

struct FragmentFile {
  std::string file_name;
  std::string bytes;
  Fragment fragment;
};

// The manifest of these fragments, in any order, each as DecodeFragment() gave it and with the
// bytes of its file. InvalidArgument, naming it, if they do not belong to the record or together:
// another attempt, a rank twice or missing, tensors that disagree or are not tiled exactly.
absl::StatusOr<Manifest> MakeManifest(const AttemptRecord& record,
                                      const std::vector<FragmentFile>& fragments);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_RECORDS_H_
