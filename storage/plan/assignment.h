// Who writes what: replicas are stored once, and the chunks of all ranks tile every tensor exactly.
//
// Pure functions over the plans of the ranks of one attempt. Two ranks hold *replicas* if both have
// the same box of one tensor (or an item of one name) and neither calls it rank-local.
#ifndef CKPTD_STORAGE_PLAN_ASSIGNMENT_H_
#define CKPTD_STORAGE_PLAN_ASSIGNMENT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

// What to do if replicas differ in content (where it is compared: items always, tensors that carry
// content_crc32c).
enum class ReplicaPolicy {
  kError,  // The attempt fails, naming the entry, both ranks and the option replicas=lowest_rank.
  kLowestRank,  // The lowest rank's is stored; which one never depends on balance.
};

using PlansByRank = std::map<uint32_t, const RankPlan*>;           // Those that have joined.
using OrdinalsByRank = std::map<uint32_t, std::vector<uint32_t>>;  // Ascending.

// FailedPrecondition, naming the entry and both ranks: one name as tensor and item, or with two
// shapes, dtypes or kinds, or rank-local on one rank only; replicas that differ, under kError.
// What is rank-local on all its ranks is not compared.
absl::Status CheckAgreement(const PlansByRank& plans, ReplicaPolicy policy);

// The ordinals that each rank of `to_assign` writes, given what others write already (`taken`,
// final; entries of ranks that are in `to_assign` do not count). A list for each, perhaps an empty
// one. Chunks without elements are not written, but of a tensor without elements one is assigned,
// for the header.
//
// A replica that a rank of `taken` writes is not written again, except under kLowestRank by a lower
// rank: that one counts then (see Recorded). Among several of `to_assign` a replica goes to the one
// with the fewest staged bytes so far (ties: the lowest rank), large ones first; those of at most
// 64 KiB, and all under kLowestRank, go to the lowest rank. Deterministic: equal input, equal
// answer.
OrdinalsByRank Assign(const PlansByRank& plans, const OrdinalsByRank& taken,
                      const std::vector<uint32_t>& to_assign, ReplicaPolicy policy);

// All ranks have joined: does what they write (`written`) tile every tensor exactly? A replica that
// two ranks write is counted once. FailedPrecondition naming the tensor and the region that is
// missing or written by two ranks (naming both); an item that nobody writes. Rank-local tensors
// must be tiled by their own rank.
absl::Status CheckComplete(const PlansByRank& plans, const OrdinalsByRank& written);

// Of parts that two ranks write, only the lowest rank's is recorded in the fragment: the ordinals
// that count, with a list, perhaps an empty one, for each rank of `written`.
OrdinalsByRank Recorded(const PlansByRank& plans, const OrdinalsByRank& written);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_PLAN_ASSIGNMENT_H_
