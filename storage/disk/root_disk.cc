#include "storage/disk/root_disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

bool IsAligned(const void* data, size_t length, uint64_t offset) {
  uint64_t bits = reinterpret_cast<uintptr_t>(data) | length | offset;
  return bits % Disk::kDirectAlignment == 0;
}

class RootFile final : public File {
 public:
  RootFile(std::string path, FileDescriptors files, TransferEngine& engine)
      : path_(std::move(path)), files_(std::move(files)), engine_(engine) {}

  void Write(uint64_t offset, std::span<const std::byte> data, TransferDone done) override {
    Start(Transfer::Kind::kWrite, offset, const_cast<std::byte*>(data.data()), data.size(),
          std::move(done));
  }

  void Read(uint64_t offset, std::span<std::byte> data, TransferDone done) override {
    Start(Transfer::Kind::kRead, offset, data.data(), data.size(), std::move(done));
  }

  absl::Status Allocate(uint64_t size_bytes) override {
    // fallocate(2) refuses a length of nothing.
    while (size_bytes > 0 &&
           ::fallocate(files_.buffered.get(), 0, 0, static_cast<off_t>(size_bytes)) < 0) {
      if (errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
      if (errno != EINTR) return Failed("allocate");
    }
    return absl::OkStatus();
  }

  absl::Status Truncate(uint64_t size_bytes) override {
    while (::ftruncate(files_.buffered.get(), static_cast<off_t>(size_bytes)) < 0) {
      if (errno != EINTR) return Failed("truncate");
    }
    return absl::OkStatus();
  }

  // One descriptor is enough: fsync covers the inode, however the data came.
  absl::Status Sync() override {
    while (::fsync(files_.buffered.get()) < 0) {
      if (errno != EINTR) return Failed("fsync");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Size() override {
    struct stat info;
    if (::fstat(files_.buffered.get(), &info) < 0) return Failed("fstat");
    return static_cast<uint64_t>(info.st_size);
  }

  absl::Status Close() override {
    absl::Status result = CloseOne(files_.direct);
    absl::Status buffered = CloseOne(files_.buffered);
    return result.ok() ? buffered : result;
  }

 private:
  absl::Status Failed(absl::string_view call) const {
    int error = errno;
    return ErrnoStatus(error, absl::StrCat(call, " ", path_));
  }

  void Start(Transfer::Kind kind, uint64_t offset, std::byte* data, size_t length,
             TransferDone done) {
    bool direct = files_.direct.valid() && IsAligned(data, length, offset);
    engine_.Start({.kind = kind,
                   .fd = direct ? files_.direct.get() : files_.buffered.get(),
                   .offset = offset,
                   .data = data,
                   .length = std::min(length, Transfer::kLengthMax),
                   .path = path_,
                   .done = std::move(done)});
  }

  // Linux frees the descriptor in any case; EINTR says nothing about the data.
  absl::Status CloseOne(UniqueFd& fd) {
    if (!fd.valid() || ::close(fd.release()) == 0 || errno == EINTR) return absl::OkStatus();
    return Failed("close");
  }

  const std::string path_;
  FileDescriptors files_;
  TransferEngine& engine_;
};

class RootDisk final : public Disk {
 public:
  RootDisk(RootFolder root, bool direct, std::string direct_reason,
           std::unique_ptr<TransferEngine> engine)
      : root_(std::move(root)),
        direct_(direct),
        direct_reason_(std::move(direct_reason)),
        engine_(std::move(engine)) {}

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(absl::string_view path) override {
    ASSIGN_OR_RETURN(FileDescriptors files, root_.OpenForRead(path, direct_));
    return std::make_unique<RootFile>(std::string(path), std::move(files), *engine_);
  }

  absl::StatusOr<std::unique_ptr<File>> Create(absl::string_view path, uint32_t mode) override {
    ASSIGN_OR_RETURN(FileDescriptors files, root_.Create(path, mode, direct_));
    return std::make_unique<RootFile>(std::string(path), std::move(files), *engine_);
  }

  absl::Status MakeDir(absl::string_view path, uint32_t mode) override {
    return root_.MakeDir(path, mode);
  }
  absl::Status Rename(absl::string_view from, absl::string_view to) override {
    return root_.Rename(from, to);
  }
  absl::Status Unlink(absl::string_view path) override { return root_.Unlink(path); }
  absl::Status RemoveDir(absl::string_view path) override { return root_.RemoveDir(path); }
  absl::StatusOr<std::vector<DirEntry>> List(absl::string_view path) override {
    return root_.List(path);
  }
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override { return root_.Stat(path); }
  absl::Status SyncDir(absl::string_view path) override { return root_.SyncDir(path); }
  absl::StatusOr<DiskSpace> Space() override { return root_.Space(); }

  void AttachMemory(std::span<std::byte> memory) override { engine_->AttachMemory(memory); }
  void DetachMemory(std::span<std::byte> memory) override { engine_->DetachMemory(memory); }

  DiskFacts Facts() const override {
    DiskFacts facts;
    facts.direct = direct_;
    facts.direct_reason = direct_reason_;
    facts.file_system = root_.file_system();
    engine_->Describe(facts);
    return facts;
  }

 private:
  const RootFolder root_;
  const bool direct_;
  const std::string direct_reason_;
  const std::unique_ptr<TransferEngine> engine_;
};

}  // namespace

std::unique_ptr<Disk> MakeRootDisk(RootFolder root, bool direct, std::string direct_reason,
                                   std::unique_ptr<TransferEngine> engine) {
  return std::make_unique<RootDisk>(std::move(root), direct, std::move(direct_reason),
                                    std::move(engine));
}

}  // namespace ckptd
