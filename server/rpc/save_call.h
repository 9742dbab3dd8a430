// SaveCall is one Save stream: messages to the control loop, answers back. See
// CheckpointService.Save for the protocol.
#ifndef CKPTD_SERVER_RPC_SAVE_CALL_H_
#define CKPTD_SERVER_RPC_SAVE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "proto/ckptd/v1/checkpoint.pb.h"
#include "server/core.h"
#include "server/rpc/requests.h"
#include "server/rpc/send_queue.h"

namespace ckptd {

// gRPC's reactor. Owns itself until OnDone; the control loop holds it as a SaveStream.
class SaveCall : public grpc::ServerBidiReactor<v1::SaveRequest, v1::SaveReply>,
                 public SaveStream,
                 public std::enable_shared_from_this<SaveCall> {
 public:
  static SaveCall* Start(Core& core, std::string token);

  SaveCall(Core& core, std::string token);

  // Reactor, on gRPC's threads.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { sender_.WriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

  // SaveStream, on the loop.
  void Admitted(const AttemptName& attempt) override;
  void Assigned(const std::vector<uint32_t>& ordinals, uint64_t arena_generation) override;
  void Granted(const std::vector<BlockGrant>& grants) override;
  void Staged() override;
  void Durable() override;
  void Committed(const CheckpointInfo& checkpoint) override;
  void Failed(const Failure& failure) override;

 private:
  absl::Status OnMessage();
  void Refuse(const absl::Status& status);
  absl::Status OnPlanComplete();
  void OnSealed();
  void OnCancelSave();
  void Begin(const SaveOptions& options, std::optional<ResumeState> resume);
  void GiveUp(const absl::Status& why);

  Core& core_;
  const std::string token_;
  std::shared_ptr<SaveCall> self_;  // Until OnDone.

  // Of the reading side: one read at a time.
  v1::SaveRequest request_;
  bool begun_ = false;
  bool planned_ = false;
  v1::SaveBegin begin_;
  std::shared_ptr<RankPlan> plan_ = std::make_shared<RankPlan>();
  PlanSize plan_size_;

  // Of the loop.
  bool gone_ = false;  // The client is, or its stream.
  // The rank has given the save up before it had its attempt: a resumed one waits for its root.
  std::optional<absl::Status> given_up_;
  std::shared_ptr<Attempts::Ticket> ticket_ = std::make_shared<Attempts::Ticket>();
  std::string root_path_;

  SendQueue<SaveCall, v1::SaveReply> sender_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_SAVE_CALL_H_
