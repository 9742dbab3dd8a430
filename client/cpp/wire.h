// Between the messages of proto/ckptd/v1 and the client's own types. Pure functions.
#ifndef CKPTD_CLIENT_CPP_WIRE_H_
#define CKPTD_CLIENT_CPP_WIRE_H_

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/cpp/checkpoint_info.h"
#include "client/cpp/tensor.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"
#include "storage/plan/rank_plan.h"

namespace ckptd::inline client {

// Calls `send` for each part of the plan, of at most kStreamPartBytes plus one entry, the last
// marked; stops if it returns false. It may swap the part into its own message, and should swap it
// back: the next one is made of the same memory.
void ForEachPlanPart(const RankPlan& plan, absl::FunctionRef<bool(v1::PlanPart&)> send);

// The same for what a load wants.
void ForEachWantsPart(const std::vector<TensorTarget>& targets,
                      absl::FunctionRef<bool(v1::LoadWants&)> send);

Box FromProto(const v1::Box& box);
CheckpointInfo FromProto(const v1::Checkpoint& checkpoint);
FailureInfo FromProto(const v1::Failure& failure);
AttemptInfo FromProto(const v1::Attempt& attempt);
StoredItemInfo FromProto(const v1::ItemEntry& item);
// DataLoss if the dtype is none that this client knows.
absl::StatusOr<StoredTensorInfo> FromProto(const v1::StoredTensor& tensor);

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_WIRE_H_
