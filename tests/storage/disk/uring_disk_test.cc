#include "storage/disk/uring_disk.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "storage/base/units.h"
#include "storage/disk/open_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using Engine = DiskOptions::Engine;
using Switch = DiskOptions::Switch;

class SharedMemory {
 public:
  explicit SharedMemory(size_t size)
      : size_(size),
        data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {}
  ~SharedMemory() { ::munmap(data_, size_); }

  std::span<std::byte> bytes() { return {static_cast<std::byte*>(data_), size_}; }

 private:
  size_t size_;
  void* data_;
};

// CAP_IPC_LOCK: no limit for locked memory. Root has it, except in most containers.
bool MayLockMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view bits = line;
    uint64_t effective = 0;
    if (!absl::ConsumePrefix(&bits, "CapEff:\t")) continue;
    return absl::SimpleHexAtoi(bits, &effective) && (effective >> CAP_IPC_LOCK & 1) != 0;
  }
  return false;
}

TEST(UringDisk, RegisteredBuffersAreInUseWhereMemoryMayBeLocked) {
  TempFolder folder;
  auto disk = OpenDisk(folder.path(), {.engine = Engine::kUring});
  if (!disk.ok()) GTEST_SKIP() << disk.status().message();
  if (!MayLockMemory()) GTEST_SKIP() << "this process has no CAP_IPC_LOCK";
  // More than one range, so that the second has another slot and a border lies within.
  SharedMemory memory(kGiB + 8 * kMiB);
  std::span<std::byte> bytes = memory.bytes();
  EXPECT_EQ((*disk)->Facts().fixed_buffers_reason, "no memory is attached");
  (*disk)->AttachMemory(bytes);
  DiskFacts facts = (*disk)->Facts();
  ASSERT_TRUE(facts.fixed_buffers) << facts.fixed_buffers_reason;
  EXPECT_EQ(facts.fixed_buffers_reason, "registered");

  std::span<std::byte> part = bytes.subspan(kGiB - 4 * kMiB, 8 * kMiB);
  for (size_t i = 0; i < part.size(); ++i) part[i] = static_cast<std::byte>(i >> 12 ^ i);
  auto file = (*disk)->Create("f", 0600);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(WriteAll(**file, 0, part.first(4 * kMiB)), absl::OkStatus());
  ASSERT_EQ(WriteAll(**file, 4 * kMiB, part.subspan(4 * kMiB)), absl::OkStatus());
  ASSERT_EQ(WriteAll(**file, 8 * kMiB, part), absl::OkStatus());  // Crosses the border.
  for (uint64_t offset : {uint64_t{0}, 8 * kMiB}) {
    std::span<std::byte> back = bytes.first(part.size());
    ASSERT_EQ(ReadAll(**file, offset, back), absl::OkStatus());
    EXPECT_TRUE(std::equal(back.begin(), back.end(), part.begin()));
  }
  (*disk)->DetachMemory(bytes);
  EXPECT_FALSE((*disk)->Facts().fixed_buffers);
  (*disk)->AttachMemory(bytes);
  EXPECT_TRUE((*disk)->Facts().fixed_buffers);
  (*disk)->DetachMemory(bytes);
}

TEST(UringDisk, MemoryThatCannotBeRegisteredIsUsedAllTheSame) {
  TempFolder folder;
  auto disk = OpenDisk(folder.path(), {.engine = Engine::kUring});
  if (!disk.ok()) GTEST_SKIP() << disk.status().message();
  SharedMemory memory(kMiB);
  // A hole in the range: the kernel refuses it whole.
  ::munmap(memory.bytes().data() + kMiB / 2, 4096);
  (*disk)->AttachMemory(memory.bytes());
  DiskFacts facts = (*disk)->Facts();
  EXPECT_FALSE(facts.fixed_buffers);
  EXPECT_FALSE(facts.fixed_buffers_reason.empty());
  auto file = (*disk)->Create("f", 0600);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(WriteAll(**file, 0, memory.bytes().first(kMiB / 2)), absl::OkStatus());
  (*disk)->DetachMemory(memory.bytes());
}

// As container run-times do: io_uring_setup fails with EPERM.
bool ForbidIoUring() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {.len = std::size(filter), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// In a child: 0 if posix takes over with the reason and forced io_uring is refused.
int TryWithoutIoUring(const std::string& root) {
  if (!ForbidIoUring()) return 77;
  auto disk = OpenDisk(root, {});
  if (!disk.ok()) return 1;
  DiskFacts facts = (*disk)->Facts();
  if (facts.engine != "posix") return 2;
  if (!absl::StrContains(facts.engine_reason, "io_uring_setup: Operation not permitted")) return 3;
  absl::string_view text = "text";
  auto file = (*disk)->Create("f", 0600);
  if (!file.ok() || !WriteAll(**file, 0, std::as_bytes(std::span(text))).ok()) return 4;
  absl::Status forced = OpenDisk(root, {.engine = Engine::kUring}).status();
  if (forced.code() != absl::StatusCode::kFailedPrecondition) return 5;
  absl::Status fixed = OpenDisk(root, {.fixed_buffers = Switch::kOn}).status();
  return fixed.code() == absl::StatusCode::kFailedPrecondition ? 0 : 6;
}

TEST(UringDisk, WhereIoUringIsForbiddenPosixTakesOverWithTheReason) {
  TempFolder folder;
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) ::_exit(TryWithoutIoUring(folder.path()));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this process may not filter its system calls";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ckptd
