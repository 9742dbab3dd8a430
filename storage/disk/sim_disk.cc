#include "storage/disk/sim_disk.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/disk/disk_path.h"

namespace ckptd {
namespace {

constexpr uint64_t kFileMax = uint64_t{1} << 30;  // It is all in memory.
constexpr uint64_t kFreeWithoutLimit = uint64_t{1} << 40;

}  // namespace

class SimFile final : public File {
 public:
  SimFile(SimDisk& disk, SimDisk::InodeId inode, std::string path, bool writable)
      : disk_(disk),
        inode_(inode),
        path_(std::move(path)),
        writable_(writable),
        life_(disk.life_) {}

  void Write(uint64_t offset, std::span<const std::byte> data, TransferDone done) override {
    std::move(done)(WriteNow(offset, data));
  }

  void Read(uint64_t offset, std::span<std::byte> data, TransferDone done) override {
    std::move(done)(ReadNow(offset, data));
  }

  absl::Status Allocate(uint64_t size_bytes) override {
    RETURN_IF_ERROR(CheckAlive("allocate"));
    if (!writable_) return ErrnoStatus(EBADF, What("allocate"));
    if (size_bytes <= disk_.Get(inode_).data->size()) return absl::OkStatus();
    RETURN_IF_ERROR(disk_.Reserve(inode_, size_bytes, What("allocate")));
    disk_.Mutable(inode_).data->resize(size_bytes);
    return absl::OkStatus();
  }

