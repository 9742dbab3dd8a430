#include "storage/disk/sim_disk.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/disk/open_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using UnsyncedData = SimDisk::UnsyncedData;

std::unique_ptr<File> Create(SimDisk& disk, absl::string_view path) {
  return *disk.Create(path, 0644);
}

void Write(File& file, uint64_t offset, absl::string_view text) {
  ASSERT_EQ(WriteAll(file, offset, std::as_bytes(std::span(text))), absl::OkStatus());
}

void MakeDir(SimDisk& disk, absl::string_view path) {
  ASSERT_EQ(disk.MakeDir(path, 0755), absl::OkStatus());
}

void Rename(SimDisk& disk, absl::string_view from, absl::string_view to) {
  ASSERT_EQ(disk.Rename(from, to), absl::OkStatus());
}

void SyncDir(SimDisk& disk, absl::string_view path) {
  ASSERT_EQ(disk.SyncDir(path), absl::OkStatus());
}

// Every path, a file with its content: "a/ a/f=text".
std::string Tree(Disk& disk, const std::string& folder = "") {
  std::string text;
  absl::StatusOr<std::vector<DirEntry>> entries = disk.List(folder);
  if (!entries.ok()) return entries.status().ToString();
  for (const DirEntry& entry : *entries) {
    std::string path = folder.empty() ? entry.name : folder + "/" + entry.name;
    if (entry.kind == FileKind::kFolder) {
      absl::StrAppend(&text, path, "/ ", Tree(disk, path));
    } else {
      absl::StrAppend(&text, path, "=", *ReadSmallFile(disk, path, 1 << 20), " ");
    }
  }
  return text;
}

// What a crash leaves if the pending operations in `kept` survive.
std::string After(const SimDisk& disk, std::set<size_t> kept,
                  UnsyncedData data = UnsyncedData::kKeep) {
  std::unique_ptr<SimDisk> copy = disk.Clone();
  copy->Crash([&](size_t i) { return kept.contains(i); }, data);
  EXPECT_TRUE(copy->Unsynced().empty());
  EXPECT_FALSE(copy->HasUnsyncedData());
  return Tree(*copy);
}

TEST(SimDisk, NothingIsDurableThatWasNotSynced) {
  SimDisk disk;
  MakeDir(disk, "d");
  Write(*Create(disk, "d/f"), 0, "text");
  EXPECT_EQ(Tree(disk), "d/ d/f=text ");
  ASSERT_EQ(disk.Unsynced().size(), 2u);
  EXPECT_EQ(disk.Unsynced()[0].text, "mkdir d");
  EXPECT_EQ(disk.Unsynced()[1].text, "create d/f");
  EXPECT_EQ(After(disk, {}), "");
  EXPECT_EQ(After(disk, {0}), "d/ ");
  EXPECT_EQ(After(disk, {1}), "");
  EXPECT_EQ(After(disk, {0, 1}), "d/ d/f=text ");
  EXPECT_EQ(After(disk, {0, 1}, UnsyncedData::kLose), "d/ d/f= ");
}

TEST(SimDisk, SyncedDataAndSyncedFoldersSurvive) {
  SimDisk disk;
  MakeDir(disk, "d");
  auto file = Create(disk, "d/f");
  Write(*file, 0, "text");
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  EXPECT_FALSE(disk.HasUnsyncedData());
  EXPECT_EQ(After(disk, {0}), "d/ ");
  SyncDir(disk, "d");
  EXPECT_EQ(After(disk, {}), "");
  SyncDir(disk, "");
  EXPECT_TRUE(disk.Unsynced().empty());
  EXPECT_EQ(After(disk, {}, UnsyncedData::kLose), "d/ d/f=text ");
}

TEST(SimDisk, DataIsDurableAsOfTheLastSync) {
  SimDisk disk;
  auto file = Create(disk, "f");
  Write(*file, 0, "12345678");
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  SyncDir(disk, "");
  Write(*file, 0, "abcdefghijkl");
  EXPECT_TRUE(disk.HasUnsyncedData());
  EXPECT_EQ(After(disk, {}, UnsyncedData::kKeep), "f=abcdefghijkl ");
  EXPECT_EQ(After(disk, {}, UnsyncedData::kLose), "f=12345678 ");
  EXPECT_EQ(After(disk, {}, UnsyncedData::kTear), "f=abcdef78" + std::string(4, '\0') + " ");
  ASSERT_EQ(file->Truncate(2), absl::OkStatus());
  EXPECT_EQ(After(disk, {}, UnsyncedData::kTear), "f=a2 ");
}

