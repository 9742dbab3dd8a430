// One suite for every Disk: what storage/disk/disk.h promises, on each engine.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "storage/disk/disk.h"
#include "storage/disk/open_disk.h"
#include "storage/disk/sim_disk.h"
#include "tests/support/fault_disk.h"
#include "tests/support/fault_plan.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using Engine = DiskOptions::Engine;
using Switch = DiskOptions::Switch;

struct Backend {
  std::string name;
  DiskOptions options = {};          // Of a real disk.
  uint64_t sim_alignment_bytes = 0;  // Of a simulated one.
  bool under_faults = false;         // Below a fault disk without a fault.
};

void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }

constexpr size_t kAlignment = Disk::kDirectAlignment;

// Memory that direct transfers can use. Byte i of the file holds ByteAt(i).
class Buffer {
 public:
  explicit Buffer(size_t size)
      : size_(size),
        data_(static_cast<std::byte*>(std::aligned_alloc(kAlignment, RoundUp(size, kAlignment))),
              &std::free) {}

  std::span<std::byte> bytes() { return {data_.get(), size_}; }
  std::span<std::byte> part(size_t offset, size_t size) { return bytes().subspan(offset, size); }

  static std::byte ByteAt(uint64_t i) {
    return static_cast<std::byte>((i * 2654435761u >> 13) ^ (i >> 8));
  }
  void Fill() {
    for (size_t i = 0; i < size_; ++i) data_.get()[i] = ByteAt(i);
  }
  bool Holds(size_t offset, size_t size) const {
    for (size_t i = offset; i < offset + size; ++i) {
      if (data_.get()[i] != ByteAt(i)) return false;
    }
    return true;
  }

 private:
  size_t size_;
  std::unique_ptr<std::byte, void (*)(void*)> data_;
};

// Transfers that go on after short counts, all in flight at once.
class Transfers {
 public:
  void Write(File& file, uint64_t offset, std::span<const std::byte> data) {
    Begin();
    ContinueWrite(file, offset, data);
  }
  void Read(File& file, uint64_t offset, std::span<std::byte> data) {
    Begin();
    ContinueRead(file, offset, data);
  }

  // The first error, or OK.
  absl::Status Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    ended_.wait(lock, [this] { return left_ == 0; });
    return status_;
  }

 private:
  void Begin() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++left_;
  }
  void End(const absl::Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status_.ok()) status_ = status;
    --left_;
    ended_.notify_all();
  }
  void ContinueWrite(File& file, uint64_t offset, std::span<const std::byte> data) {
    file.Write(offset, data, [this, &file, offset, data](absl::StatusOr<size_t> moved) {
      if (!moved.ok()) return End(moved.status());
      if (*moved == 0 || *moved > data.size()) return End(absl::InternalError("wrong count"));
      if (*moved == data.size()) return End(absl::OkStatus());
      ContinueWrite(file, offset + *moved, data.subspan(*moved));
    });
  }
  void ContinueRead(File& file, uint64_t offset, std::span<std::byte> data) {
    file.Read(offset, data, [this, &file, offset, data](absl::StatusOr<size_t> moved) {
      if (!moved.ok()) return End(moved.status());
      if (*moved == 0 || *moved > data.size()) return End(absl::InternalError("wrong count"));
      if (*moved == data.size()) return End(absl::OkStatus());
      ContinueRead(file, offset + *moved, data.subspan(*moved));
    });
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  size_t left_ = 0;
  absl::Status status_;
};

