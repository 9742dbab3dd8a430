#include "server/rpc/save_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/convert.h"
#include "proto/ckptd/version.h"
#include "server/rpc/status_conversion.h"
#include "storage/base/status.h"

namespace ckptd {

SaveCall* SaveCall::Start(Core& core, std::string token) {
  auto call = std::make_shared<SaveCall>(core, std::move(token));
  call->self_ = call;
  call->StartRead(&call->request_);
  return call.get();
}

SaveCall::SaveCall(Core& core, std::string token)
    : core_(core), token_(std::move(token)), sender_(this) {}

void SaveCall::OnReadDone(bool ok) {
  if (!ok) return;  // The client has said all; a broken stream comes as OnCancel.
  absl::Status status = OnMessage();
  if (!status.ok()) return Refuse(status);
  StartRead(&request_);
}

// Of a message that breaks the protocol. The save is over too: no other rank waits for this one.
void SaveCall::Refuse(const absl::Status& status) {
  sender_.FinishWhenSent(ToGrpc(status));
  core_.loop().Post([self = shared_from_this(), status] {
    self->gone_ = true;
    self->GiveUp(status);
  });
}

void SaveCall::GiveUp(const absl::Status& why) {
  if (ticket_->attempt) {
    ticket_->attempt->Fail(Failure{why, begin_.rank(), core_.config().node, "stage"});
  } else {
    given_up_ = why;
  }
}

void SaveCall::OnCancel() {
  sender_.Break();
  core_.loop().Post([self = shared_from_this()] {
    self->gone_ = true;
    if (self->ticket_->attempt) self->ticket_->attempt->StreamGone(self->ticket_->rank, self.get());
  });
}

void SaveCall::OnDone() { std::shared_ptr<SaveCall> last = std::move(self_); }

absl::Status SaveCall::OnMessage() {
  switch (request_.message_case()) {
    case v1::SaveRequest::kBegin:
      if (begun_) return absl::InvalidArgumentError("a save begins once");
      begun_ = true;
      begin_ = std::move(*request_.mutable_begin());
      return absl::OkStatus();
    case v1::SaveRequest::kPlan:
      if (!begun_ || planned_)
        return absl::InvalidArgumentError("the plan comes once, after begin");
      RETURN_IF_ERROR(AppendPlanPart(request_.plan(), *plan_, plan_size_));
      return request_.plan().last() ? OnPlanComplete() : absl::OkStatus();
    case v1::SaveRequest::kSealed:
      if (!planned_) return absl::InvalidArgumentError("blocks are sealed after the plan");
      OnSealed();
      return absl::OkStatus();
    case v1::SaveRequest::kCancel:
      if (!planned_) return absl::CancelledError("cancelled before its plan was complete");
      OnCancelSave();
      return absl::OkStatus();
    case v1::SaveRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of a save that this daemon does not know");
}

absl::Status SaveCall::OnPlanComplete() {
  RETURN_IF_ERROR(ValidateRankPlan(*plan_));
  ASSIGN_OR_RETURN(SaveOptions options, ParseSaveBegin(begin_));
  std::optional<ResumeState> resume;
  if (begin_.has_resume()) {
    ASSIGN_OR_RETURN(resume, ParseResume(begin_.resume()));
  }
  planned_ = true;
  core_.loop().Post([self = shared_from_this(), options, resume = std::move(resume)]() mutable {
    self->Begin(options, std::move(resume));
  });
  return absl::OkStatus();
}

void SaveCall::Begin(const SaveOptions& options, std::optional<ResumeState> resume) {
  if (gone_ && !given_up_) return;  // It begins again on a new stream.
  absl::StatusOr<const Session*> session = core_.sessions().Find(token_);
  if (!session.ok()) return sender_.FinishWhenSent(ToGrpc(session.status()));
  if ((*session)->info.rank != begin_.rank()) {
    return sender_.FinishWhenSent(ToGrpc(absl::PermissionDeniedError(
        absl::StrCat("the token belongs to rank ", (*session)->info.rank,
                     ", and the save says rank ", begin_.rank()))));
  }
  // A save that has begun waits for its root as long as its client does; a new one is told.
  bool waits = resume.has_value() && core_.roots().IsStarting((*session)->info.root);
  if (waits) {
    return core_.roots().WhenStarted((*session)->info.root, [self = shared_from_this(), options,
                                                             resume = std::move(resume)]() mutable {
      self->Begin(options, std::move(resume));
    });
  }
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot((*session)->info.root);
  // This root comes no more in this life of the daemon, and what became of the save only it knows.
  if (!root.ok() && resume.has_value()) {
    return Failed(
        {absl::UnknownError(root.status().message()), std::nullopt, core_.config().node, "settle"});
  }
  if (!root.ok()) return sender_.FinishWhenSent(ToGrpc(root.status()));
  root_path_ = (*root)->path();
  core_.attempts().Save(**session, *root, options, std::exchange(plan_, nullptr), std::move(resume),
                        shared_from_this(), ticket_);
  if (given_up_) GiveUp(*given_up_);
}

void SaveCall::OnSealed() {
  const v1::SealedBlock& block = request_.sealed();
  core_.loop().Post([self = shared_from_this(), image_block = block.image_block(),
                     arena_block = block.arena_block(),
                     crcs = std::vector<uint32_t>(block.unit_crc32c().begin(),
                                                  block.unit_crc32c().end())]() mutable {
    Attempts::Ticket& ticket = *self->ticket_;
    if (ticket.attempt)
      ticket.attempt->Sealed(ticket.rank, image_block, arena_block, std::move(crcs));
  });
}

void SaveCall::OnCancelSave() {
  core_.loop().Post([self = shared_from_this()] {
    self->GiveUp(
        absl::CancelledError(absl::StrCat("rank ", self->begin_.rank(), " cancelled the save")));
  });
}

void SaveCall::Admitted(const AttemptName& attempt) {
  v1::SaveReply reply;
  reply.mutable_admitted()->set_attempt(ToString(attempt));
  reply.mutable_admitted()->set_sequence(attempt.sequence);
  sender_.Send(std::move(reply));
}

void SaveCall::Assigned(const std::vector<uint32_t>& ordinals, uint64_t arena_generation) {
  constexpr size_t kOrdinalsPerPart =
      kStreamPartBytes / 5;  // A varint of 32 bits has at most 5 bytes.
  size_t begin = 0;
  do {
    size_t end = std::min(begin + kOrdinalsPerPart, ordinals.size());
    v1::SaveReply reply;
    v1::Assigned& part = *reply.mutable_assigned();
    part.mutable_ordinals()->Add(ordinals.begin() + begin, ordinals.begin() + end);
    part.set_last(end == ordinals.size());
    if (part.last()) part.set_arena_generation(arena_generation);
    sender_.Send(std::move(reply));
    begin = end;
  } while (begin < ordinals.size());
}

void SaveCall::Granted(const std::vector<BlockGrant>& grants) {
  v1::SaveReply reply;
  for (const BlockGrant& grant : grants) {
    v1::BlockGrant& block = *reply.mutable_granted()->add_blocks();
    block.set_image_block(grant.image_block);
    block.set_arena_block(grant.arena_block);
  }
  sender_.Send(std::move(reply));
}

void SaveCall::Staged() {
  v1::SaveReply reply;
  reply.mutable_staged();
  sender_.Send(std::move(reply));
}

void SaveCall::Durable() {
  v1::SaveReply reply;
  reply.mutable_durable();
  sender_.Send(std::move(reply));
}

void SaveCall::Committed(const CheckpointInfo& checkpoint) {
  absl::StatusOr<const Session*> session = core_.sessions().Find(token_);
  v1::SaveReply reply;
  *reply.mutable_committed()->mutable_checkpoint() =
      ToProto(checkpoint, RootName{session.ok() ? (*session)->info.root : "", root_path_});
  sender_.Send(std::move(reply));
  sender_.FinishWhenSent(grpc::Status::OK);
}

void SaveCall::Failed(const Failure& failure) {
  v1::SaveReply reply;
  *reply.mutable_failed() = ToProto(failure);
  sender_.Send(std::move(reply));
  sender_.FinishWhenSent(grpc::Status::OK);
}

}  // namespace ckptd
