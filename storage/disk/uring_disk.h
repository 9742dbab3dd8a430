// Transfers by io_uring: one ring, one thread that submits and reaps. The only user of liburing.
//
// Attached memory is registered with the kernel where it lets us, in ranges of at most 1 GiB (the
// kernel's limit): that saves three quarters of the CPU time per byte and nothing depends on it. A
// transfer uses a registered range if it lies in one entirely.
#ifndef CKPTD_STORAGE_DISK_URING_DISK_H_
#define CKPTD_STORAGE_DISK_URING_DISK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "storage/disk/transfer_engine.h"

namespace ckptd {

// Transfers in flight in the kernel; further ones wait in the process.
inline constexpr unsigned kUringDepth = 16;

enum class FixedBuffers {
  kOff,   // Never registered.
  kTry,   // Registered where possible.
  kNeed,  // The engine fails to start if the kernel cannot register any.
};

// `reason` says why this engine was chosen (for Facts). Errors, with errno: the kernel or the
// container forbids io_uring (EPERM, ENOSYS), locked memory is short (ENOMEM), the kernel is too
// old (ENOSYS, EINVAL).
absl::StatusOr<std::unique_ptr<TransferEngine>> MakeUringEngine(std::string reason,
                                                                FixedBuffers fixed_buffers);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_URING_DISK_H_
