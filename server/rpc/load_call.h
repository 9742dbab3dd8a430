// LoadCall is one Load stream. See CheckpointService.Load for the protocol.
#ifndef CKPTD_SERVER_RPC_LOAD_CALL_H_
#define CKPTD_SERVER_RPC_LOAD_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/ckptd/v1/checkpoint.pb.h"
#include "server/core.h"
#include "server/rpc/requests.h"
#include "server/rpc/send_queue.h"

namespace ckptd {

// gRPC's reactor. Owns itself until OnDone; the control loop holds it as a LoadStream.
class LoadCall : public grpc::ServerBidiReactor<v1::LoadRequest, v1::LoadReply>,
                 public LoadStream,
                 public std::enable_shared_from_this<LoadCall> {
 public:
  static LoadCall* Start(Core& core, std::string token);

  LoadCall(Core& core, std::string token);

  // Reactor, on gRPC's threads.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override { sender_.WriteDone(ok); }
  void OnCancel() override;
  void OnDone() override;

  // LoadStream, on the loop.
  void Planned(const CheckpointInfo& checkpoint, const LoadPlan& plan, uint64_t load_id,
               uint64_t window_block_bytes, uint32_t window_blocks) override;
  void Filled(uint32_t window_block, const LoadRead& read) override;
  void Done(uint64_t memory_bytes, uint64_t disk_bytes) override;
  void Failed(const Failure& failure) override;

 private:
  absl::Status OnMessage();
  void Begin(LoadRequest request);

  Core& core_;
  const std::string token_;
  std::shared_ptr<LoadCall> self_;  // Until OnDone.

  // Of the reading side.
  v1::LoadRequest request_;
  bool begun_ = false;
  bool wanted_ = false;
  v1::LoadBegin begin_;
  std::vector<Want> wants_;
  PlanSize wants_size_;

  // Of the loop.
  bool gone_ = false;  // The client is.
  uint64_t load_id_ = 0;
  std::string root_path_;
  std::string root_label_;

  SendQueue<LoadCall, v1::LoadReply> sender_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_LOAD_CALL_H_
