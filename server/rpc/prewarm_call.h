// PrewarmCall is one Prewarm call: the plan comes in, the arena is sized and touched, the reply
// goes out when it is.
#ifndef CKPTD_SERVER_RPC_PREWARM_CALL_H_
#define CKPTD_SERVER_RPC_PREWARM_CALL_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/ckptd/v1/checkpoint.pb.h"
#include "server/core.h"
#include "server/rpc/requests.h"

namespace ckptd {

// gRPC's reactor. Owns itself until OnDone.
class PrewarmCall : public grpc::ServerReadReactor<v1::PrewarmRequest>,
                    public std::enable_shared_from_this<PrewarmCall> {
 public:
  static PrewarmCall* Start(Core& core, std::string token, v1::PrewarmReply* reply);

  PrewarmCall(Core& core, std::string token, v1::PrewarmReply* reply);

  void OnReadDone(bool ok) override;
  void OnDone() override;

 private:
  void Obtain(uint64_t image_bytes);
  void AnswerWhenTouched(std::shared_ptr<Arena> arena);
  void Answer(const absl::Status& status);

  Core& core_;
  const std::string token_;
  v1::PrewarmReply* const reply_;
  std::shared_ptr<PrewarmCall> self_;  // Until OnDone.
  v1::PrewarmRequest request_;
  RankPlan plan_;
  PlanSize plan_size_;
  bool complete_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_PREWARM_CALL_H_
