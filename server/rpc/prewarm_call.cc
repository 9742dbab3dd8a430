#include "server/rpc/prewarm_call.h"

#include <utility>

#include "server/rpc/status_conversion.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

constexpr absl::Duration kTouchPoll = absl::Milliseconds(5);

// What this rank will probably write: what it holds in part, and its share of what it holds whole,
// which others hold too.
uint64_t ExpectedBytes(const RankPlan& plan, uint32_t world_size) {
  uint64_t own = 0, shared = 0;
  for (const PlanPart& part : Parts(plan)) {
    if (!part.staged) continue;
    bool local = part.tensor != nullptr ? part.tensor->rank_local : part.item->rank_local;
    bool whole =
        part.item != nullptr || IsWhole(part.tensor->chunks[part.chunk_index], part.tensor->shape);
    (local || !whole ? own : shared) += part.bytes;
  }
  return own + (shared + world_size - 1) / world_size;
}

}  // namespace

PrewarmCall* PrewarmCall::Start(Core& core, std::string token, v1::PrewarmReply* reply) {
  auto call = std::make_shared<PrewarmCall>(core, std::move(token), reply);
  call->self_ = call;
  call->StartRead(&call->request_);
  return call.get();
}

PrewarmCall::PrewarmCall(Core& core, std::string token, v1::PrewarmReply* reply)
    : core_(core), token_(std::move(token)), reply_(reply) {}

void PrewarmCall::OnReadDone(bool ok) {
  if (!ok) {
    if (!complete_) Answer(absl::InvalidArgumentError("the plan ended before its last part"));
    return;
  }
  if (complete_) return;
  absl::Status status = AppendPlanPart(request_.plan(), plan_, plan_size_);
  if (status.ok() && request_.plan().last()) status = ValidateRankPlan(plan_);
  if (!status.ok()) {
    complete_ = true;
    return Answer(status);
  }
  complete_ = request_.plan().last();
  if (!complete_) return StartRead(&request_);
  core_.loop().Post([self = shared_from_this()] {
    absl::StatusOr<const Session*> session = self->core_.sessions().Find(self->token_);
    if (!session.ok()) return self->Answer(session.status());
    self->Obtain(ExpectedBytes(self->plan_, (*session)->info.world_size));
  });
}

void PrewarmCall::Obtain(uint64_t image_bytes) {
  const SessionInfo& info = (*core_.sessions().Find(token_))->info;
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(info.root);
  if (!root.ok()) return Answer(root.status());
  auto arena = core_.arenas().Obtain(info.job, info.rank, info.world_size, image_bytes, **root);
  if (!arena.ok()) return Answer(arena.status());
  reply_->set_arena_bytes((*arena)->bytes());
  reply_->set_arena_generation((*arena)->generation());
  AnswerWhenTouched(*std::move(arena));
}

void PrewarmCall::AnswerWhenTouched(std::shared_ptr<Arena> arena) {
  if (!arena->failure().ok()) return Answer(arena->failure());
  for (uint32_t block = 0; block < arena->block_count(); ++block) {
    if (arena->state(block) != Arena::BlockState::kUntouched) continue;
    core_.loop().After(kTouchPoll,
                       [self = shared_from_this(), arena] { self->AnswerWhenTouched(arena); });
    return;
  }
  Answer(absl::OkStatus());
}

void PrewarmCall::Answer(const absl::Status& status) { Finish(ToGrpc(status)); }

void PrewarmCall::OnDone() { std::shared_ptr<PrewarmCall> last = std::move(self_); }

}  // namespace ckptd
