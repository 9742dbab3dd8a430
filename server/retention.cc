#include "server/retention.h"

#include <algorithm>

namespace ckptd {

uint32_t KeepLastOf(uint32_t asked, uint32_t daemons) { return asked > 0 ? asked : daemons; }

uint32_t KeepMore(uint32_t a, uint32_t b) { return a == 0 || b == 0 ? 0 : std::max(a, b); }

std::vector<Published> BeyondNewest(std::vector<Published> published, uint32_t keep_last) {
  if (keep_last == 0 || published.size() <= keep_last) return {};
  std::sort(published.begin(), published.end(),
            [](const Published& a, const Published& b) { return a.attempt < b.attempt; });
  published.resize(published.size() - keep_last);
  return published;
}

bool IsRunningFull(uint64_t free_bytes, uint64_t checkpoint_bytes) {
  return free_bytes / 2 < checkpoint_bytes;
}

}  // namespace ckptd