TEST(SimDisk, APublishedFileThatWasNotSyncedIsEmptyAfterACrash) {
  SimDisk disk;
  Write(*Create(disk, "tmp"), 0, "text");
  Rename(disk, "tmp", "final");
  SyncDir(disk, "");
  EXPECT_EQ(After(disk, {}, UnsyncedData::kLose), "final= ");
}

TEST(SimDisk, ARenameOfAFolderIsOneOperationThatKeepsItsContent) {
  SimDisk disk;
  for (const char* path : {"attempts", "attempts/1", "checkpoints"}) MakeDir(disk, path);
  Create(disk, "attempts/1/shard");
  for (const char* path : {"", "attempts", "attempts/1"}) SyncDir(disk, path);
  Rename(disk, "attempts/1", "checkpoints/a");
  ASSERT_EQ(disk.Unsynced().size(), 1u);
  EXPECT_EQ(disk.Unsynced()[0].text, "rename attempts/1 to checkpoints/a");
  EXPECT_EQ(After(disk, {}), "attempts/ attempts/1/ attempts/1/shard= checkpoints/ ");
  EXPECT_EQ(After(disk, {0}), "attempts/ checkpoints/ checkpoints/a/ checkpoints/a/shard= ");
}

TEST(SimDisk, WhichParentMakesARenameDurableIsAnOption) {
  struct Case {
    SimDisk::RenameSync needs;
    bool by_source;
    bool by_target;
  };
  for (Case c : {Case{SimDisk::RenameSync::kEither, true, true},
                 Case{SimDisk::RenameSync::kTarget, false, true},
                 Case{SimDisk::RenameSync::kBoth, false, false}}) {
    SimDisk::Options options;
    options.rename_sync = c.needs;
    SimDisk disk(options);
    for (const char* path : {"a", "a/x", "b"}) MakeDir(disk, path);
    for (const char* path : {"", "a", "b"}) SyncDir(disk, path);
    Rename(disk, "a/x", "b/y");
    auto source = disk.Clone();
    SyncDir(*source, "a");
    EXPECT_EQ(source->Unsynced().empty(), c.by_source);
    auto target = disk.Clone();
    SyncDir(*target, "b");
    EXPECT_EQ(target->Unsynced().empty(), c.by_target);
    SyncDir(*target, "a");
    EXPECT_TRUE(target->Unsynced().empty());
    EXPECT_EQ(After(*target, {}), "a/ b/ b/y/ ");
  }
}

TEST(SimDisk, ADurableRenameTakesAlongTheCreationOfWhatItMoved) {
  SimDisk disk;
  for (const char* path : {"a", "b"}) MakeDir(disk, path);
  SyncDir(disk, "");
  MakeDir(disk, "a/x");
  Create(disk, "a/other");
  Rename(disk, "a/x", "b/y");
  SyncDir(disk, "b");
  ASSERT_EQ(disk.Unsynced().size(), 1u);
  EXPECT_EQ(disk.Unsynced()[0].text, "create a/other");
  EXPECT_EQ(After(disk, {}), "a/ b/ b/y/ ");
}

TEST(SimDisk, AnOperationIsLostWithWhatItBuildsOn) {
  SimDisk disk;
  Create(disk, "a");
  Rename(disk, "a", "b");
  Rename(disk, "b", "c");
  EXPECT_EQ(After(disk, {0, 1, 2}), "c= ");
  EXPECT_EQ(After(disk, {0, 2}), "a= ");
  EXPECT_EQ(After(disk, {1, 2}), "");
  EXPECT_EQ(After(disk, {0, 1}), "b= ");
}

TEST(SimDisk, UnlinksAndReplacementsMayBeLostToo) {
  SimDisk disk;
  for (const char* name : {"old", "new"}) {
    auto file = Create(disk, name);
    Write(*file, 0, name);
    ASSERT_EQ(file->Sync(), absl::OkStatus());
  }
  SyncDir(disk, "");
  Rename(disk, "new", "old");
  ASSERT_EQ(disk.Unlink("old"), absl::OkStatus());
  EXPECT_EQ(After(disk, {}), "new=new old=old ");
  EXPECT_EQ(After(disk, {0}), "old=new ");
  EXPECT_EQ(After(disk, {1}), "new=new old=old ");
  EXPECT_EQ(After(disk, {0, 1}), "");
}

