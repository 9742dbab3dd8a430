// What clients send, turned into what the daemon works with, and checked. Pure functions; no gRPC.
#ifndef CKPTD_SERVER_RPC_REQUESTS_H_
#define CKPTD_SERVER_RPC_REQUESTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"
#include "server/attempt.h"
#include "server/loads.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

// Appends a part to the plan. InvalidArgument for a number that is no dtype or kind, or beyond
// kEntriesPerRankMax. The whole plan is then checked by ValidateRankPlan().
absl::Status AppendPlanPart(const v1::PlanPart& part, RankPlan& plan);

// InvalidArgument for an id, request id or choice that is none.
absl::StatusOr<SaveOptions> ParseSaveBegin(const v1::SaveBegin& begin);
absl::StatusOr<ResumeState> ParseResume(const v1::Resume& resume);

LoadRequest ParseLoadBegin(const v1::LoadBegin& begin);
absl::Status AppendWants(const v1::LoadWants& part, std::vector<Want>& wants);

v1::Box ToProto(const Box& box);
v1::ItemEntry ToProto(const StoredItem& item);

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_REQUESTS_H_