class DiskContract : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    const Backend& backend = GetParam();
    if (backend.sim_alignment_bytes != 0) {
      SimDisk::Options options;
      options.alignment_bytes = backend.sim_alignment_bytes;
      auto sim = std::make_unique<SimDisk>(options);
      sim_ = sim.get();
      disk_ = std::move(sim);
      return;
    }
    absl::StatusOr<std::unique_ptr<Disk>> disk = OpenDisk(folder_.path(), backend.options);
    if (!disk.ok() && disk.status().code() == absl::StatusCode::kFailedPrecondition) {
      GTEST_SKIP() << disk.status().message();
    }
    ASSERT_TRUE(disk.ok()) << disk.status();
    disk_ = *std::move(disk);
    if (!backend.under_faults) return;
    injector_ = *FaultInjector::Create({});
    disk_ = MakeFaultDisk(std::move(disk_), *injector_);
  }

  std::unique_ptr<File> MustCreate(absl::string_view path, uint32_t mode = 0644) {
    absl::StatusOr<std::unique_ptr<File>> file = disk_->Create(path, mode);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? *std::move(file) : nullptr;
  }

  void Put(absl::string_view path, absl::string_view content) {
    std::unique_ptr<File> file = MustCreate(path);
    ASSERT_EQ(WriteAll(*file, 0, std::as_bytes(std::span(content))), absl::OkStatus());
    ASSERT_EQ(file->Close(), absl::OkStatus());
  }

  std::string Content(absl::string_view path) {
    absl::StatusOr<std::string> content = ReadSmallFile(*disk_, path, kMiB);
    return content.ok() ? *content : content.status().ToString();
  }

  void PlantLink(const std::string& path) {
    if (sim_ != nullptr) return sim_->PlantOther(path);
    ASSERT_EQ(::symlink("elsewhere", (folder_.path() + "/" + path).c_str()), 0);
  }

  std::string Names(absl::string_view path) {
    absl::StatusOr<std::vector<DirEntry>> entries = disk_->List(path);
    if (!entries.ok()) return entries.status().ToString();
    std::string names;
    for (const DirEntry& entry : *entries) absl::StrAppend(&names, entry.name, " ");
    return names;
  }

  TempFolder folder_;
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<Disk> disk_;
  SimDisk* sim_ = nullptr;
};

// What a simulated disk does not have: large files, limits and modes.
class RealDiskContract : public DiskContract {};

// The error has this code and errno, and its text names the call and the path.
void ExpectError(const absl::Status& status, int error, absl::string_view text) {
  EXPECT_EQ(StatusErrno(status), error) << status;
  EXPECT_TRUE(absl::StartsWith(status.message(), absl::StrCat(text, ": "))) << status;
}

TEST_P(DiskContract, AFileIsCreatedOnceAndReadBack) {
  Put("a", "hello");
  EXPECT_EQ(Content("a"), "hello");
  ExpectError(disk_->Create("a", 0644).status(), EEXIST, "create a");
  EXPECT_EQ(disk_->Create("a", 0644).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Content("a"), "hello");
  ASSERT_EQ(disk_->MakeDir("d", 0755), absl::OkStatus());
  ExpectError(disk_->Create("d", 0644).status(), EEXIST, "create d");
}

TEST_P(DiskContract, ACreatedFileCanBeReadThroughTheSameHandle) {
  std::unique_ptr<File> file = MustCreate("a");
  Buffer data(64 * kKiB + 17);
  data.Fill();
  ASSERT_EQ(WriteAll(*file, 0, data.bytes()), absl::OkStatus());
  EXPECT_EQ(*file->Size(), data.bytes().size());
  Buffer back(data.bytes().size());
  ASSERT_EQ(ReadAll(*file, 0, back.bytes()), absl::OkStatus());
  EXPECT_TRUE(back.Holds(0, back.bytes().size()));
}

TEST_P(DiskContract, AFileOpenedForReadingCannotBeWritten) {
  Put("a", "hello");
  absl::StatusOr<std::unique_ptr<File>> file = disk_->OpenForRead("a");
  ASSERT_TRUE(file.ok()) << file.status();
  Buffer data(kAlignment);
  ExpectError(WriteAll(**file, 0, data.bytes()), EBADF, "write a");
  ExpectError((*file)->Truncate(0), EINVAL, "truncate a");
  ExpectError((*file)->Allocate(1), EBADF, "allocate a");
  EXPECT_EQ(Content("a"), "hello");
}

