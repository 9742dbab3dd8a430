// CheckpointService: the trainers' calls (proto/ckptd/v1/checkpoint.proto). Checks and posts;
// decides nothing.
#ifndef CKPTD_SERVER_RPC_CHECKPOINT_SERVICE_H_
#define CKPTD_SERVER_RPC_CHECKPOINT_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "server/core.h"

namespace ckptd {

class CheckpointService : public v1::CheckpointService::CallbackService {
 public:
  explicit CheckpointService(Core& core) : core_(core) {}  // `core` outlives the server.

  grpc::ServerBidiReactor<v1::SaveRequest, v1::SaveReply>* Save(
      grpc::CallbackServerContext* context) override;
  grpc::ServerReadReactor<v1::PrewarmRequest>* Prewarm(grpc::CallbackServerContext* context,
                                                       v1::PrewarmReply* reply) override;
  grpc::ServerBidiReactor<v1::LoadRequest, v1::LoadReply>* Load(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* CloseSession(grpc::CallbackServerContext* context,
                                         const v1::CloseSessionRequest* request,
                                         v1::CloseSessionReply* reply) override;
  grpc::ServerUnaryReactor* Latest(grpc::CallbackServerContext* context,
                                   const v1::LatestRequest* request,
                                   v1::Checkpoint* reply) override;
  grpc::ServerWriteReactor<v1::DescribeReply>* Describe(
      grpc::CallbackServerContext* context, const v1::DescribeRequest* request) override;
  grpc::ServerUnaryReactor* Wait(grpc::CallbackServerContext* context,
                                 const v1::WaitRequest* request, v1::Attempt* reply) override;

 private:
  Core& core_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_CHECKPOINT_SERVICE_H_
