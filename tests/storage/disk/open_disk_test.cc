#include "storage/disk/open_disk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "storage/base/status.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using Engine = DiskOptions::Engine;
using Switch = DiskOptions::Switch;

TEST(OpenDisk, TheRootMustBeAnExistingFolder) {
  TempFolder folder;
  absl::Status missing = OpenDisk(folder.path() + "/none", {}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_TRUE(absl::StrContains(missing.message(), folder.path() + "/none")) << missing;
  std::ofstream(folder.path() + "/file") << "x";
  absl::Status file = OpenDisk(folder.path() + "/file", {}).status();
  EXPECT_EQ(StatusErrno(file), ENOTDIR) << file;
}

TEST(OpenDisk, OpeningLeavesTheRootAsItWas) {
  TempFolder folder;
  ASSERT_TRUE(OpenDisk(folder.path(), {}).ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(OpenDisk, WhatIsTurnedOffSaysSo) {
  TempFolder folder;
  auto disk =
      OpenDisk(folder.path(),
               {.engine = Engine::kPosix, .direct = Switch::kOff, .fixed_buffers = Switch::kOff});
  ASSERT_TRUE(disk.ok()) << disk.status();
  DiskFacts facts = (*disk)->Facts();
  EXPECT_EQ(facts.engine, "posix");
  EXPECT_EQ(facts.engine_reason, "asked for");
  EXPECT_FALSE(facts.direct);
  EXPECT_EQ(facts.direct_reason, "turned off");
  EXPECT_FALSE(facts.fixed_buffers);
  EXPECT_EQ(facts.fixed_buffers_reason, "turned off");
}

TEST(OpenDisk, AutoGivesUringOrSaysWhyNot) {
  TempFolder folder;
  auto disk = OpenDisk(folder.path(), {});
  ASSERT_TRUE(disk.ok()) << disk.status();
  DiskFacts facts = (*disk)->Facts();
  if (facts.engine == "uring") {
    EXPECT_EQ(facts.engine_reason, "io_uring works");
  } else {
    EXPECT_EQ(facts.engine, "posix");
    EXPECT_TRUE(absl::StartsWith(facts.engine_reason, "io_uring_")) << facts.engine_reason;
  }
}

TEST(OpenDisk, RegisteredBuffersNeedIoUring) {
  TempFolder folder;
  absl::Status status =
      OpenDisk(folder.path(), {.engine = Engine::kPosix, .fixed_buffers = Switch::kOn}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
}

TEST(OpenDisk, ATmpfsHasNoDirectTransfers) {
  struct statfs info;
  if (::statfs("/dev/shm", &info) != 0 || info.f_type != 0x01021994) {
    GTEST_SKIP() << "/dev/shm is no tmpfs";
  }
  auto disk = OpenDisk("/dev/shm", {});
  if (!disk.ok()) GTEST_SKIP() << disk.status().message();
  DiskFacts facts = (*disk)->Facts();
  EXPECT_EQ(facts.file_system, "tmpfs");
  EXPECT_FALSE(facts.direct);
  EXPECT_TRUE(absl::StrContains(facts.direct_reason, "tmpfs")) << facts.direct_reason;
  absl::Status forced = OpenDisk("/dev/shm", {.direct = Switch::kOn}).status();
  EXPECT_EQ(forced.code(), absl::StatusCode::kFailedPrecondition) << forced;
  EXPECT_TRUE(absl::StrContains(forced.message(), "/dev/shm")) << forced;
}

TEST(OpenDisk, ARootThatCannotBeWrittenIsReadWithoutDirectTransfers) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  TempFolder folder;
  std::ofstream(folder.path() + "/file") << "text";
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  auto disk = OpenDisk(folder.path(), {});
  ASSERT_TRUE(disk.ok()) << disk.status();
  EXPECT_FALSE((*disk)->Facts().direct);
  EXPECT_EQ(*ReadSmallFile(**disk, "file", 100), "text");
  EXPECT_EQ((*disk)->Create("a", 0644).status().code(), absl::StatusCode::kPermissionDenied);
  ::chmod(folder.path().c_str(), 0755);
}

}  // namespace
}  // namespace ckptd