TEST_P(DiskContract, ReadingAtOrBehindTheEndGivesNothing) {
  Put("a", "hello");
  absl::StatusOr<std::unique_ptr<File>> file = disk_->OpenForRead("a");
  ASSERT_TRUE(file.ok()) << file.status();
  Buffer back(2 * kAlignment);
  for (uint64_t offset : {uint64_t{5}, uint64_t{6}, uint64_t{kAlignment}, 8 * kGiB}) {
    absl::Status status = ReadAll(**file, offset, back.bytes());
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  }
  EXPECT_EQ(ReadAll(**file, 0, back.bytes()).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ReadAll(**file, 4, back.part(0, 1)), absl::OkStatus());
}

TEST_P(DiskContract, AlignedAndUnalignedTransfersMayBeMixedAndTheEndCutExactly) {
  constexpr size_t kSize = 300 * kKiB;
  Buffer data(kSize);
  data.Fill();
  std::unique_ptr<File> file = MustCreate("a");
  // Unaligned in the middle, aligned around it, then a padded block of which the end is cut off.
  size_t borders[] = {0,
                      3 * kAlignment,
                      5 * kAlignment - 100,
                      7 * kAlignment + 1,
                      8 * kAlignment,
                      60 * kAlignment,
                      kSize};
  for (size_t i = std::size(borders) - 1; i > 0; --i) {
    size_t length = borders[i] - borders[i - 1];
    ASSERT_EQ(WriteAll(*file, borders[i - 1], data.part(borders[i - 1], length)), absl::OkStatus());
  }
  ASSERT_EQ(file->Truncate(kSize - 1000), absl::OkStatus());
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  EXPECT_EQ(*file->Size(), kSize - 1000);
  ASSERT_EQ(file->Close(), absl::OkStatus());

  EXPECT_EQ(disk_->Stat("a")->size_bytes, kSize - 1000);
  absl::StatusOr<std::unique_ptr<File>> reader = disk_->OpenForRead("a");
  ASSERT_TRUE(reader.ok()) << reader.status();
  Buffer back(kSize);
  ASSERT_EQ(ReadAll(**reader, 0, back.part(0, kSize - 1000)), absl::OkStatus());
  EXPECT_TRUE(back.Holds(0, kSize - 1000));
  ASSERT_EQ(ReadAll(**reader, 4000, back.part(4000, 9000)), absl::OkStatus());
  EXPECT_TRUE(back.Holds(0, kSize - 1000));
}

TEST_P(DiskContract, ManyTransfersRunAtOnce) {
  constexpr size_t kSize = 6 * kMiB + 12345;
  constexpr size_t kPiece = 60 * kKiB;  // Some borders are aligned, most are not.
  Buffer data(kSize);
  data.Fill();
  std::unique_ptr<File> files[] = {MustCreate("a"), MustCreate("b"), MustCreate("c")};
  Transfers writes;
  for (size_t offset = 0; offset < kSize; offset += kPiece) {
    size_t length = std::min(kPiece, kSize - offset);
    for (auto& file : files) writes.Write(*file, offset, data.part(offset, length));
  }
  ASSERT_EQ(writes.Wait(), absl::OkStatus());

  for (auto& file : files) {
    ASSERT_EQ(file->Sync(), absl::OkStatus());
    EXPECT_EQ(*file->Size(), kSize);
    Buffer back(kSize);
    Transfers reads;
    for (size_t offset = 0; offset < kSize; offset += 4 * kPiece / 3) {
      reads.Read(*file, offset, back.part(offset, std::min(4 * kPiece / 3, kSize - offset)));
    }
    ASSERT_EQ(reads.Wait(), absl::OkStatus());
    EXPECT_TRUE(back.Holds(0, kSize));
  }
}