TEST(SimDisk, ARemovedFolderComesBackWithWhatWasNotDurablyRemoved) {
  SimDisk disk;
  MakeDir(disk, "d");
  Create(disk, "d/f");
  SyncDir(disk, "");
  SyncDir(disk, "d");
  ASSERT_EQ(disk.Unlink("d/f"), absl::OkStatus());
  ASSERT_EQ(disk.RemoveDir("d"), absl::OkStatus());
  EXPECT_EQ(After(disk, {}), "d/ d/f= ");
  EXPECT_EQ(After(disk, {0}), "d/ ");
  EXPECT_EQ(After(disk, {1}), "d/ d/f= ");
  EXPECT_EQ(After(disk, {0, 1}), "");
}

TEST(SimDisk, FoldersNeverEndUpInsideThemselves) {
  SimDisk disk;
  for (const char* path : {"a", "a/b"}) MakeDir(disk, path);
  for (const char* path : {"", "a"}) SyncDir(disk, path);
  Rename(disk, "a/b", "b");
  Rename(disk, "a", "b/a");
  EXPECT_EQ(After(disk, {1}), "a/ a/b/ ");
  EXPECT_EQ(After(disk, {0, 1}), "b/ b/a/ ");
}

TEST(SimDisk, AClonedDiskIsIndependent) {
  SimDisk disk;
  auto file = Create(disk, "f");
  Write(*file, 0, "same");
  std::unique_ptr<SimDisk> clone = disk.Clone();
  std::unique_ptr<File> adopted = clone->Adopt(*file);
  Write(*file, 0, "this");
  Write(*adopted, 4, " that");
  MakeDir(*clone, "d");
  EXPECT_EQ(Tree(disk), "f=this ");
  EXPECT_EQ(Tree(*clone), "d/ f=same that ");
  EXPECT_EQ(disk.Unsynced().size(), 1u);
}

TEST(SimDisk, AFileIsDeadAfterACrashOrItsClose) {
  SimDisk disk;
  auto file = Create(disk, "f");
  SyncDir(disk, "");
  disk.Crash([](size_t) { return true; }, UnsyncedData::kKeep);
  EXPECT_EQ(StatusErrno(file->Sync()), EIO);
  auto again = *disk.OpenForRead("f");
  EXPECT_EQ(again->Close(), absl::OkStatus());
  EXPECT_EQ(StatusErrno(again->Size().status()), EBADF);
}

TEST(SimDisk, EqualStatesHaveEqualFingerprintsHoweverTheyCameAbout) {
  SimDisk first;
  Create(first, "gone");
  ASSERT_EQ(first.Unlink("gone"), absl::OkStatus());
  SyncDir(first, "");
  for (const char* path : {"a", "b"}) MakeDir(first, path);
  SyncDir(first, "");
  SimDisk second;
  for (const char* path : {"b", "a"}) MakeDir(second, path);
  SyncDir(second, "");
  EXPECT_EQ(first.Fingerprint(), second.Fingerprint());

  std::set<std::string> different = {first.Fingerprint()};
  auto add = [&](const SimDisk& disk) {
    EXPECT_TRUE(different.insert(disk.Fingerprint()).second) << disk.Fingerprint();
  };
  auto file = Create(second, "a/f");
  add(second);
  Write(*file, 0, std::string(1000, 'x'));
  add(second);
  Write(*file, 999, "y");
  add(second);
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  add(second);
  SyncDir(second, "a");
  add(second);
  Rename(second, "a/f", "b/f");
  add(second);
  SyncDir(second, "b");
  add(second);
}

TEST(SimDisk, ASettableLimitMakesWritesFail) {
  SimDisk disk;
  auto file = Create(disk, "f");
  disk.SetSpace(10);
  Write(*file, 0, "12345678");
  EXPECT_EQ(disk.Space()->free_bytes, 2u);
  absl::string_view more = "9ab";
  EXPECT_EQ(StatusErrno(WriteAll(*file, 8, std::as_bytes(std::span(more)))), ENOSPC);
  EXPECT_EQ(StatusErrno(file->Allocate(11)), ENOSPC);
  EXPECT_EQ(*file->Size(), 8u);
  disk.SetSpace(0);
  Write(*file, 8, more);
  EXPECT_EQ(*file->Size(), 11u);
}