  absl::Status Truncate(uint64_t size_bytes) override {
    RETURN_IF_ERROR(CheckAlive("truncate"));
    if (!writable_) return ErrnoStatus(EINVAL, What("truncate"));
    RETURN_IF_ERROR(disk_.Reserve(inode_, size_bytes, What("truncate")));
    disk_.Mutable(inode_).data->resize(size_bytes);
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    RETURN_IF_ERROR(CheckAlive("fsync"));
    SimDisk::Inode& inode = disk_.Mutable(inode_);
    inode.durable_data = inode.data;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Size() override {
    RETURN_IF_ERROR(CheckAlive("fstat"));
    return disk_.Get(inode_).data->size();
  }

  absl::Status Close() override {
    RETURN_IF_ERROR(CheckAlive("close"));
    closed_ = true;
    return absl::OkStatus();
  }

  std::unique_ptr<File> ReopenIn(SimDisk& disk) const {
    CKPT_CHECK(disk.life_ == life_ && disk.inodes_.contains(inode_),
               "the file was open when the disk was cloned");
    return std::make_unique<SimFile>(disk, inode_, path_, writable_);
  }

 private:
  std::string What(absl::string_view call) const { return absl::StrCat(call, " ", path_); }

  absl::Status CheckAlive(absl::string_view call) const {
    if (closed_) return ErrnoStatus(EBADF, What(call));
    if (disk_.life_ != life_) return ErrnoStatus(EIO, What(call));
    return absl::OkStatus();
  }

  // A transfer that is not a whole number of units ends at the first border between two.
  size_t Shorten(uint64_t offset, size_t length) const {
    uint64_t unit = disk_.options_.alignment_bytes;
    if ((offset | length) == 0 || (offset % unit == 0 && length % unit == 0)) return length;
    return static_cast<size_t>(std::min<uint64_t>(length, unit - offset % unit));
  }

  absl::StatusOr<size_t> WriteNow(uint64_t offset, std::span<const std::byte> data) {
    RETURN_IF_ERROR(CheckAlive("write"));
    if (!writable_) return ErrnoStatus(EBADF, What("write"));
    size_t length = Shorten(offset, data.size());
    uint64_t size = std::max<uint64_t>(disk_.Get(inode_).data->size(), offset + length);
    RETURN_IF_ERROR(disk_.Reserve(inode_, size, What("write")));
    std::string& bytes = *disk_.Mutable(inode_).data;
    bytes.resize(size);
    std::memcpy(bytes.data() + offset, data.data(), length);
    return length;
  }

  absl::StatusOr<size_t> ReadNow(uint64_t offset, std::span<std::byte> data) {
    RETURN_IF_ERROR(CheckAlive("read"));
    const std::string& bytes = *disk_.Get(inode_).data;
    if (offset >= bytes.size()) return size_t{0};
    size_t length = std::min<size_t>(Shorten(offset, data.size()), bytes.size() - offset);
    std::memcpy(data.data(), bytes.data() + offset, length);
    return length;
  }

  SimDisk& disk_;
  const SimDisk::InodeId inode_;
  const std::string path_;
  const bool writable_;
  const int64_t life_;
  bool closed_ = false;
};

SimDisk::SimDisk(const Options& options) : options_(options) {
  CKPT_CHECK(options.alignment_bytes > 0, "an alignment is at least 1");
  NewInode(FileKind::kFolder);
}

std::unique_ptr<SimDisk> SimDisk::Clone() const {
  return std::unique_ptr<SimDisk>(new SimDisk(*this));
}

std::unique_ptr<File> SimDisk::Adopt(const File& file) {
  return dynamic_cast<const SimFile&>(file).ReopenIn(*this);
}

// Inodes and their bytes are shared between clones until one of them changes.
SimDisk::Inode& SimDisk::Mutable(InodeId id) {
  std::shared_ptr<Inode>& inode = inodes_.at(id);
  if (inode.use_count() > 1) inode = std::make_shared<Inode>(*inode);
  inode->modified = ++calls_;
  return *inode;
}

SimDisk::InodeId SimDisk::NewInode(FileKind kind) {
  InodeId id = next_inode_++;
  inodes_[id] = std::make_shared<Inode>(Inode{.kind = kind, .modified = ++calls_});
  return id;
}

uint64_t SimDisk::UsedBytes() const {
  uint64_t used = 0;
  for (const auto& [id, inode] : inodes_) used += inode->data->size();
  return used;
}

// Before a file gets another size: is there room, and are its bytes its own?
absl::Status SimDisk::Reserve(InodeId id, uint64_t size_bytes, absl::string_view what) {
  uint64_t old_bytes = Get(id).data->size();
  if (size_bytes > kFileMax) return ErrnoStatus(EFBIG, what);
  if (options_.total_bytes != 0 && size_bytes > old_bytes &&
      UsedBytes() - old_bytes + size_bytes > options_.total_bytes) {
    return ErrnoStatus(ENOSPC, what);
  }
  Inode& inode = Mutable(id);
  if (inode.data.use_count() > 1) inode.data = std::make_shared<std::string>(*inode.data);
  return absl::OkStatus();
}

absl::StatusOr<SimDisk::Found> SimDisk::Find(absl::string_view call, absl::string_view path) const {
  RETURN_IF_ERROR(CheckPath(call, path));
  if (path.empty()) return Found{.inode = 1};
  Found found = {.inode = 1};
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (found.inode == 0) return ErrnoStatus(ENOENT, absl::StrCat(call, " ", path));
    const Inode& folder = Get(found.inode);
    if (folder.kind != FileKind::kFolder) {
      return ErrnoStatus(ENOTDIR, absl::StrCat(call, " ", path));
    }
    auto entry = folder.entries.find(part);
    found = {.folder = found.inode,
             .name = std::string(part),
             .inode = entry == folder.entries.end() ? 0 : entry->second};
  }
  return found;
}

absl::StatusOr<SimDisk::Found> SimDisk::FindExisting(absl::string_view call,
                                                     absl::string_view path) const {
  ASSIGN_OR_RETURN(Found found, Find(call, path));
  if (found.inode == 0)
    return ErrnoStatus(ENOENT, absl::StrCat(call, " ", path.empty() ? "." : path));
  return found;
}

absl::StatusOr<std::unique_ptr<File>> SimDisk::OpenForRead(absl::string_view path) {
  RETURN_IF_ERROR(CheckPathBelowRoot("open", path));
  ASSIGN_OR_RETURN(Found found, FindExisting("open", path));
  FileKind kind = Get(found.inode).kind;
  if (kind != FileKind::kFile) {
    return ErrnoStatus(kind == FileKind::kFolder ? EISDIR : ELOOP, absl::StrCat("open ", path));
  }
  return std::make_unique<SimFile>(*this, found.inode, std::string(path), false);
}

absl::StatusOr<std::unique_ptr<File>> SimDisk::Create(absl::string_view path, uint32_t) {
  RETURN_IF_ERROR(CheckPathBelowRoot("create", path));
  ASSIGN_OR_RETURN(Found found, Find("create", path));
  std::string text = absl::StrCat("create ", path);
  if (found.inode != 0) return ErrnoStatus(EEXIST, text);
  InodeId id = NewInode(FileKind::kFile);
  Do({.text = text, .inode = id, .to = {found.folder, found.name}});
  return std::make_unique<SimFile>(*this, id, std::string(path), true);
}

absl::Status SimDisk::MakeDir(absl::string_view path, uint32_t) {
  RETURN_IF_ERROR(CheckPathBelowRoot("mkdir", path));
  ASSIGN_OR_RETURN(Found found, Find("mkdir", path));
  std::string text = absl::StrCat("mkdir ", path);
  if (found.inode != 0) return ErrnoStatus(EEXIST, text);
  Do({.text = text, .inode = NewInode(FileKind::kFolder), .to = {found.folder, found.name}});
  return absl::OkStatus();
}

absl::Status SimDisk::CheckRename(const Found& from, const Found& to,
                                  absl::string_view what) const {
  bool folder = Get(from.inode).kind == FileKind::kFolder;
  if (folder && (to.folder == from.inode || IsBelow(to.folder, from.inode, &Inode::entries))) {
    return ErrnoStatus(EINVAL, what);
  }
  if (to.inode == 0) return absl::OkStatus();
  const Inode& target = Get(to.inode);
  if (folder && target.kind != FileKind::kFolder) return ErrnoStatus(ENOTDIR, what);
  if (!folder && target.kind == FileKind::kFolder) return ErrnoStatus(EISDIR, what);
  if (!target.entries.empty()) return ErrnoStatus(ENOTEMPTY, what);
  return absl::OkStatus();
}

absl::Status SimDisk::Rename(absl::string_view from, absl::string_view to) {
  RETURN_IF_ERROR(CheckPathBelowRoot("rename", from));
  RETURN_IF_ERROR(CheckPathBelowRoot("rename", to));
  std::string text = absl::StrCat("rename ", from, " to ", to);
  absl::StatusOr<Found> source = Find("rename", from);
  absl::StatusOr<Found> target = Find("rename", to);
  for (const auto* found : {&source, &target}) {
    if (!found->ok()) return ErrnoStatus(StatusErrno(found->status()), text);
  }
  if (source->inode == 0) return ErrnoStatus(ENOENT, text);
  if (source->inode == target->inode) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRename(*source, *target, text));
  Do({.text = text,
      .inode = source->inode,
      .from = {source->folder, source->name},
      .to = {target->folder, target->name},
      .replaced = target->inode});
  return absl::OkStatus();
}