TEST_P(DiskContract, AHoleReadsAsZeros) {
  std::unique_ptr<File> file = MustCreate("a");
  Buffer data(kAlignment);
  data.Fill();
  ASSERT_EQ(WriteAll(*file, 4 * kAlignment, data.bytes()), absl::OkStatus());
  Buffer back(kAlignment);
  back.Fill();
  ASSERT_EQ(ReadAll(*file, kAlignment, back.bytes()), absl::OkStatus());
  for (std::byte byte : back.bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST_P(RealDiskContract, OffsetsAndLengthsBeyondFourGigabytesWork) {
  std::unique_ptr<File> file = MustCreate("a");
  Buffer data(4 * kAlignment);
  data.Fill();
  for (uint64_t border : {2 * kGiB, 4 * kGiB}) {
    ASSERT_EQ(WriteAll(*file, border - 2 * kAlignment, data.bytes()), absl::OkStatus());
    ASSERT_EQ(WriteAll(*file, border + 3 * kAlignment - 77, data.part(0, 154)), absl::OkStatus());
    Buffer back(4 * kAlignment);
    ASSERT_EQ(ReadAll(*file, border - 2 * kAlignment, back.bytes()), absl::OkStatus());
    EXPECT_TRUE(back.Holds(0, back.bytes().size()));
  }
  // Asked for more than any kernel call moves: what is there arrives, no more and no less.
  constexpr size_t kHuge = 4 * kGiB + kAlignment;
  void* memory = ::mmap(nullptr, kHuge, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::span<std::byte> huge(static_cast<std::byte*>(memory), kHuge);
  absl::Status status = ReadAll(*file, 4 * kGiB - 2 * kAlignment, huge);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << status;
  EXPECT_EQ(std::memcmp(memory, data.bytes().data(), data.bytes().size()), 0);
  ::munmap(memory, kHuge);
}

TEST_P(DiskContract, ARenamedFileReplacesAFile) {
  Put("a", "new");
  Put("b", "old");
  ASSERT_EQ(disk_->Rename("a", "b"), absl::OkStatus());
  EXPECT_EQ(Content("b"), "new");
  ExpectError(disk_->Stat("a").status(), ENOENT, "stat a");
}

TEST_P(DiskContract, AnOpenFileFollowsItsRename) {
  ASSERT_EQ(disk_->MakeDir("from", 0755), absl::OkStatus());
  ASSERT_EQ(disk_->MakeDir("to", 0755), absl::OkStatus());
  std::unique_ptr<File> file = MustCreate("from/a");
  ASSERT_EQ(disk_->Rename("from", "to/here"), absl::OkStatus());
  ASSERT_EQ(WriteAll(*file, 0, std::as_bytes(std::span("late", 4))), absl::OkStatus());
  EXPECT_EQ(Content("to/here/a"), "late");
  ASSERT_EQ(disk_->Unlink("to/here/a"), absl::OkStatus());
  EXPECT_EQ(WriteAll(*file, 4, std::as_bytes(std::span("er", 2))), absl::OkStatus());
  EXPECT_EQ(*file->Size(), 6u);
}

TEST_P(DiskContract, AFolderIsRenamedOntoNothingOrAnEmptyFolderOnly) {
  ASSERT_EQ(disk_->MakeDir("a", 0755), absl::OkStatus());
  Put("a/x", "x");
  ASSERT_EQ(disk_->Rename("a", "b"), absl::OkStatus());
  EXPECT_EQ(Names(""), "b ");
  ASSERT_EQ(disk_->MakeDir("empty", 0755), absl::OkStatus());
  ASSERT_EQ(disk_->Rename("b", "empty"), absl::OkStatus());
  EXPECT_EQ(Content("empty/x"), "x");

  ASSERT_EQ(disk_->MakeDir("full", 0755), absl::OkStatus());
  Put("full/y", "y");
  absl::Status status = disk_->Rename("empty", "full");
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
  EXPECT_TRUE(absl::StartsWith(status.message(), "rename empty to full: ")) << status;
  EXPECT_EQ(Names("full"), "y ");
  EXPECT_EQ(Content("full/y"), "y");
  EXPECT_EQ(Content("empty/x"), "x");
}

TEST_P(DiskContract, ARenameThatMakesNoSenseChangesNothing) {
  ASSERT_EQ(disk_->MakeDir("d", 0755), absl::OkStatus());
  Put("f", "f");
  ExpectError(disk_->Rename("none", "other"), ENOENT, "rename none to other");
  ExpectError(disk_->Rename("d", "none/d"), ENOENT, "rename d to none/d");
  ExpectError(disk_->Rename("d", "f"), ENOTDIR, "rename d to f");
  ExpectError(disk_->Rename("f", "d"), EISDIR, "rename f to d");
  ExpectError(disk_->Rename("d", "d/e"), EINVAL, "rename d to d/e");
  ExpectError(disk_->Rename("f", "f/g"), ENOTDIR, "rename f to f/g");
  EXPECT_EQ(disk_->Rename("f", "f"), absl::OkStatus());
  EXPECT_EQ(Names(""), "d f ");
  EXPECT_EQ(Content("f"), "f");
}

TEST_P(DiskContract, FoldersAreMadeListedAndRemoved) {
  ASSERT_EQ(disk_->MakeDir("d", 0755), absl::OkStatus());
  ExpectError(disk_->MakeDir("d", 0755), EEXIST, "mkdir d");
  ExpectError(disk_->MakeDir("x/y", 0755), ENOENT, "mkdir x/y");
  EXPECT_EQ(Names("d"), "");
  for (const char* name : {"d/b", "d/a", "d/Z", "d/a.b", "d/10", "d/9"}) Put(name, "");
  ASSERT_EQ(disk_->MakeDir("d/c", 0755), absl::OkStatus());
  PlantLink("d/link");
  EXPECT_EQ(Names("d"), "10 9 Z a a.b b c link ");
  absl::StatusOr<std::vector<DirEntry>> entries = disk_->List("d");
  ASSERT_EQ(entries->size(), 8u);
  EXPECT_EQ((*entries)[0].kind, FileKind::kFile);
  EXPECT_EQ((*entries)[6].kind, FileKind::kFolder);
  EXPECT_EQ((*entries)[7].kind, FileKind::kOther);

  ExpectError(disk_->RemoveDir("d"), ENOTEMPTY, "rmdir d");
  EXPECT_EQ(disk_->RemoveDir("d").code(), absl::StatusCode::kAlreadyExists);
  ExpectError(disk_->RemoveDir("d/a"), ENOTDIR, "rmdir d/a");
  ExpectError(disk_->Unlink("d/c"), EISDIR, "unlink d/c");
  for (const DirEntry& entry : *entries) {
    std::string path = "d/" + entry.name;
    bool folder = entry.kind == FileKind::kFolder;
    EXPECT_EQ(folder ? disk_->RemoveDir(path) : disk_->Unlink(path), absl::OkStatus());
  }
  EXPECT_EQ(disk_->RemoveDir("d"), absl::OkStatus());
  EXPECT_EQ(Names(""), "");
}

TEST_P(DiskContract, StatTellsWhatThereIs) {
  Put("f", "12345");
  ASSERT_EQ(disk_->MakeDir("d", 0755), absl::OkStatus());
  PlantLink("l");
  EXPECT_EQ(disk_->Stat("f")->kind, FileKind::kFile);
  EXPECT_EQ(disk_->Stat("f")->size_bytes, 5u);
  EXPECT_GT(disk_->Stat("f")->modified, absl::UnixEpoch());
  EXPECT_EQ(disk_->Stat("d")->kind, FileKind::kFolder);
  EXPECT_EQ(disk_->Stat("")->kind, FileKind::kFolder);
  EXPECT_EQ(disk_->Stat("l")->kind, FileKind::kOther);
}

TEST_P(DiskContract, WhatIsNotThereIsNotFound) {
  ExpectError(disk_->OpenForRead("d/a").status(), ENOENT, "open d/a");
  ExpectError(disk_->Create("d/a", 0644).status(), ENOENT, "create d/a");
  ExpectError(disk_->Unlink("a"), ENOENT, "unlink a");
  ExpectError(disk_->RemoveDir("a"), ENOENT, "rmdir a");
  ExpectError(disk_->List("a").status(), ENOENT, "list a");
  ExpectError(disk_->Stat("a").status(), ENOENT, "stat a");
  ExpectError(disk_->SyncDir("a"), ENOENT, "fsyncdir a");
  EXPECT_EQ(disk_->Stat("a").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(DiskContract, WhatIsOfTheWrongKindIsRefused) {
  Put("f", "");
  ASSERT_EQ(disk_->MakeDir("d", 0755), absl::OkStatus());
  PlantLink("l");
  ExpectError(disk_->OpenForRead("d").status(), EISDIR, "open d");
  ExpectError(disk_->OpenForRead("l").status(), ELOOP, "open l");
  ExpectError(disk_->List("f").status(), ENOTDIR, "list f");
  ExpectError(disk_->SyncDir("f"), ENOTDIR, "fsyncdir f");
  ExpectError(disk_->List("l").status(), ENOTDIR, "list l");
  ExpectError(disk_->Create("l", 0644).status(), EEXIST, "create l");
}

TEST_P(DiskContract, PathsThatBreakTheRulesAreRefusedByEveryCall) {
  Put("f", "");
  absl::string_view zero("a\0b", 3);
  for (absl::string_view path :
       {absl::string_view("/etc"), absl::string_view(".."), absl::string_view("a/../b"),
        absl::string_view("./a"), absl::string_view("a/."), absl::string_view("a//b"),
        absl::string_view("a/"), absl::string_view("/"), zero}) {
    absl::Status results[] = {disk_->OpenForRead(path).status(),
                              disk_->Create(path, 0644).status(),
                              disk_->MakeDir(path, 0755),
                              disk_->Rename(path, "x"),
                              disk_->Rename("f", path),
                              disk_->Unlink(path),
                              disk_->RemoveDir(path),
                              disk_->List(path).status(),
                              disk_->Stat(path).status(),
                              disk_->SyncDir(path)};
    for (const absl::Status& status : results) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << path << ": " << status;
      EXPECT_EQ(StatusErrno(status), 0);
    }
  }
  for (const absl::Status& status :
       {disk_->OpenForRead("").status(), disk_->Create("", 0644).status(), disk_->MakeDir("", 0755),
        disk_->Unlink(""), disk_->RemoveDir(""), disk_->Rename("f", ""), disk_->Rename("", "x")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(Names(""), "f ");
}

TEST_P(DiskContract, NamesThatOnlyLookOddAreFine) {
  for (const char* name : {"...", "..a", ".a", "a b", "%2F", "ä"}) {
    Put(name, name);
    EXPECT_EQ(Content(name), name);
  }
}

TEST_P(RealDiskContract, ATooLongNameIsInvalid) {
  std::string name(300, 'n');
  ExpectError(disk_->Create(name, 0644).status(), ENAMETOOLONG, absl::StrCat("create ", name));
}

TEST_P(RealDiskContract, ModesDoNotDependOnTheUmask) {
  mode_t old = ::umask(0077);
  for (uint32_t mode : {0666u, 0644u, 0600u, 0444u, 0000u}) {
    std::string name = absl::StrCat("f", mode);
    std::unique_ptr<File> file = MustCreate(name, mode);
    struct stat info;
    ASSERT_EQ(::stat((folder_.path() + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
    Buffer data(kAlignment);
    EXPECT_EQ(WriteAll(*file, 0, data.bytes()), absl::OkStatus());
  }
  for (uint32_t mode : {0777u, 0755u, 0700u}) {
    std::string name = absl::StrCat("d", mode);
    ASSERT_EQ(disk_->MakeDir(name, mode), absl::OkStatus());
    struct stat info;
    ASSERT_EQ(::stat((folder_.path() + "/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
  }
  ::umask(old);
}

TEST_P(DiskContract, FoldersAndTheRootCanBeSynced) {
  ASSERT_EQ(disk_->MakeDir("d", 0755), absl::OkStatus());
  EXPECT_EQ(disk_->SyncDir("d"), absl::OkStatus());
  EXPECT_EQ(disk_->SyncDir(""), absl::OkStatus());
}

TEST_P(DiskContract, TheDiskHasRoom) {
  absl::StatusOr<DiskSpace> space = disk_->Space();
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_GT(space->free_bytes, 0u);
  EXPECT_LE(space->free_bytes, space->total_bytes);
}

TEST_P(DiskContract, TransfersFromAttachedMemoryWorkLikeOthers) {
  Buffer data(kMiB);
  data.Fill();
  std::unique_ptr<File> file = MustCreate("a");
  disk_->AttachMemory(data.bytes());
  EXPECT_FALSE(disk_->Facts().fixed_buffers_reason.empty());
  ASSERT_EQ(WriteAll(*file, 0, data.part(0, kMiB / 2)), absl::OkStatus());
  ASSERT_EQ(WriteAll(*file, kMiB / 2, data.part(kMiB / 2, kMiB / 2 - 100)), absl::OkStatus());
  disk_->DetachMemory(data.bytes());
  EXPECT_FALSE(disk_->Facts().fixed_buffers);
  ASSERT_EQ(WriteAll(*file, kMiB - 100, data.part(kMiB - 100, 100)), absl::OkStatus());

  Buffer back(kMiB);
  disk_->AttachMemory(back.bytes());
  ASSERT_EQ(ReadAll(*file, 0, back.bytes()), absl::OkStatus());
  EXPECT_TRUE(back.Holds(0, kMiB));
  disk_->DetachMemory(back.bytes());
}

TEST_P(DiskContract, ASmallFileIsReadWithinItsLimit) {
  Put("a", "12345");
  EXPECT_EQ(*ReadSmallFile(*disk_, "a", 5), "12345");
  absl::Status status = ReadSmallFile(*disk_, "a", 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "read a: ")) << status;
  Put("empty", "");
  EXPECT_EQ(*ReadSmallFile(*disk_, "empty", 0), "");
}

TEST_P(DiskContract, FactsNameTheEngineAndTheReasons) {
  DiskFacts facts = disk_->Facts();
  EXPECT_FALSE(facts.engine_reason.empty());
  EXPECT_FALSE(facts.direct_reason.empty());
  EXPECT_FALSE(facts.fixed_buffers_reason.empty());
  EXPECT_FALSE(facts.file_system.empty());
  EXPECT_FALSE(facts.fixed_buffers);
}

Backend Real(std::string name, Engine engine, Switch direct, Switch fixed_buffers) {
  return {.name = std::move(name),
          .options = {.engine = engine, .direct = direct, .fixed_buffers = fixed_buffers}};
}

Backend Sim(uint64_t alignment_bytes) {
  return {.name = absl::StrCat("Sim", alignment_bytes),
          .options = {},
          .sim_alignment_bytes = alignment_bytes};
}

std::vector<Backend> RealBackends() {
  return {Real("PosixDirect", Engine::kPosix, Switch::kOn, Switch::kAuto),
          Real("PosixBuffered", Engine::kPosix, Switch::kOff, Switch::kAuto),
          Real("UringDirect", Engine::kUring, Switch::kOn, Switch::kAuto),
          Real("UringBuffered", Engine::kUring, Switch::kOff, Switch::kOff),
          Real("Auto", Engine::kAuto, Switch::kAuto, Switch::kAuto)};
}

Backend UnderFaults() {
  Backend backend = Real("UnderFaults", Engine::kAuto, Switch::kAuto, Switch::kAuto);
  backend.under_faults = true;
  return backend;
}

std::string NameOf(const ::testing::TestParamInfo<Backend>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Engines, DiskContract, ::testing::ValuesIn(RealBackends()), NameOf);
INSTANTIATE_TEST_SUITE_P(Sim, DiskContract,
                         ::testing::Values(Sim(1), Sim(512), Sim(1024), Sim(4096), Sim(8192)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Faulty, DiskContract, ::testing::Values(UnderFaults()), NameOf);
INSTANTIATE_TEST_SUITE_P(Engines, RealDiskContract, ::testing::ValuesIn(RealBackends()), NameOf);

}  // namespace
}  // namespace ckptd
