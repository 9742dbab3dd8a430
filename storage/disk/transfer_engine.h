// TransferEngine runs the transfers of one disk: io_uring (uring_disk.h) or a pool of threads
// (posix_disk.h).
//
// Thread-safe. The destructor returns when every transfer was reported.
#ifndef CKPTD_STORAGE_DISK_TRANSFER_ENGINE_H_
#define CKPTD_STORAGE_DISK_TRANSFER_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/strings/string_view.h"
#include "storage/base/units.h"
#include "storage/disk/disk.h"

namespace ckptd {

// One request. Descriptor, memory and path stay valid until `done` is called.
struct Transfer {
  enum class Kind { kRead, kWrite };
  // A longer request is cut to this and ends short: the kernel moves less than 2 GiB at once.
  static constexpr size_t kLengthMax = kGiB;

  Kind kind = Kind::kRead;
  int fd = -1;
  uint64_t offset = 0;
  std::byte* data = nullptr;  // Only read from by kWrite.
  size_t length = 0;          // At most kLengthMax.
  absl::string_view path;     // For error texts.
  TransferDone done;
};

class TransferEngine {
 public:
  virtual ~TransferEngine() = default;

  // Queues a transfer; never blocks for I/O. Transfers wait their turn in order, but run in
  // parallel.
  virtual void Start(Transfer transfer) = 0;

  // As Disk::AttachMemory and DetachMemory.
  virtual void AttachMemory(std::span<std::byte> memory) = 0;
  virtual void DetachMemory(std::span<std::byte> memory) = 0;

  // Fills in what the engine knows: engine, fixed_buffers and their reasons.
  virtual void Describe(DiskFacts& facts) const = 0;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_TRANSFER_ENGINE_H_
