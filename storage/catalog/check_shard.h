// CheckShard compares one shard file with what its fragment says of it. Part of Verify().
#ifndef CKPTD_STORAGE_CATALOG_CHECK_SHARD_H_
#define CKPTD_STORAGE_CATALOG_CHECK_SHARD_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "storage/disk/disk.h"
#include "storage/format/records.h"

namespace ckptd {

struct VerifyError {
  std::string file;    // In the checkpoint's folder.
  std::string tensor;  // Tensors and items that the damage touches, separated by ", "; "" if it
                       // is not in the data.
  uint64_t offset_bytes = 0;  // In the file.
  uint64_t bytes = 0;
  std::string message;
};

// Reads `fragment.files[index]` in `folder` and adds what is wrong with it to `errors`: its size,
// its header, every unit checksum. `advance` is called with the bytes of each piece that was read;
// false ends the check.
void CheckShard(Disk& disk, absl::string_view folder, const Fragment& fragment, size_t index,
                const std::function<bool(uint64_t bytes)>& advance,
                std::vector<VerifyError>& errors);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_CATALOG_CHECK_SHARD_H_