absl::Status SimDisk::Unlink(absl::string_view path) {
  RETURN_IF_ERROR(CheckPathBelowRoot("unlink", path));
  ASSIGN_OR_RETURN(Found found, FindExisting("unlink", path));
  std::string text = absl::StrCat("unlink ", path);
  if (Get(found.inode).kind == FileKind::kFolder) return ErrnoStatus(EISDIR, text);
  Do({.text = text, .inode = found.inode, .from = {found.folder, found.name}});
  return absl::OkStatus();
}

absl::Status SimDisk::RemoveDir(absl::string_view path) {
  RETURN_IF_ERROR(CheckPathBelowRoot("rmdir", path));
  ASSIGN_OR_RETURN(Found found, FindExisting("rmdir", path));
  std::string text = absl::StrCat("rmdir ", path);
  const Inode& inode = Get(found.inode);
  if (inode.kind != FileKind::kFolder) return ErrnoStatus(ENOTDIR, text);
  if (!inode.entries.empty()) return ErrnoStatus(ENOTEMPTY, text);
  Do({.text = text, .inode = found.inode, .from = {found.folder, found.name}});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DirEntry>> SimDisk::List(absl::string_view path) {
  ASSIGN_OR_RETURN(Found found, FindExisting("list", path));
  const Inode& folder = Get(found.inode);
  if (folder.kind != FileKind::kFolder) return ErrnoStatus(ENOTDIR, absl::StrCat("list ", path));
  std::vector<DirEntry> entries;
  for (const auto& [name, id] : folder.entries) entries.push_back({name, Get(id).kind});
  return entries;
}

absl::StatusOr<FileInfo> SimDisk::Stat(absl::string_view path) {
  ASSIGN_OR_RETURN(Found found, FindExisting("stat", path));
  const Inode& inode = Get(found.inode);
  return FileInfo{.kind = inode.kind,
                  .size_bytes = inode.data->size(),
                  .modified = absl::UnixEpoch() + absl::Seconds(inode.modified)};
}

absl::StatusOr<DiskSpace> SimDisk::Space() {
  uint64_t used = UsedBytes();
  uint64_t total = options_.total_bytes != 0 ? options_.total_bytes : used + kFreeWithoutLimit;
  return DiskSpace{.free_bytes = total > used ? total - used : 0, .total_bytes = total};
}

DiskFacts SimDisk::Facts() const {
  return DiskFacts{.engine = "sim",
                   .engine_reason = "asked for",
                   .direct_reason = "a simulated disk has none",
                   .fixed_buffers_reason = "a simulated disk has none",
                   .file_system = "sim"};
}

void SimDisk::PlantOther(absl::string_view path) {
  absl::StatusOr<Found> found = Find("plant", path);
  CKPT_CHECK(found.ok() && found->inode == 0, "the parent exists and the name is free");
  InodeId id = NewInode(FileKind::kOther);
  Inode& folder = Mutable(found->folder);
  folder.entries[found->name] = id;
  folder.durable_entries[found->name] = id;
}

// Changes of entries and their durability.

void SimDisk::Do(Op op) {
  CKPT_CHECK(Apply(op, &Inode::entries), "the call was checked");
  pending_.push_back(std::move(op));
}

bool SimDisk::IsBelow(InodeId inode, InodeId folder, View view) const {
  for (const auto& [name, id] : Get(folder).*view) {
    if (id == inode || IsBelow(inode, id, view)) return true;
  }
  return false;
}

bool SimDisk::CanApply(const Op& op, View view) const {
  auto holds = [&](const Slot& slot) -> InodeId {
    const Entries& entries = Get(slot.folder).*view;
    auto entry = entries.find(slot.name);
    return entry == entries.end() ? 0 : entry->second;
  };
  bool removes = op.to.folder == 0;
  if (op.from.folder != 0 && holds(op.from) != op.inode) return false;
  if (removes) return (Get(op.inode).*view).empty();
  InodeId there = holds(op.to);
  if (there != 0 && (there != op.replaced || !(Get(there).*view).empty())) return false;
  return op.to.folder != op.inode && !IsBelow(op.to.folder, op.inode, view);
}

bool SimDisk::Apply(const Op& op, View view) {
  if (!CanApply(op, view)) return false;
  if (op.from.folder != 0) (Mutable(op.from.folder).*view).erase(op.from.name);
  if (op.to.folder != 0) (Mutable(op.to.folder).*view)[op.to.name] = op.inode;
  return true;
}

// True if `later` makes no sense before `earlier`: they change one slot or one inode, or `earlier`
// empties a folder that `later` removes.
bool SimDisk::Needs(const Op& later, const Op& earlier) {
  for (const Slot* a : {&later.from, &later.to}) {
    if (a->folder == 0) continue;
    if (*a == earlier.from || *a == earlier.to) return true;
  }
  bool removes = later.to.folder == 0;
  for (InodeId folder : {earlier.from.folder, earlier.to.folder}) {
    if (folder == 0) continue;
    if (folder == later.replaced || (removes && folder == later.inode)) return true;
  }
  return later.inode == earlier.inode;
}

bool SimDisk::IsDurable(const Op& op) const {
  bool rename = op.from.folder != 0 && op.to.folder != 0;
  if (!rename) return op.from_synced || op.to_synced;
  switch (options_.rename_sync) {
    case RenameSync::kEither:
      return op.from_synced || op.to_synced;
    case RenameSync::kTarget:
      return op.to_synced;
    case RenameSync::kBoth:
      return op.from_synced && op.to_synced;
  }
  return false;
}

absl::Status SimDisk::SyncDir(absl::string_view path) {
  ASSIGN_OR_RETURN(Found found, FindExisting("fsyncdir", path));
  if (Get(found.inode).kind != FileKind::kFolder) {
    return ErrnoStatus(ENOTDIR, absl::StrCat("fsyncdir ", path));
  }
  std::vector<bool> durable(pending_.size());
  for (size_t i = pending_.size(); i-- > 0;) {
    Op& op = pending_[i];
    op.from_synced |= op.from.folder == found.inode;
    op.to_synced |= op.to.folder == found.inode;
    // A durable change takes along what it builds on.
    if (IsDurable(op)) durable[i] = true;
    if (!durable[i]) continue;
    for (size_t j = 0; j < i; ++j) durable[j] = durable[j] || Needs(op, pending_[j]);
  }
  std::vector<Op> rest;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (durable[i] && Apply(pending_[i], &Inode::durable_entries)) continue;
    rest.push_back(std::move(pending_[i]));
  }
  pending_ = std::move(rest);
  return absl::OkStatus();
}

