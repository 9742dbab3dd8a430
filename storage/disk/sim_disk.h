// SimDisk is a disk in memory that knows what a power cut would leave.
//
// Durable is exactly what disk.h promises: file data up to the file's last Sync, directory entries
// once SyncDir of their folder returned. Everything else is *pending*; Crash() decides, change by
// change, what of it survives.
//
// It is a value: Clone() gives an independent disk with the same state, cheap by sharing what
// neither changes, so that an exhaustive search can branch at every operation.
//
// Transfers are synchronous: `done` runs inside Write and Read. Open files stay attached to what
// they opened, through renames and unlinks, but not through Crash(): afterwards every call on them
// fails with EIO.
//
// Threads. Not thread-safe.
#ifndef CKPTD_STORAGE_DISK_SIM_DISK_H_
#define CKPTD_STORAGE_DISK_SIM_DISK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/disk/disk.h"

namespace ckptd {

class SimDisk final : public Disk {
 public:
  enum class RenameSync { kEither, kTarget, kBoth };

  struct Options {
    // A transfer whose length and offset are not multiples of this ends short at the first border
    // that it crosses, so that callers meet short counts. At least 1.
    uint64_t alignment_bytes = kDirectAlignment;
    // Sum of the sizes of all files, beyond which a write fails with ENOSPC. 0: no limit.
    uint64_t total_bytes = 0;
    // Which parent's SyncDir makes a rename between two folders durable. Real journals need either
    // one; POSIX promises nothing before both.
    RenameSync rename_sync = RenameSync::kEither;
  };

  // A change of one directory entry (two, for a rename) that no SyncDir has covered yet.
  struct PendingOp {
    std::string text;  // "create a/b", "mkdir a", "rename a to b", "unlink a/b", "rmdir a".
  };

  // What becomes of file data that was written and not synced.
  enum class UnsyncedData {
    kKeep,
    kLose,  // The file is as at its last Sync; a file never synced is empty.
    kTear,  // The size survives, and the first half of the bytes; the rest is as at the last Sync,
            // or zero.
  };

  SimDisk() : SimDisk(Options()) {}
  explicit SimDisk(const Options& options);
  SimDisk& operator=(const SimDisk&) = delete;

  std::unique_ptr<SimDisk> Clone() const;

  // The file that `file` has open, opened in this disk. `file` belongs to a disk from which this
  // one was cloned, or to its clone, since it was opened.
  std::unique_ptr<File> Adopt(const File& file);

  // In the order in which they were made.
  std::vector<PendingOp> Unsynced() const;

  // True if a file with a name has data that was not synced: only then UnsyncedData makes a
  // difference.
  bool HasUnsyncedData() const;

  // The power cut. keep(i) says whether pending operation i (of Unsynced()) reached the disk. One
  // that cannot be without another that was lost (the rename of an entry that was never made) is
  // lost as well. What is left is durable.
  void Crash(absl::FunctionRef<bool(size_t)> keep, UnsyncedData data);

  // Equal for two disks whose durable and pending state is the same, whatever led there.
  std::string Fingerprint() const;

  // Makes an entry that is neither file nor folder, durable at once. The parent must exist.
  void PlantOther(absl::string_view path);

  // 0: no limit.
  void SetSpace(uint64_t total_bytes) { options_.total_bytes = total_bytes; }

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(absl::string_view path) override;
  absl::StatusOr<std::unique_ptr<File>> Create(absl::string_view path, uint32_t mode) override;
  absl::Status MakeDir(absl::string_view path, uint32_t mode) override;
  absl::Status Rename(absl::string_view from, absl::string_view to) override;
  absl::Status Unlink(absl::string_view path) override;
  absl::Status RemoveDir(absl::string_view path) override;
  absl::StatusOr<std::vector<DirEntry>> List(absl::string_view path) override;
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override;
  absl::Status SyncDir(absl::string_view path) override;
  absl::StatusOr<DiskSpace> Space() override;
  void AttachMemory(std::span<std::byte>) override {}
  void DetachMemory(std::span<std::byte>) override {}
  DiskFacts Facts() const override;

 private:
  friend class SimFile;

  using InodeId = uint64_t;  // 0 is none, 1 the root.
  using Entries = std::map<std::string, InodeId, std::less<>>;

  // A folder's entries or a file's bytes, as they are and as a power cut would leave them.
  struct Inode {
    FileKind kind = FileKind::kOther;
    Entries entries = {};
    Entries durable_entries = {};
    std::shared_ptr<std::string> data = std::make_shared<std::string>();
    std::shared_ptr<std::string> durable_data = data;
    int64_t modified = 0;  // In calls since the start.
  };

  // A link has no `from`, an unlink no `to`.
  struct Slot {
    InodeId folder = 0;
    std::string name = {};
    bool operator==(const Slot&) const = default;
  };
  struct Op {
    std::string text;
    InodeId inode = 0;
    Slot from = {};
    Slot to = {};
    InodeId replaced = 0;  // What a rename found at `to`.
    bool from_synced = false;
    bool to_synced = false;
  };

  // Which of the two states of a folder.
  using View = Entries Inode::*;

  struct Found {
    InodeId folder = 0;
    std::string name = {};
    InodeId inode = 0;  // 0 if the folder has no such entry.
  };

  SimDisk(const SimDisk&) = default;

  const Inode& Get(InodeId id) const { return *inodes_.at(id); }
  Inode& Mutable(InodeId id);
  absl::StatusOr<Found> Find(absl::string_view call, absl::string_view path) const;
  absl::StatusOr<Found> FindExisting(absl::string_view call, absl::string_view path) const;
  InodeId NewInode(FileKind kind);
  absl::Status CheckRename(const Found& from, const Found& to, absl::string_view what) const;
  void Do(Op op);
  bool Apply(const Op& op, View view);
  bool CanApply(const Op& op, View view) const;
  bool IsBelow(InodeId inode, InodeId folder, View view) const;
  bool IsDurable(const Op& op) const;
  static bool Needs(const Op& later, const Op& earlier);
  void Collect(InodeId id, View view, std::set<InodeId>& found) const;
  std::shared_ptr<std::string> Survivor(const Inode& file, UnsyncedData data) const;
  absl::Status Reserve(InodeId id, uint64_t size_bytes, absl::string_view what);
  uint64_t UsedBytes() const;

  Options options_;
  std::map<InodeId, std::shared_ptr<Inode>> inodes_;
  std::vector<Op> pending_;
  InodeId next_inode_ = 1;
  int64_t calls_ = 0;
  int64_t life_ = 0;  // Number of crashes: files opened before the last one are dead.
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_DISK_SIM_DISK_H_
