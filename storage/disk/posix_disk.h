// Transfers by pread(2) and pwrite(2) in a small pool of threads: for kernels and containers that
// forbid io_uring.
#ifndef CKPTD_STORAGE_DISK_POSIX_DISK_H_
#define CKPTD_STORAGE_DISK_POSIX_DISK_H_

#include <memory>
#include <string>

#include "storage/disk/transfer_engine.h"

namespace ckptd {

// Threads, and with them transfers in flight.
inline constexpr int kPosixThreads = 8;

// `reason` says why this engine was chosen, `fixed_buffers_reason` why there are no registered
// buffers (for Facts).
std::unique_ptr<TransferEngine> MakePosixEngine(std::string reason,
                                                std::string fixed_buffers_reason);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_POSIX_DISK_H_