std::vector<SimDisk::PendingOp> SimDisk::Unsynced() const {
  std::vector<PendingOp> result;
  for (const Op& op : pending_) result.push_back({op.text});
  return result;
}

void SimDisk::Collect(InodeId id, View view, std::set<InodeId>& found) const {
  if (!found.insert(id).second) return;
  for (const auto& [name, child] : Get(id).*view) Collect(child, view, found);
}

bool SimDisk::HasUnsyncedData() const {
  std::set<InodeId> named;
  Collect(1, &Inode::entries, named);
  Collect(1, &Inode::durable_entries, named);
  return std::any_of(named.begin(), named.end(), [this](InodeId id) {
    const Inode& inode = Get(id);
    return inode.data != inode.durable_data && *inode.data != *inode.durable_data;
  });
}

std::shared_ptr<std::string> SimDisk::Survivor(const Inode& file, UnsyncedData data) const {
  switch (data) {
    case UnsyncedData::kKeep:
      return file.data;
    case UnsyncedData::kLose:
      return file.durable_data;
    case UnsyncedData::kTear:
      break;
  }
  if (file.data == file.durable_data) return file.data;
  auto torn = std::make_shared<std::string>(*file.durable_data);
  torn->resize(file.data->size());
  std::copy_n(file.data->begin(), file.data->size() / 2, torn->begin());
  return torn;
}

