// From a trainer's state to a rank's plan, and from load targets to wants: all checks that need no
// daemon. Pure functions.
#ifndef CKPTD_CLIENT_CPP_STATE_PLAN_H_
#define CKPTD_CLIENT_CPP_STATE_PLAN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/cpp/strided_view.h"
#include "client/cpp/tensor.h"
#include "storage/plan/rank_plan.h"

namespace ckptd::inline client {

struct PlannedState {
  RankPlan plan;
  std::vector<StridedView> views;        // By ordinal; of no bytes for what the plan itself holds.
  std::vector<std::string> item_values;  // What the views of large items show.
};

// InvalidArgument, naming the entry, for what ValidateRankPlan() refuses, for strides that do not
// fit and for data that is missing.
absl::StatusOr<std::unique_ptr<PlannedState>> PlanState(State state);

// InvalidArgument, naming the entry, for a name twice, a box outside its tensor, strides that do
// not fit, data that is missing.
absl::Status CheckTargets(const std::vector<TensorTarget>& targets);

// InvalidArgument unless `text` is UTF-8 of 1-200 encoded bytes. `what` is "job name" or
// "checkpoint id".
absl::Status CheckText(absl::string_view what, absl::string_view text);

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_STATE_PLAN_H_
