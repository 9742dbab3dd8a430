// Retention: which checkpoints of a job go after a commit, and when a root without a limit runs
// full. Pure functions.
#ifndef CKPTD_SERVER_RETENTION_H_
#define CKPTD_SERVER_RETENTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "storage/format/paths.h"

namespace ckptd {

// How many checkpoints are kept is a number, and 0 is all of them.

// The number for one rank: what it asked for, or the daemon's if it asked for nothing (0).
uint32_t KeepLastOf(uint32_t asked, uint32_t daemons);

// Of the numbers of two ranks the one that deletes less.
uint32_t KeepMore(uint32_t a, uint32_t b);

struct Published {
  std::string id;
  AttemptName attempt;

  friend bool operator==(const Published&, const Published&) = default;
};

// Those that are not among the newest `keep_last`, by attempt, oldest first. None if that is 0, so
// the newest is never among them.
std::vector<Published> BeyondNewest(std::vector<Published> published, uint32_t keep_last);

// Is there too little for two more checkpoints of that size?
bool IsRunningFull(uint64_t free_bytes, uint64_t checkpoint_bytes);

}  // namespace ckptd

#endif  // CKPTD_SERVER_RETENTION_H_