void SimDisk::Crash(absl::FunctionRef<bool(size_t)> keep, UnsyncedData data) {
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (keep(i)) Apply(pending_[i], &Inode::durable_entries);
  }
  pending_.clear();
  std::set<InodeId> left;
  Collect(1, &Inode::durable_entries, left);
  for (auto inode = inodes_.begin(); inode != inodes_.end();) {
    inode = left.contains(inode->first) ? std::next(inode) : inodes_.erase(inode);
  }
  for (InodeId id : left) {
    Inode& inode = Mutable(id);
    inode.entries = inode.durable_entries;
    inode.data = Survivor(inode, data);
    inode.durable_data = inode.data;
  }
  ++life_;
}

// Inodes are numbered in the order of a walk from the root, so that their true numbers do not show.
std::string SimDisk::Fingerprint() const {
  std::map<InodeId, size_t> numbers = {{0, 0}};
  std::vector<InodeId> order;
  auto number = [&](InodeId id) {
    auto [entry, is_new] = numbers.emplace(id, numbers.size());
    if (is_new) order.push_back(id);
    return entry->second;
  };
  std::string text;
  auto add_bytes = [&](absl::string_view bytes) {
    constexpr size_t kVerbatim = 64;
    absl::StrAppend(&text, bytes.size(), "=", bytes.substr(0, kVerbatim));
    if (bytes.size() > kVerbatim) {
      absl::StrAppend(&text, "#", Crc32c(bytes), "#",
                      std::hash<std::string_view>()(std::string_view(bytes.data(), bytes.size())));
    }
  };
  auto add_entries = [&](const Entries& entries) {
    for (const auto& [name, id] : entries) absl::StrAppend(&text, name, ":", number(id), "/");
  };
  number(1);
  for (const Op& op : pending_) {
    absl::StrAppend(&text, number(op.inode), ",", number(op.from.folder), "/", op.from.name, ",",
                    number(op.to.folder), "/", op.to.name, ",", number(op.replaced), ",",
                    op.from_synced, op.to_synced, ";");
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const Inode& inode = Get(order[i]);
    absl::StrAppend(&text, "\n", static_cast<int>(inode.kind), "|");
    add_entries(inode.entries);
    if (inode.entries != inode.durable_entries) {
      text += "|";
      add_entries(inode.durable_entries);
    }
    if (inode.kind != FileKind::kFile) continue;
    add_bytes(*inode.data);
    if (*inode.data == *inode.durable_data) continue;
    text += "|";
    add_bytes(*inode.durable_data);
  }
  return text;
}

}  // namespace ckptd
