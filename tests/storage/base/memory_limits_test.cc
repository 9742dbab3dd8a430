#include "storage/base/memory_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "storage/base/units.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

class MemoryLimits : public testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::path file(root() + path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& root() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

TEST_F(MemoryLimits, AMachineWithoutCgroupsHasItsAvailableMemory) {
  Write("/proc/meminfo",
        "MemTotal:       24684092 kB\nMemFree: 1 kB\nMemAvailable:   1048576 kB\n");
  EXPECT_TRUE(CgroupMemoryLimits(root()).empty());
  EXPECT_EQ(FindMemoryRoom(root()).bytes, kGiB);
  EXPECT_EQ(FindMemoryRoom(root()).where, "/proc/meminfo");
  EXPECT_EQ(ArenaLimitOfPercent(50, 256 * kMiB, root()), kGiB / 100 * 50);
}

TEST_F(MemoryLimits, EveryLevelOfVersion1IsLookedAt) {
  Write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
  Write("/proc/self/cgroup", "4:memory:/pod/trainer\n0::/\n");
  Write("/proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n");
  const std::string base = "/sys/fs/cgroup/memory";
  Write(base + "/memory.limit_in_bytes", "9223372036854771712\n");  // None.
  Write(base + "/pod/memory.limit_in_bytes", "104857600\n");
  Write(base + "/pod/memory.usage_in_bytes", "94371840\n");
  Write(base + "/pod/memory.stat", "cache 5\ntotal_inactive_file 31457280\n");
  Write(base + "/pod/trainer/memory.limit_in_bytes", "1073741824\n");
  Write(base + "/pod/trainer/memory.usage_in_bytes", "4096\n");
  std::vector<MemoryLimit> limits = CgroupMemoryLimits(root());
  ASSERT_EQ(limits.size(), 2u);
  EXPECT_EQ(limits[0].where, base + "/pod/trainer/memory.limit_in_bytes");
  EXPECT_EQ(limits[0].Headroom(), kGiB - 4096);
  EXPECT_EQ(limits[1].Headroom(), 40 * kMiB) << "page cache is given back first";
  EXPECT_EQ(FindMemoryRoom(root()).bytes, 40 * kMiB);
  EXPECT_EQ(FindMemoryRoom(root()).where, base + "/pod/memory.limit_in_bytes");
  EXPECT_TRUE(CheckMemoryRoom("it", 40 * kMiB, root()).ok());
  EXPECT_EQ(CheckMemoryRoom("it", 40 * kMiB + 1, root()).message(),
            "it needs 41943041 bytes, and " + base + "/pod/memory.limit_in_bytes leaves 41943040");
  EXPECT_EQ(ArenaLimitOfPercent(50, 256 * kMiB, root()), 27 * kMiB)
      << "90 % of the tightest headroom, a quarter kept back";
}

TEST_F(MemoryLimits, Version2InAContainerThatSeesItsOwnGroupAsTheRoot) {
  Write("/proc/meminfo", "MemAvailable: 8388608 kB\n");
  Write("/proc/self/cgroup", "0::/../../kubepods/pod7/ckptd\n");
  Write("/proc/self/mountinfo",
        "41 31 0:38 /kubepods/pod7/ckptd /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/memory.max", "67108864\n");
  Write("/sys/fs/cgroup/memory.current", "4194304\n");
  std::vector<MemoryLimit> limits = CgroupMemoryLimits(root());
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].Headroom(), 60 * kMiB);
}

TEST_F(MemoryLimits, NoLimitInVersion2IsMax) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/a/memory.max", "max\n");
  EXPECT_TRUE(CgroupMemoryLimits(root()).empty());
}

TEST_F(MemoryLimits, AGroupThatUsesMoreThanItsLimitHasNoHeadroom) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  Write("/sys/fs/cgroup/memory.max", "4096\n");
  Write("/sys/fs/cgroup/memory.current", "8192\n");
  EXPECT_EQ(CgroupMemoryLimits(root())[0].Headroom(), 0u);
}

}  // namespace
}  // namespace ckptd
