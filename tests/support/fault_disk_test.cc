#include "tests/support/fault_disk.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/disk/open_disk.h"
#include "storage/disk/sim_disk.h"
#include "tests/support/fault_plan.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

// A disk in memory under a plan.
class Faulty {
 public:
  explicit Faulty(absl::string_view plan)
      : injector_(
            *FaultInjector::Create({.plan = std::string(plan), .plan_file = "", .log_file = ""})),
        disk_(MakeFaultDisk(std::make_unique<SimDisk>(), *injector_)) {}

  Disk* operator->() { return disk_.get(); }
  Disk& operator*() { return *disk_; }

 private:
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<Disk> disk_;
};

std::span<const std::byte> Bytes(absl::string_view text) { return std::as_bytes(std::span(text)); }

std::future<absl::StatusOr<size_t>> StartWrite(File& file, absl::string_view text) {
  auto result = std::make_shared<std::promise<absl::StatusOr<size_t>>>();
  file.Write(0, Bytes(text), [result](absl::StatusOr<size_t> moved) { result->set_value(moved); });
  return result->get_future();
}

double Seconds(absl::FunctionRef<void()> work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(FaultDisk, WithoutAPlanItIsTheDiskBelow) {
  Faulty disk("");
  ASSERT_EQ(disk->MakeDir("d", 0755), absl::OkStatus());
  auto file = *disk->Create("d/a", 0644);
  ASSERT_EQ(WriteAll(*file, 0, Bytes("text")), absl::OkStatus());
  ASSERT_EQ(file->Truncate(3), absl::OkStatus());
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  EXPECT_EQ(*file->Size(), 3u);
  ASSERT_EQ(file->Close(), absl::OkStatus());
  ASSERT_EQ(disk->Rename("d/a", "d/b"), absl::OkStatus());
  ASSERT_EQ(disk->SyncDir("d"), absl::OkStatus());
  EXPECT_EQ(*ReadSmallFile(*disk, "d/b", 10), "tex");
  EXPECT_EQ(disk->List("d")->size(), 1u);
  ASSERT_EQ(disk->Unlink("d/b"), absl::OkStatus());
  ASSERT_EQ(disk->RemoveDir("d"), absl::OkStatus());
  EXPECT_GT(disk->Space()->free_bytes, 0u);
  EXPECT_EQ(disk->Facts().engine, "sim");
}

TEST(FaultDisk, EveryOperationCanFailAndThenDoesNothing) {
  struct Case {
    const char* operation;
    const char* text;
    std::function<absl::Status(Disk&, File&)> call;
  };
  char block[1];
  std::span<std::byte> space = std::as_writable_bytes(std::span(block));
  const Case cases[] = {
      {"open", "open f", [](Disk& d, File&) { return d.OpenForRead("f").status(); }},
      {"create", "create x", [](Disk& d, File&) { return d.Create("x", 0644).status(); }},
      {"write", "write f", [](Disk&, File& f) { return WriteAll(f, 0, Bytes("x")); }},
      {"read", "read f", [&](Disk&, File& f) { return ReadAll(f, 0, space); }},
      {"fsync", "fsync f", [](Disk&, File& f) { return f.Sync(); }},
      {"fsyncdir", "fsyncdir .", [](Disk& d, File&) { return d.SyncDir(""); }},
      {"rename", "rename f to x", [](Disk& d, File&) { return d.Rename("f", "x"); }},
      {"mkdir", "mkdir x", [](Disk& d, File&) { return d.MakeDir("x", 0755); }},
      {"unlink", "unlink f", [](Disk& d, File&) { return d.Unlink("f"); }},
      {"unlink", "unlink d", [](Disk& d, File&) { return d.RemoveDir("d"); }},
      {"allocate", "allocate f", [](Disk&, File& f) { return f.Allocate(9); }},
      {"truncate", "truncate f", [](Disk&, File& f) { return f.Truncate(0); }},
      {"stat", "stat f", [](Disk& d, File&) { return d.Stat("f").status(); }},
      {"stat", "stat f", [](Disk&, File& f) { return f.Size().status(); }},
      {"list", "list .", [](Disk& d, File&) { return d.List("").status(); }},
  };
  // "d", "f" and its byte are there before the operation: the fourth one, and the last of its name.
  for (const Case& c : cases) {
    absl::string_view name = c.operation;
    int before = name == "create" || name == "mkdir" || name == "write" ? 1 : 0;
    for (const std::string& where : {absl::StrCat(name, "@", before + 1), std::string("op@4")}) {
      Faulty disk(where + "=error:EDQUOT");
      ASSERT_EQ(disk->MakeDir("d", 0755), absl::OkStatus());
      auto file = *disk->Create("f", 0644);
      ASSERT_EQ(WriteAll(*file, 0, Bytes("1")), absl::OkStatus());
      absl::Status status = c.call(*disk, *file);
      EXPECT_EQ(StatusErrno(status), EDQUOT) << where << ": " << status;
      EXPECT_TRUE(absl::StartsWith(status.message(), absl::StrCat(c.text, ": "))) << status;
      EXPECT_EQ(disk->List("")->size(), 2u) << c.text;
      EXPECT_EQ(*ReadSmallFile(*disk, "f", 10), "1") << c.text;
    }
  }
}

TEST(FaultDisk, AShortTransferMovesAPrefix) {
  Faulty disk("write@1=short:3;read@2=short:2");
  auto file = *disk->Create("f", 0644);
  EXPECT_EQ(*StartWrite(*file, "12345678").get(), 3u);
  EXPECT_EQ(*file->Size(), 3u);
  ASSERT_EQ(WriteAll(*file, 3, Bytes("45678")), absl::OkStatus());
  EXPECT_EQ(*ReadSmallFile(*disk, "f", 10), "12345678");
  EXPECT_EQ(*ReadSmallFile(*disk, "f", 10), "12345678");
}

TEST(FaultDisk, AFlippedByteIsWrittenOrReadAndTheCallersMemoryIsLeftAlone) {
  Faulty disk("write@1=flip:2;read@2=flip:0;read@3=flip:99");
  auto file = *disk->Create("f", 0644);
  std::string text = "abcd";
  EXPECT_EQ(*StartWrite(*file, text).get(), 4u);
  EXPECT_EQ(text, "abcd");
  std::string wrong = {'a', 'b', static_cast<char>(~'c'), 'd'};
  EXPECT_EQ(*ReadSmallFile(*disk, "f", 10), wrong);
  wrong[0] = static_cast<char>(~'a');
  EXPECT_EQ(*ReadSmallFile(*disk, "f", 10), wrong);
  wrong = {'a', 'b', static_cast<char>(~'c'), static_cast<char>(~'d')};
  EXPECT_EQ(*ReadSmallFile(*disk, "f", 10), wrong);
}

TEST(FaultDisk, ADelayedTransferDoesNotBlockItsCaller) {
  Faulty disk("write=delay:200ms");
  auto file = *disk->Create("f", 0644);
  std::future<absl::StatusOr<size_t>> first;
  std::future<absl::StatusOr<size_t>> second;
  EXPECT_LT(Seconds([&] {
              first = StartWrite(*file, "a");
              second = StartWrite(*file, "b");
            }),
            0.15);
  EXPECT_EQ(first.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout);
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

TEST(FaultDisk, ADelayedCallTakesThatLong) {
  Faulty disk("mkdir=delay:50ms");
  EXPECT_GE(Seconds([&] { ASSERT_EQ(disk->MakeDir("d", 0755), absl::OkStatus()); }), 0.05);
}

TEST(FaultDisk, ARateHoldsForAllTransfersTogether) {
  Faulty disk("write=rate:64KiB");
  auto file = *disk->Create("f", 0644);
  std::string text(4096, 'x');
  double seconds = Seconds([&] {
    std::vector<std::future<absl::StatusOr<size_t>>> results;
    for (int i = 0; i < 4; ++i) results.push_back(StartWrite(*file, text));
    for (auto& result : results) ASSERT_EQ(*result.get(), text.size());
  });
  EXPECT_GE(seconds, 0.25);
}

TEST(FaultDisk, AHangingTransferIsNeverReportedAndDoesNotHinderDestruction) {
  auto result = std::make_shared<std::promise<absl::StatusOr<size_t>>>();
  std::future<absl::StatusOr<size_t>> future = result->get_future();
  {
    Faulty disk("write@1=hang");
    auto file = *disk->Create("f", 0644);
    file->Write(0, Bytes("a"), [result = std::move(result)](absl::StatusOr<size_t> moved) {
      result->set_value(moved);
    });
    ASSERT_EQ(WriteAll(*file, 0, Bytes("b")), absl::OkStatus());
    EXPECT_EQ(future.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  }
  EXPECT_THROW(future.get().status().IgnoreError(), std::future_error);  // Dropped.
}

// What a child that runs this under the plan leaves in the folder; it must die of SIGKILL.
bool DiesOf(absl::string_view plan, const std::string& root) {
  pid_t child = ::fork();
  if (child == 0) {
    auto injector =
        FaultInjector::Create({.plan = std::string(plan), .plan_file = "", .log_file = ""});
    auto disk = MakeFaultDisk(*OpenDisk(root, {}), **injector);
    auto file = *disk->Create("f", 0644);
    static_cast<void>(WriteAll(*file, 0, Bytes("text")));
    static_cast<void>(disk->MakeDir("d", 0755));
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

TEST(FaultDisk, AKillComesBeforeOrAfterTheOperation) {
  struct Case {
    const char* plan;
    const char* left;
  };
  for (const Case& c :
       {Case{"create=kill", ""}, Case{"create=kill-after", "f()"}, Case{"write=kill", "f()"},
        Case{"write=kill-after", "f(text)"}, Case{"mkdir=kill", "f(text)"},
        Case{"mkdir=kill-after", "d f(text)"}, Case{"op@2=kill", "f()"}}) {
    TempFolder folder;
    EXPECT_TRUE(DiesOf(c.plan, folder.path())) << c.plan;
    auto disk = *OpenDisk(folder.path(), {});
    std::string left;
    absl::StatusOr<std::vector<DirEntry>> entries = disk->List("");
    for (const DirEntry& entry : *entries) {
      bool file = entry.kind == FileKind::kFile;
      absl::StrAppend(&left, left.empty() ? "" : " ", entry.name,
                      file ? absl::StrCat("(", *ReadSmallFile(*disk, entry.name, 10), ")") : "");
    }
    EXPECT_EQ(left, c.left) << c.plan;
  }
}

}  // namespace
}  // namespace ckptd
