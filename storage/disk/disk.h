// Disk is the one door to files: every path below one root folder, every call that reaches the file
// system.
//
// Two ways in. *Calls* (open, rename, sync …) block and may hang for as long as the file system
// does: they run on a root's workers, never on the control loop. *Transfers* (File::Write,
// File::Read) are asynchronous: the engine runs them in parallel, io_uring or a pool of threads,
// and reports each by its callback.
//
// Paths are relative to the root, separated by '/', without "." and ".." parts, never absolute,
// never through a symbolic link in the last part ("" is the root itself). A path that breaks this
// is InvalidArgument.
//
// What is promised about order: nothing between transfers; File::Sync covers every transfer that
// was reported before it was called; SyncDir covers every create, rename and unlink in that folder
// that returned before it. What is not synced may be lost or kept by a power cut, in any
// combination.
//
// Errors carry the errno (StatusErrno) and name the call and the path: "rename job/attempts/1-ab:
// No such file …".
//
// Threads. The disk outlives its files. Thread-safe, but one File is used by one owner: no two
// calls on it at once besides transfers.
#ifndef CKPTD_STORAGE_DISK_DISK_H_
#define CKPTD_STORAGE_DISK_DISK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ckptd {

// Called once per transfer, on a thread of the engine, and must not block. Bytes moved, at least 1
// and perhaps fewer than asked (the caller goes on with the rest; WriteAll() and ReadAll() do), 0
// only at the end of the file; or the error.
using TransferDone = absl::AnyInvocable<void(absl::StatusOr<size_t>) &&>;

// An open file. The destructor closes it if Close() was not called; transfers must have been
// reported by then.
class File {
 public:
  virtual ~File() = default;

  // Starts a transfer between `data` and the file at `offset`; `data` stays valid until `done` is
  // called. Goes around the page cache where the disk has direct I/O and address, length and offset
  // are multiples of kDirectAlignment; through it otherwise. Both kinds may be mixed on one file.
  virtual void Write(uint64_t offset, std::span<const std::byte> data, TransferDone done) = 0;
  virtual void Read(uint64_t offset, std::span<std::byte> data, TransferDone done) = 0;

  // Blocking calls.
  // Takes the space of that many bytes from the file system ahead of their writes, which then are
  // faster and do not run out of it (ENOSPC comes here). The file has at least that size
  // afterwards, zeros where nothing was written. Where the file system has no such call, nothing
  // happens. After an error some of the space may be taken; it goes with the file.
  virtual absl::Status Allocate(uint64_t size_bytes) = 0;
  virtual absl::Status Truncate(uint64_t size_bytes) = 0;
  virtual absl::Status Sync() = 0;  // fsync. Never called again on a file on which it failed.
  virtual absl::StatusOr<uint64_t> Size() = 0;
  virtual absl::Status Close() = 0;  // At most once; nothing else may be called afterwards.
};

enum class FileKind { kFile, kFolder, kOther };

struct FileInfo {
  FileKind kind = FileKind::kOther;  // A symbolic link is kOther.
  uint64_t size_bytes = 0;
  absl::Time modified;
};

struct DirEntry {
  std::string name;
  FileKind kind = FileKind::kOther;
};

struct DiskSpace {
  uint64_t free_bytes = 0;  // For this process's user.
  uint64_t total_bytes = 0;
};

// What the engine found out about this root, for status and logs.
struct DiskFacts {
  std::string engine;  // "uring", "posix" or "sim".
  // Why this one: "asked for", "io_uring works", "io_uring_setup: Operation not permitted".
  std::string engine_reason;
  bool direct = false;  // O_DIRECT is in use.
  std::string direct_reason;
  bool fixed_buffers = false;  // At least one AttachMemory() range is registered with the kernel.
  std::string fixed_buffers_reason;
  std::string file_system;  // "ext4", "tmpfs" …
};

class Disk {
 public:
  // Address, length and offset of a direct transfer are multiples of this.
  static constexpr uint64_t kDirectAlignment = 4096;

  virtual ~Disk() = default;

  // Opens an existing file for reading (transfers and Size only). NotFound if there is none.
  virtual absl::StatusOr<std::unique_ptr<File>> OpenForRead(absl::string_view path) = 0;

  // Creates a file for reading and writing; AlreadyExists if anything has that name (O_EXCL).
  // `mode` as in open(2); the process's umask does not apply.
  virtual absl::StatusOr<std::unique_ptr<File>> Create(absl::string_view path, uint32_t mode) = 0;

  // AlreadyExists if there is one. `mode` as for Create.
  virtual absl::Status MakeDir(absl::string_view path, uint32_t mode) = 0;

  // rename(2) as it is: a file or an *empty* folder at `to` is replaced.
  virtual absl::Status Rename(absl::string_view from, absl::string_view to) = 0;

  virtual absl::Status Unlink(absl::string_view path) = 0;

  // Of an empty folder; AlreadyExists (ENOTEMPTY) otherwise.
  virtual absl::Status RemoveDir(absl::string_view path) = 0;

  // Sorted by name.
  virtual absl::StatusOr<std::vector<DirEntry>> List(absl::string_view path) = 0;

  // Of the link itself.
  virtual absl::StatusOr<FileInfo> Stat(absl::string_view path) = 0;

  virtual absl::Status SyncDir(absl::string_view path) = 0;
  virtual absl::StatusOr<DiskSpace> Space() = 0;

  // Tells the engine that transfers will come from this memory, so that it may register it with the
  // kernel (facts say whether it could; nothing else depends on it). The range stays mapped until
  // DetachMemory(), which is called when none of its transfers is in flight.
  virtual void AttachMemory(std::span<std::byte> memory) = 0;
  virtual void DetachMemory(std::span<std::byte> memory) = 0;

  virtual DiskFacts Facts() const = 0;
};

// Blocking forms, for small files and tests: transfer everything, going on after short counts.
absl::Status WriteAll(File& file, uint64_t offset, std::span<const std::byte> data);

// OutOfRange if the file ends before.
absl::Status ReadAll(File& file, uint64_t offset, std::span<std::byte> data);

// The whole of a small file. ResourceExhausted if it is larger than `limit_bytes`.
absl::StatusOr<std::string> ReadSmallFile(Disk& disk, absl::string_view path, uint64_t limit_bytes);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_DISK_H_
