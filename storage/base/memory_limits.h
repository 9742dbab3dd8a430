// How much memory this process may still take: the machine's, and every memory limit on the way up
// its cgroup path (v1 and v2). Reads files below `root` ("" on a real machine); values for tests
// come from a folder that looks like one.
#ifndef CKPTD_STORAGE_BASE_MEMORY_LIMITS_H_
#define CKPTD_STORAGE_BASE_MEMORY_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ckptd {

struct MemoryLimit {
  std::string where;  // The file that sets it.
  uint64_t limit_bytes = 0;
  uint64_t used_bytes =
      0;  // Without page cache that the kernel would give back first (inactive_file).

  uint64_t Headroom() const { return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0; }
};

// The finite limits that apply, innermost first; empty if there are none, or no cgroup can be seen.
std::vector<MemoryLimit> CgroupMemoryLimits(const std::string& root = "");

// MemAvailable of /proc/meminfo; 0 if it cannot be read.
uint64_t AvailableMemoryBytes(const std::string& root = "");

// The tightest of both, and what sets it.
struct MemoryRoom {
  uint64_t bytes = 0;
  std::string where;  // "/proc/meminfo", or MemoryLimit::where.
};
MemoryRoom FindMemoryRoom(const std::string& root = "");

// ResourceExhausted, with both numbers and what sets the limit, if `what` needs more than there is.
absl::Status CheckMemoryRoom(absl::string_view what, uint64_t bytes, const std::string& root = "");

// --arena-limit of `percent`: that share of the available memory, and at most 90 % of the tightest
// cgroup's headroom, of which `reserve_bytes` (at most a quarter) is left for other needs of this
// process.
uint64_t ArenaLimitOfPercent(uint32_t percent, uint64_t reserve_bytes,
                             const std::string& root = "");

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_MEMORY_LIMITS_H_
