// ReadInParallel fills memory from a file with several transfers in flight.
#ifndef CKPTD_SERVER_PARALLEL_READ_H_
#define CKPTD_SERVER_PARALLEL_READ_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "storage/disk/disk.h"

namespace ckptd {

// Reads at least `bytes` at `offset` into `memory`, which has room for the next multiple of 4096,
// so that direct I/O serves the file's end too. Blocks; for workers. OutOfRange if the file ends
// before `bytes`.
absl::Status ReadInParallel(File& file, uint64_t offset, uint64_t bytes,
                            std::span<std::byte> memory);

}  // namespace ckptd

#endif  // CKPTD_SERVER_PARALLEL_READ_H_
