// The small checkpoint against which requests are fuzzed and from which corpora are made.
#ifndef CKPTD_TESTS_FUZZ_STORED_H_
#define CKPTD_TESTS_FUZZ_STORED_H_

#include <string>
#include <vector>

#include "storage/format/records.h"
#include "storage/plan/rank_plan.h"
#include "tests/storage/format/sample_job.h"

namespace ckptd {

// Of two ranks: a tensor in rows, one in three chunks of rank 0, replicas, a scalar, an empty and a
// rank-local tensor, odd names, small and large items.
std::vector<RankPlan> StoredPlans();

const SampleFiles& StoredSample();  // Both ranks are on node "node-a".
const std::vector<Fragment>& StoredFragments();

}  // namespace ckptd

#endif  // CKPTD_TESTS_FUZZ_STORED_H_
