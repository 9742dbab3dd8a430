// File::Allocate() on each disk, as storage/disk/disk.h promises it.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "storage/disk/disk.h"
#include "storage/disk/open_disk.h"
#include "storage/disk/sim_disk.h"
#include "tests/support/fault_disk.h"
#include "tests/support/fault_plan.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

constexpr size_t kBlock = Disk::kDirectAlignment;

std::unique_ptr<Disk> Open(const TempFolder& folder, DiskOptions::Engine engine) {
  absl::StatusOr<std::unique_ptr<Disk>> disk = OpenDisk(folder.path(), {.engine = engine});
  EXPECT_TRUE(disk.ok()) << disk.status();
  return *std::move(disk);
}

void Write(File& file, uint64_t offset, const std::string& bytes) {
  ASSERT_EQ(WriteAll(file, offset, std::as_bytes(std::span(bytes))), absl::OkStatus());
}

// What is allocated reads as zeros until it is written, never makes a file shorter, and is cut as
// anything else.
void Check(Disk& disk) {
  std::unique_ptr<File> file = *disk.Create("a", 0644);
  ASSERT_EQ(file->Allocate(0), absl::OkStatus());
  EXPECT_EQ(*file->Size(), 0u);
  Write(*file, 0, std::string(100, 'x'));
  ASSERT_EQ(file->Allocate(40 * kBlock), absl::OkStatus());
  EXPECT_EQ(*file->Size(), 40 * kBlock);
  ASSERT_EQ(file->Allocate(kBlock), absl::OkStatus());
  EXPECT_EQ(*file->Size(), 40 * kBlock) << "what is there stays";
  Write(*file, 8 * kBlock, std::string(kBlock, 'y'));
  ASSERT_EQ(file->Truncate(20 * kBlock + 7), absl::OkStatus());
  ASSERT_EQ(file->Sync(), absl::OkStatus());
  ASSERT_EQ(file->Close(), absl::OkStatus());

  std::string expected(20 * kBlock + 7, '\0');
  expected.replace(0, 100, 100, 'x');
  expected.replace(8 * kBlock, kBlock, kBlock, 'y');
  EXPECT_EQ(*ReadSmallFile(disk, "a", 1 << 20), expected);
}

TEST(Allocate, OnARealDisk) {
  for (auto engine : {DiskOptions::Engine::kAuto, DiskOptions::Engine::kPosix}) {
    TempFolder folder;
    Check(*Open(folder, engine));
  }
}

TEST(Allocate, OnASimulatedDisk) {
  SimDisk disk;
  Check(disk);
}

TEST(Allocate, BelowAFaultDisk) {
  TempFolder folder;
  auto injector = *FaultInjector::Create({});
  Check(*MakeFaultDisk(Open(folder, DiskOptions::Engine::kAuto), *injector));
}

}  // namespace
}  // namespace ckptd
