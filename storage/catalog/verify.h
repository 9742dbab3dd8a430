// Verify reads a whole checkpoint and compares it with its own records.
#ifndef CKPTD_STORAGE_CATALOG_VERIFY_H_
#define CKPTD_STORAGE_CATALOG_VERIFY_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "storage/catalog/catalog.h"
#include "storage/catalog/check_shard.h"
#include "storage/disk/disk.h"

namespace ckptd {

inline constexpr size_t kVerifyErrorsMax = 1000;  // More are not collected.

struct VerifyResult {
  uint64_t bytes = 0;  // Read and compared.
  std::vector<VerifyError> errors;
  bool cancelled = false;  // By `progress`; then there is no verdict.
  bool ok() const { return errors.empty() && !cancelled; }
};

// Checks record, manifest, fragments, the size of every shard, its header (checksum, content,
// agreement with the fragment) and every unit checksum. Everything that is wrong is in the result,
// read errors too. `progress` may be null; it is called with the bytes read so far and ends the
// check by returning false.
//
// Blocking, with a few reads of 4 MiB in flight. The caller keeps the verdict (verdict.h).
VerifyResult Verify(Disk& disk, const CheckpointInfo& info,
                    const std::function<bool(uint64_t bytes)>& progress);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_CATALOG_VERIFY_H_
