#include "client/cli/host_checks.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "storage/base/memory_limits.h"
#include "storage/base/page_toucher.h"
#include "storage/base/status.h"
#include "storage/base/unique_fd.h"
#include "storage/base/units.h"
#include "storage/disk/uring_disk.h"

namespace ckptd {
namespace {

constexpr uint64_t kBlockBytes = 16 * kMiB;          // --block-size
constexpr uint32_t kArenaPercent = 50;               // --arena-limit
constexpr uint64_t kReadWindowBytes = 256 * kMiB;    // --read-window
constexpr uint64_t kMemoryNeeded = 4 * kBlockBytes;  // Less streams block by block.
constexpr uint64_t kHugeProbeBytes = 4 * kMiB;

constexpr char kRaiseMemlock[] =
    "docker run --ulimit memlock=-1 (or --cap-add IPC_LOCK), LimitMEMLOCK=infinity in a systemd "
    "unit, \"ulimit -l unlimited\" in a shell";
constexpr char kWithoutFixed[] = "; without it a byte costs about four times the CPU";

// The first word of a file; empty if there is none.
std::string FirstWord(const std::string& path) {
  std::string word;
  std::ifstream(path) >> word;
  return word;
}

// A field of /proc/self/status.
std::string OwnStatus(const std::string& name) {
  std::ifstream file("/proc/self/status");
  std::string key;
  std::string value;
  while (file >> key) {
    std::getline(file >> std::ws, value);
    if (key == name + ":") return value;
  }
  return "";
}

bool MayLockMemory() {
  constexpr int kCapIpcLock = 14;
  return (std::strtoull(OwnStatus("CapEff").c_str(), nullptr, 16) >> kCapIpcLock) & 1;
}

std::string HowToAllowUring(int error) {
  if (error == ENOMEM) return absl::StrCat("allow more locked memory: ", kRaiseMemlock);
  std::string disabled = FirstWord("/proc/sys/kernel/io_uring_disabled");
  if (!disabled.empty() && disabled != "0") {
    return absl::StrCat("sysctl -w kernel.io_uring_disabled=0 (it is ", disabled, ")");
  }
  std::string seccomp = OwnStatus("Seccomp");
  if (!seccomp.empty() && seccomp != "0") {
    return "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp "
           "profile: docker run --security-opt seccomp=PROFILE.json (or seccomp=unconfined)";
  }
  return error == ENOSYS ? "run Linux 5.19 or newer, with io_uring"
                         : "see which security module of this host forbids it";
}

// A page-aligned block, as an arena has them.
class Block {
 public:
  Block()
      : data_(::mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                     0)) {}
  ~Block() {
    if (data_ != MAP_FAILED) ::munmap(data_, kBlockBytes);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::span<std::byte> bytes() const {
    if (data_ == MAP_FAILED) return {};
    return {static_cast<std::byte*>(data_), kBlockBytes};
  }

 private:
  void* const data_;
};

HostCheck CheckFixedBuffers(TransferEngine& engine) {
  HostCheck check{.name = "fixed_buffers"};
  Block block;
  engine.AttachMemory(block.bytes());
  DiskFacts facts;
  engine.Describe(facts);
  engine.DetachMemory(block.bytes());
  check.ok = facts.fixed_buffers;
  check.value = check.ok ? absl::StrCat(HumanSize(kBlockBytes), " can be registered")
                         : facts.fixed_buffers_reason;
  if (!check.ok) {
    check.advice = absl::StrCat("allow more locked memory: ", kRaiseMemlock, kWithoutFixed);
  }
  return check;
}

void CheckUring(std::vector<HostCheck>& checks) {
  HostCheck check{.name = "io_uring"};
  absl::StatusOr<std::unique_ptr<TransferEngine>> engine = MakeUringEngine("", FixedBuffers::kTry);
  check.ok = engine.ok();
  if (engine.ok()) {
    check.value = "works";
    checks.push_back(check);
    checks.push_back(CheckFixedBuffers(**engine));
    return;
  }
  check.value = std::string(engine.status().message());
  check.advice = absl::StrCat(HowToAllowUring(StatusErrno(engine.status())),
                              "; without it threads write, at up to a tenth less, for more CPU");
  checks.push_back(check);
  checks.push_back({.name = "fixed_buffers",
                    .value = "need io_uring",
                    .advice = absl::StrCat("see io_uring", kWithoutFixed)});
}

HostCheck CheckMemlock() {
  HostCheck check{.name = "memlock"};
  rlimit limit = {};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  uint64_t wanted = ArenaLimitOfPercent(kArenaPercent, kReadWindowBytes);
  check.ok = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted || MayLockMemory();
  check.value = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : HumanSize(limit.rlim_cur);
  if (MayLockMemory()) absl::StrAppend(&check.value, ", and CAP_IPC_LOCK lifts it");
  if (!check.ok) {
    check.advice =
        absl::StrCat("arenas of up to ", HumanSize(wanted), " want it unlimited: ", kRaiseMemlock,
                     "; larger arenas are not registered", kWithoutFixed);
  }
  return check;
}

HostCheck CheckHugePages() {
  HostCheck check{.name = "huge_pages"};
  UniqueFd memory(::memfd_create("ckptd-probe", MFD_CLOEXEC));
  if (!memory.valid() || ::ftruncate(memory.get(), kHugeProbeBytes) != 0) {
    check.value = std::string(ErrnoStatus(errno, "shared memory").message());
    return check;
  }
  absl::StatusOr<PageSize> size = TouchPages(memory.get(), 0, kHugeProbeBytes, true);
  check.ok = size.ok() && *size == PageSize::kHuge;
  check.value = !size.ok() ? std::string(size.status().message())
                : check.ok ? "shared memory gets 2 MiB pages"
                           : "shared memory gets 4 KiB pages";
  if (!check.ok) {
    check.advice =
        "run Linux 6.1 or newer with transparent huge pages, and no \"deny\" in "
        "/sys/kernel/mm/transparent_hugepage/shmem_enabled; without them direct reads take 1.5 and "
        "writes 1.1 to 1.2 times as long";
  }
  return check;
}

HostCheck CheckMemory() {
  HostCheck check{.name = "memory", .needed = true};
  MemoryRoom room = FindMemoryRoom();
  uint64_t arenas = ArenaLimitOfPercent(kArenaPercent, kReadWindowBytes);
  check.ok = arenas >= kMemoryNeeded;
  check.value = absl::StrCat(HumanSize(room.bytes), " left by ", room.where, "; arenas get up to ",
                             HumanSize(arenas));
  if (!check.ok) {
    check.advice = absl::StrCat(
        "leave the daemon more memory, at least ", HumanSize(kMemoryNeeded),
        " for arenas: docker run --memory, MemoryMax= in a systemd unit, or a larger machine; a "
        "state that does not fit its arena streams through it, slower");
  }
  return check;
}

}  // namespace

std::vector<HostCheck> CheckHost() {
  std::vector<HostCheck> checks;
  CheckUring(checks);
  checks.push_back(CheckMemlock());
  checks.push_back(CheckHugePages());
  checks.push_back(CheckMemory());
  return checks;
}

}  // namespace ckptd
