#include "storage/base/page_toucher.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "storage/base/unique_fd.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

UniqueFd MemoryFile(uint64_t bytes) {
  UniqueFd fd(memfd_create("page-toucher-test", MFD_CLOEXEC));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(bytes)), 0);
  return fd;
}

uint64_t AllocatedBytes(const UniqueFd& fd) {
  struct stat info;
  EXPECT_EQ(fstat(fd.get(), &info), 0);
  return static_cast<uint64_t>(info.st_blocks) * 512;
}

TEST(PageToucher, TouchesWhatItIsAskedForAndNothingElse) {
  UniqueFd fd = MemoryFile(16 * kMiB);
  ASSERT_TRUE(TouchPages(fd.get(), 4 * kMiB, 8 * kMiB, false).ok());
  EXPECT_EQ(AllocatedBytes(fd), 8 * kMiB);
}

TEST(PageToucher, KeepsWhatIsThere) {
  UniqueFd fd = MemoryFile(4 * kMiB);
  ASSERT_EQ(pwrite(fd.get(), "here", 4, 4096), 4);
  ASSERT_TRUE(TouchPages(fd.get(), 0, 4 * kMiB, true).ok());
  char bytes[4];
  ASSERT_EQ(pread(fd.get(), bytes, 4, 4096), 4);
  EXPECT_EQ(std::string(bytes, 4), "here");
}

TEST(PageToucher, GathersHugePagesWhereverTheyLieInTheFile) {
  UniqueFd fd = MemoryFile(32 * kMiB);
  absl::StatusOr<PageSize> first = TouchPages(fd.get(), 0, 16 * kMiB, true);
  ASSERT_TRUE(first.ok()) << first.status();
  if (*first == PageSize::kSmall) GTEST_SKIP() << "this kernel gathers no huge pages";
  EXPECT_EQ(TouchPages(fd.get(), 16 * kMiB, 16 * kMiB, true).value(), PageSize::kHuge);
  EXPECT_EQ(TouchPages(fd.get(), 0, 16 * kMiB, false).value(), PageSize::kSmall);
}

// A memory cgroup (version 1) with a limit, for this process while it lives.
class LimitedGroup {
 public:
  explicit LimitedGroup(uint64_t limit_bytes)
      : folder_("/sys/fs/cgroup/memory/ckptd-test-" + std::to_string(getpid())) {
    std::error_code error;
    made_ = std::filesystem::create_directory(folder_, error);
    made_ = made_ && Write(folder_ + "/memory.limit_in_bytes", std::to_string(limit_bytes));
    std::ifstream own("/proc/self/cgroup");
    for (std::string line; std::getline(own, line);) {
      size_t at = line.find(":memory:");
      if (at != std::string::npos) before_ = "/sys/fs/cgroup/memory" + line.substr(at + 8);
    }
    made_ = made_ && Write(folder_ + "/cgroup.procs", std::to_string(getpid()));
  }
  ~LimitedGroup() {
    if (!made_) return;
    Write(before_ + "/cgroup.procs", std::to_string(getpid()));
    rmdir(folder_.c_str());
  }
  bool made() const { return made_; }

 private:
  static bool Write(const std::string& path, const std::string& text) {
    std::ofstream file(path);
    file << text;
    file.flush();
    return file.good();
  }

  const std::string folder_;
  std::string before_;
  bool made_ = false;
};

TEST(PageToucher, AGroupThatIsTooSmallCostsTheHelperAndNobodyElse) {
  LimitedGroup group(64 * kMiB);
  if (!group.made()) GTEST_SKIP() << "needs root and a writable memory cgroup of version 1";
  UniqueFd large = MemoryFile(96 * kMiB);
  absl::StatusOr<PageSize> touched = TouchPages(large.get(), 0, 96 * kMiB, true);
  EXPECT_EQ(touched.status().code(), absl::StatusCode::kResourceExhausted) << touched.status();
  large.Reset();
  UniqueFd small = MemoryFile(16 * kMiB);
  EXPECT_TRUE(TouchPages(small.get(), 0, 16 * kMiB, true).ok()) << "what fits, fits afterwards";
}

}  // namespace
}  // namespace ckptd
