// Verify reads a whole checkpoint and compares it with its own records.
#ifndef CKPTD_STORAGE_CATALOG_VERIFY_H_
#define CKPTD_STORAGE_CATALOG_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "storage/catalog/catalog.h"
#include "storage/disk/disk.h"

namespace ckptd {

struct VerifyError {
  std::string file;    // In the checkpoint's folder.
  std::string tensor;  // Tensors and items that the damage touches, separated by ", "; "" if it is
                       // not in the data.
  uint64_t offset_bytes = 0;  // In the file.
  uint64_t bytes = 0;
  std::string message;
};

struct VerifyResult {
  uint64_t bytes = 0;  // Read and compared, headers included.
  std::vector<VerifyError> errors;
  bool ok() const { return errors.empty(); }
};

// Checks record, manifest, fragments, the size of every shard, its header (checksum, content,
// agreement with the fragment) and every unit checksum. Everything that is wrong is in the result,
// read errors too. `progress` may be null; it is called with the bytes read so far, and ends the
// check with Cancelled, in the result, by returning false.
//
// Blocking, with a few reads of 4 MiB in flight.
VerifyResult Verify(Disk& disk, const CheckpointInfo& info,
                    const std::function<bool(uint64_t bytes)>& progress);

// Keeps the verdict in .ckptd/verified/<job>/<attempt>.json, where ListCheckpoints() finds it;
// replaces an older one.
absl::Status WriteVerdict(Disk& disk, const CheckpointInfo& info, const VerifyResult& result,
                          absl::Time at);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_CATALOG_VERIFY_H_
