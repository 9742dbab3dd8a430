// TouchPages makes pages of shared memory exist without risking this process.
//
// Pages are charged to the cgroup of whoever touches them first, and running out there is a
// SIGKILL, not an error. So a helper process touches them, whose oom_score_adj of 1000 makes it the
// kernel's first choice: if it is killed, the memory is not there, and nothing else has happened.
#ifndef CKPTD_STORAGE_BASE_PAGE_TOUCHER_H_
#define CKPTD_STORAGE_BASE_PAGE_TOUCHER_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace ckptd {

enum class PageSize { kSmall, kHuge };  // 4 KiB; 2 MiB.

// Touches [offset, offset + bytes) of the memfd and gathers it into 2 MiB pages if `huge` and the
// kernel can (MADV_COLLAPSE: also where huge pages are switched off for shared memory). Both
// multiples of 4096. Blocking: for a worker. The helper does not outlive this process.
// ResourceExhausted if the memory is not there.
absl::StatusOr<PageSize> TouchPages(int memfd, uint64_t offset_bytes, uint64_t bytes, bool huge);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_PAGE_TOUCHER_H_
