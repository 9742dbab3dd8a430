#include "storage/disk/root_probe.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

// The folder of one probe, and what was made in it. The destructor removes all that is still there.
class Scratch {
 public:
  static absl::StatusOr<Scratch> Make(const RootFolder& root) {
    // The process id is not enough: other hosts may look at the same root.
    std::string name = absl::StrCat(".ckptd-probe-", ::getpid(), "-", std::random_device()());
    RETURN_IF_ERROR(root.MakeDir(name, 0700));
    return Scratch(root, std::move(name));
  }
  Scratch(Scratch&& other) noexcept : root_(other.root_), name_(std::exchange(other.name_, "")) {}
  ~Scratch() {
    if (name_.empty()) return;
    for (const char* file : {"a/file", "b/file", "file"}) (void)root_.Unlink(Path(file));
    for (const char* folder : {"a", "b"}) (void)root_.RemoveDir(Path(folder));
    (void)root_.RemoveDir(name_);
  }

  const std::string& name() const { return name_; }
  std::string Path(absl::string_view below) const { return absl::StrCat(name_, "/", below); }

  absl::Status MakeFolderWithFile(absl::string_view folder) const {
    RETURN_IF_ERROR(root_.MakeDir(Path(folder), 0700));
    return root_.Create(Path(absl::StrCat(folder, "/file")), 0600, false).status();
  }

 private:
  Scratch(const RootFolder& root, std::string name) : root_(root), name_(std::move(name)) {}

  const RootFolder& root_;
  std::string name_;
};

}  // namespace

absl::Status ProbeRename(const RootFolder& root) {
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(root));
  RETURN_IF_ERROR(scratch.MakeFolderWithFile("a"));
  RETURN_IF_ERROR(root.Rename(scratch.Path("a"), scratch.Path("b")));
  RETURN_IF_ERROR(root.Stat(scratch.Path("b/file")).status());
  if (!absl::IsNotFound(root.Stat(scratch.Path("a")).status())) {
    return absl::FailedPreconditionError("a renamed folder keeps its old name");
  }
  RETURN_IF_ERROR(scratch.MakeFolderWithFile("a"));
  absl::Status second = root.Rename(scratch.Path("a"), scratch.Path("b"));
  if (absl::IsAlreadyExists(second)) return absl::OkStatus();
  if (!second.ok()) return second;
  return absl::FailedPreconditionError("a rename replaces a folder that is not empty");
}

absl::StatusOr<absl::Duration> ProbeSync(const RootFolder& root) {
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(root));
  ASSIGN_OR_RETURN(FileDescriptors file, root.Create(scratch.Path("file"), 0600, false));
  if (::pwrite(file.buffered.get(), "probe", 5, 0) != 5) return ErrnoStatus(errno, "write");
  absl::Duration begin = SystemClock().Monotonic();
  if (::fsync(file.buffered.get()) != 0) return ErrnoStatus(errno, "fsync");
  RETURN_IF_ERROR(root.SyncDir(scratch.name()));
  return SystemClock().Monotonic() - begin;
}

absl::Status ProbeLocks(const RootFolder& root) {
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::Make(root));
  ASSIGN_OR_RETURN(FileDescriptors file, root.Create(scratch.Path("file"), 0600, false));
  ASSIGN_OR_RETURN(FileDescriptors other, root.OpenForRead(scratch.Path("file"), false));
  if (::flock(file.buffered.get(), LOCK_EX | LOCK_NB) != 0) return ErrnoStatus(errno, "flock");
  if (::flock(other.buffered.get(), LOCK_SH | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? absl::OkStatus() : ErrnoStatus(errno, "flock");
  }
  return absl::FailedPreconditionError("a lock does not keep others out");
}

}  // namespace ckptd
