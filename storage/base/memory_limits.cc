#include "storage/base/memory_limits.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

// Where a cgroup hierarchy is mounted: the folder `inside` of it appears at `mount`.
struct Hierarchy {
  bool v2 = false;
  std::string inside;
  std::string mount;
};

// v1 has no word for "no limit": it says the largest page-aligned number.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  uint64_t value;
  if (!(file >> text) || !absl::SimpleAtoi(text, &value)) return std::nullopt;  // "max" too.
  return value;
}

uint64_t ReadKey(const std::string& path, absl::string_view key) {
  std::ifstream file(path);
  std::string name;
  for (uint64_t value; file >> name >> value;) {
    if (name == key) return value;
  }
  return 0;
}

// The memory controller's hierarchy: v1's if it is mounted, else v2's.
std::optional<Hierarchy> FindHierarchy(const std::string& root) {
  std::optional<Hierarchy> found;
  std::ifstream mounts(absl::StrCat(root, "/proc/self/mountinfo"));
  for (std::string line; std::getline(mounts, line);) {
    std::vector<std::string> halves = absl::StrSplit(line, " - ");
    if (halves.size() != 2) continue;
    std::vector<std::string> left = absl::StrSplit(halves[0], ' ');
    std::vector<std::string> right = absl::StrSplit(halves[1], ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    if (right[0] == "cgroup" && absl::StrContains(absl::StrCat(",", right[2], ","), ",memory,")) {
      return Hierarchy{false, left[3], left[4]};
    }
    if (right[0] == "cgroup2" && !found) found = Hierarchy{true, left[3], left[4]};
  }
  return found;
}

std::optional<std::string> FindPath(const std::string& root, bool v2) {
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    bool memory = absl::StrContains(absl::StrCat(",", fields[1], ","), ",memory,");
    if (v2 ? fields[1].empty() : memory) return fields[2];
  }
  return std::nullopt;
}

std::optional<MemoryLimit> ReadLimit(const std::string& root, const std::string& folder, bool v2) {
  std::string where = absl::StrCat(folder, v2 ? "/memory.max" : "/memory.limit_in_bytes");
  std::optional<uint64_t> limit = ReadNumber(root + where);
  if (!limit || *limit >= kNoLimit) return std::nullopt;
  uint64_t used =
      ReadNumber(absl::StrCat(root, folder, v2 ? "/memory.current" : "/memory.usage_in_bytes"))
          .value_or(0);
  uint64_t cache = ReadKey(absl::StrCat(root, folder, "/memory.stat"),
                           v2 ? "inactive_file" : "total_inactive_file");
  return MemoryLimit{where, *limit, used - std::min(used, cache)};
}

}  // namespace

std::vector<MemoryLimit> CgroupMemoryLimits(const std::string& root) {
  std::vector<MemoryLimit> limits;
  std::optional<Hierarchy> hierarchy = FindHierarchy(root);
  if (!hierarchy) return limits;
  std::optional<std::string> path = FindPath(root, hierarchy->v2);
  if (!path) return limits;
  // In a container the path may start outside of what is mounted: then the mount itself is our
  // group.
  std::string below = *path;
  if (hierarchy->inside != "/") {
    below =
        absl::StartsWith(below, hierarchy->inside) ? below.substr(hierarchy->inside.size()) : "";
  }
  while (!below.empty() && below.back() == '/') below.pop_back();
  while (true) {
    if (auto limit = ReadLimit(root, hierarchy->mount + below, hierarchy->v2))
      limits.push_back(*limit);
    if (below.empty()) return limits;
    below.resize(below.rfind('/') == std::string::npos ? 0 : below.rfind('/'));
  }
}

uint64_t AvailableMemoryBytes(const std::string& root) {
  std::ifstream meminfo(absl::StrCat(root, "/proc/meminfo"));
  for (std::string line; std::getline(meminfo, line);) {
    std::istringstream fields(line);
    std::string key;
    uint64_t value = 0;
    if (fields >> key >> value && key == "MemAvailable:") return value * kKiB;
  }
  return 0;
}

MemoryRoom FindMemoryRoom(const std::string& root) {
  MemoryRoom room{AvailableMemoryBytes(root), "/proc/meminfo"};
  for (const MemoryLimit& limit : CgroupMemoryLimits(root)) {
    if (limit.Headroom() < room.bytes) room = {limit.Headroom(), limit.where};
  }
  return room;
}

absl::Status CheckMemoryRoom(absl::string_view what, uint64_t bytes, const std::string& root) {
  MemoryRoom room = FindMemoryRoom(root);
  if (room.bytes >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " needs ", bytes, " bytes, and ", room.where, " leaves ", room.bytes));
}

uint64_t ArenaLimitOfPercent(uint32_t percent, uint64_t reserve_bytes, const std::string& root) {
  uint64_t bytes = AvailableMemoryBytes(root) / 100 * percent;
  for (const MemoryLimit& limit : CgroupMemoryLimits(root)) {
    uint64_t headroom = limit.Headroom();
    bytes = std::min(bytes, (headroom - std::min(reserve_bytes, headroom / 4)) / 10 * 9);
  }
  return bytes;
}

}  // namespace ckptd