TEST(SimDisk, UnalignedTransfersEndShortAtABorder) {
  SimDisk::Options options;
  options.alignment_bytes = 8;
  SimDisk disk(options);
  auto file = Create(disk, "f");
  std::string text(24, 'x');
  auto moved = [&](uint64_t offset, size_t length) {
    size_t count = 0;
    file->Write(offset, std::as_bytes(std::span(text)).first(length),
                [&](absl::StatusOr<size_t> result) { count = *result; });
    return count;
  };
  EXPECT_EQ(moved(0, 24), 24u);
  EXPECT_EQ(moved(8, 16), 16u);
  EXPECT_EQ(moved(0, 20), 8u);
  EXPECT_EQ(moved(3, 20), 5u);
  EXPECT_EQ(moved(9, 2), 2u);
}

// A call on two disks, or on one, chosen by a seed. Few names, so that they meet often.
class RandomCalls {
 public:
  explicit RandomCalls(uint32_t seed) : random_(seed) {}

  std::string Path() {
    std::string path;
    for (size_t depth = 1 + random_() % 3; depth > 0; --depth) {
      absl::StrAppend(&path, path.empty() ? "" : "/", std::string(1, "abc"[random_() % 3]));
    }
    return path;
  }

  // OK or not, of each disk.
  std::vector<bool> Call(std::vector<Disk*> disks) {
    size_t kind = random_() % 7;
    std::string path = Path();
    std::string other = Path();
    std::vector<bool> results;
    for (Disk* disk : disks) results.push_back(CallOne(*disk, kind, path, other).ok());
    return results;
  }

  uint32_t Number() { return random_(); }

 private:
  static absl::Status CallOne(Disk& disk, size_t kind, const std::string& path,
                              const std::string& other) {
    switch (kind) {
      case 0: {
        ASSIGN_OR_RETURN(std::unique_ptr<File> file, disk.Create(path, 0644));
        return WriteAll(*file, 0, std::as_bytes(std::span(path)));
      }
      case 1:
        return disk.Unlink(path);
      case 2:
        return disk.RemoveDir(path);
      case 3:
      case 4:
        return disk.MakeDir(path, 0755);
      default:
        return disk.Rename(path, other);
    }
  }

  std::mt19937 random_;
};

TEST(SimDisk, AnswersAnyCallLikeARealDisk) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    RandomCalls calls(seed);
    TempFolder folder;
    auto real = *OpenDisk(folder.path(), {});
    SimDisk sim;
    for (int i = 0; i < 300; ++i) {
      std::vector<bool> results = calls.Call({real.get(), &sim});
      ASSERT_EQ(results[0], results[1]) << "seed " << seed << ", call " << i;
      ASSERT_EQ(Tree(*real), Tree(sim)) << "seed " << seed << ", call " << i;
    }
  }
}

TEST(SimDisk, ACrashLeavesATreeOfWhatWasThereWhateverItKeeps) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomCalls calls(seed);
    SimDisk::Options options;
    options.rename_sync = static_cast<SimDisk::RenameSync>(seed % 3);
    SimDisk disk(options);
    for (int i = 0; i < 60; ++i) {
      calls.Call({&disk});
      if (calls.Number() % 3 == 0) disk.SyncDir(calls.Path()).IgnoreError();
      if (calls.Number() % 6 == 0) disk.SyncDir("").IgnoreError();
      auto all = disk.Clone();
      all->Crash([](size_t) { return true; }, UnsyncedData::kKeep);
      ASSERT_EQ(Tree(*all), Tree(disk)) << "seed " << seed << ", call " << i;
      auto some = disk.Clone();
      some->Crash([&](size_t) { return calls.Number() % 2 == 0; }, UnsyncedData::kTear);
      Tree(*some);
      auto again = some->Clone();
      again->Crash([](size_t) { return false; }, UnsyncedData::kLose);
      ASSERT_EQ(again->Fingerprint(), some->Fingerprint()) << "seed " << seed << ", call " << i;
    }
  }
}

}  // namespace
}  // namespace ckptd
