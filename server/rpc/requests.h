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

// What all parts of a plan, or of what a load wants, may have together; so the daemon keeps no more
// for a client than that. The entries are limited by kEntriesPerRankMax.
inline constexpr uint64_t kPlanBytesMax = uint64_t{1} << 30;

// What the parts so far had.
struct PlanSize {
  uint64_t entries = 0;  // Tensors, their chunks (or wanted boxes) and items.
  uint64_t bytes = 0;    // Of the messages.
};

// Appends a part to the plan. InvalidArgument for a number that is no dtype or kind, or beyond a
// limit. The whole plan is then checked by ValidateRankPlan().
absl::Status AppendPlanPart(const v1::PlanPart& part, RankPlan& plan, PlanSize& size);

// InvalidArgument for an id, request id or choice that is none.
absl::StatusOr<SaveOptions> ParseSaveBegin(const v1::SaveBegin& begin);
absl::StatusOr<ResumeState> ParseResume(const v1::Resume& resume);

LoadRequest ParseLoadBegin(const v1::LoadBegin& begin);
// InvalidArgument for a number that is no dtype, a shape too large, or beyond a limit.
absl::Status AppendWants(const v1::LoadWants& part, std::vector<Want>& wants, PlanSize& size);

v1::Box ToProto(const Box& box);
v1::ItemEntry ToProto(const StoredItem& item);

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_REQUESTS_H_
