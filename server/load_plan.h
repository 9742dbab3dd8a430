// PlanLoad: which bytes of which shards a rank's wishes need, and which wishes cannot be met. A
// pure function.
#ifndef CKPTD_SERVER_LOAD_PLAN_H_
#define CKPTD_SERVER_LOAD_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/format/records.h"
#include "storage/plan/box.h"

namespace ckptd {

struct Want {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  bool rank_local = false;  // The asking rank's own.
  std::vector<Box> boxes;   // Each inside one stored chunk, or empty.
};

struct LoadOptions {
  bool partial = false;  // Missing names are listed; else NotFound names them.
  bool strict = false;   // Extra names are FailedPrecondition; else listed.
};

// A wanted box and the stored chunk that holds it.
struct LoadPiece {
  uint32_t want = 0;
  uint32_t box = 0;
  Box stored;
  uint32_t file = 0;  // Index into LoadPlan::files.
  uint64_t file_offset_bytes = 0;
};

// Whole checksum units of one file, contiguous, at most `read_bytes_max` together.
struct LoadRead {
  uint32_t file = 0;
  uint64_t file_offset_bytes = 0;
  uint64_t bytes = 0;
  std::vector<uint64_t> unit_bytes;
  std::vector<uint32_t> unit_crc32c;
};

struct LoadPlan {
  std::vector<StoredFile> files;  // Without their checksums.
  std::vector<LoadPiece> pieces;
  std::vector<LoadRead> reads;
  std::vector<StoredItem> items;        // The shared ones, and this rank's.
  std::vector<std::string> item_files;  // Of items[i], if it is not inline.
  std::vector<std::string> missing;
  std::vector<std::string> extra;
  uint64_t read_bytes = 0;
};

// NotFound or FailedPrecondition naming what is missing (extra); InvalidArgument naming the tensor
// for another shape or dtype, for a box outside it or across several stored chunks. `rank`: the
// asking one.
absl::StatusOr<LoadPlan> PlanLoad(const std::vector<Fragment>& fragments,
                                  const std::vector<Want>& wants, uint32_t rank,
                                  const LoadOptions& options, uint64_t read_bytes_max);

}  // namespace ckptd

#endif  // CKPTD_SERVER_LOAD_PLAN_H_
