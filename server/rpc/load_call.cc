#include "server/rpc/load_call.h"

#include <utility>

#include "proto/ckptd/convert.h"
#include "proto/ckptd/version.h"
#include "server/rpc/status_conversion.h"
#include "storage/base/status.h"

namespace ckptd {

LoadCall* LoadCall::Start(Core& core, std::string token) {
  auto call = std::make_shared<LoadCall>(core, std::move(token));
  call->self_ = call;
  call->StartRead(&call->request_);
  return call.get();
}

LoadCall::LoadCall(Core& core, std::string token)
    : core_(core), token_(std::move(token)), sender_(this) {}

void LoadCall::OnReadDone(bool ok) {
  if (!ok) return;
  absl::Status status = OnMessage();
  if (!status.ok()) return sender_.FinishWhenSent(ToGrpc(status));
  StartRead(&request_);
}

void LoadCall::OnCancel() {
  sender_.Break();
  core_.loop().Post([self = shared_from_this()] {
    self->gone_ = true;
    self->core_.loads().StreamGone(self->load_id_);
  });
}

void LoadCall::OnDone() { std::shared_ptr<LoadCall> last = std::move(self_); }

absl::Status LoadCall::OnMessage() {
  switch (request_.message_case()) {
    case v1::LoadRequest::kBegin:
      if (begun_) return absl::InvalidArgumentError("a load begins once");
      begun_ = true;
      begin_ = std::move(*request_.mutable_begin());
      return absl::OkStatus();
    case v1::LoadRequest::kWants: {
      if (!begun_ || wanted_) return absl::InvalidArgumentError("the wants come once, after begin");
      RETURN_IF_ERROR(AppendWants(request_.wants(), wants_, wants_size_));
      if (!request_.wants().last()) return absl::OkStatus();
      wanted_ = true;
      LoadRequest request = ParseLoadBegin(begin_);
      request.wants = std::move(wants_);
      core_.loop().Post([self = shared_from_this(), request = std::move(request)]() mutable {
        self->Begin(std::move(request));
      });
      return absl::OkStatus();
    }
    case v1::LoadRequest::kConsumed: {
      const auto& blocks = request_.consumed().window_blocks();
      core_.loop().Post([self = shared_from_this(),
                         blocks = std::vector<uint32_t>(blocks.begin(), blocks.end())] {
        self->core_.loads().Consumed(self->load_id_, blocks);
      });
      return absl::OkStatus();
    }
    case v1::LoadRequest::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a message of a load that this daemon does not know");
}

void LoadCall::Begin(LoadRequest request) {
  if (gone_) return;  // Nobody would ever give its blocks back.
  absl::StatusOr<const Session*> session = core_.sessions().Find(token_);
  if (!session.ok()) return sender_.FinishWhenSent(ToGrpc(session.status()));
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot((*session)->info.root);
  if (!root.ok()) return sender_.FinishWhenSent(ToGrpc(root.status()));
  root_path_ = (*root)->path();
  root_label_ = (*root)->label();
  load_id_ = core_.loads().Start(**session, *root, std::move(request), shared_from_this());
}

void LoadCall::Planned(const CheckpointInfo& checkpoint, const LoadPlan& plan, uint64_t load_id,
                       uint64_t window_block_bytes, uint32_t window_blocks) {
  v1::LoadReply reply;
  uint64_t part_bytes = 0;
  auto added = [&](uint64_t bytes) {
    part_bytes += bytes;
    if (part_bytes < kStreamPartBytes) return;
    sender_.Send(std::exchange(reply, {}));
    part_bytes = 0;
  };
  *reply.mutable_plan()->mutable_checkpoint() =
      ToProto(checkpoint, RootName{root_label_, root_path_});
  for (const LoadPiece& piece : plan.pieces) {
    v1::LoadPiece& message = *reply.mutable_plan()->add_pieces();
    message.set_want(piece.want);
    message.set_box(piece.box);
    *message.mutable_stored() = ToProto(piece.stored);
    message.set_file(piece.file);
    message.set_file_offset_bytes(piece.file_offset_bytes);
    added(64);
  }
  if (begin_.items()) {
    for (const StoredItem& item : plan.items) {
      *reply.mutable_plan()->add_items() = ToProto(item);
      added(item.name.size() + item.value.size() + 64);
    }
  }
  for (const std::string& name : plan.missing) {
    reply.mutable_plan()->add_missing(name);
    added(name.size());
  }
  for (const std::string& name : plan.extra) {
    reply.mutable_plan()->add_extra(name);
    added(name.size());
  }
  v1::LoadPlan& last = *reply.mutable_plan();
  last.set_last(true);
  last.set_load_id(load_id);
  last.set_window_block_bytes(window_block_bytes);
  last.set_window_blocks(window_blocks);
  sender_.Send(std::move(reply));
}

void LoadCall::Filled(uint32_t window_block, const LoadRead& read) {
  v1::LoadReply reply;
  v1::Filled& filled = *reply.mutable_filled();
  filled.set_window_block(window_block);
  filled.set_file(read.file);
  filled.set_file_offset_bytes(read.file_offset_bytes);
  filled.set_bytes(read.bytes);
  sender_.Send(std::move(reply));
}

void LoadCall::Done(uint64_t memory_bytes, uint64_t disk_bytes) {
  v1::LoadReply reply;
  reply.mutable_done()->set_memory_bytes(memory_bytes);
  reply.mutable_done()->set_disk_bytes(disk_bytes);
  sender_.Send(std::move(reply));
  sender_.FinishWhenSent(grpc::Status::OK);
}

void LoadCall::Failed(const Failure& failure) {
  v1::LoadReply reply;
  *reply.mutable_failed() = ToProto(failure);
  sender_.Send(std::move(reply));
  sender_.FinishWhenSent(grpc::Status::OK);
}

}  // namespace ckptd
