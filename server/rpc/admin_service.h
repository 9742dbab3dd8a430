// AdminService: the operators' calls (proto/ckptd/v1/admin.proto).
//
// Status comes from the control loop alone; everything else is read from the root by one of its
// workers.
#ifndef CKPTD_SERVER_RPC_ADMIN_SERVICE_H_
#define CKPTD_SERVER_RPC_ADMIN_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/ckptd/v1/admin.grpc.pb.h"
#include "server/core.h"

namespace ckptd {

class AdminService : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(Core& core) : core_(core) {}  // `core` outlives the server.

  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext* context,
                                 const v1::ListRequest* request, v1::ListReply* reply) override;
  grpc::ServerUnaryReactor* Show(grpc::CallbackServerContext* context,
                                 const v1::ShowRequest* request, v1::ShowReply* reply) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const v1::StatusRequest* request,
                                   v1::StatusReply* reply) override;
  grpc::ServerWriteReactor<v1::VerifyReply>* Verify(grpc::CallbackServerContext* context,
                                                    const v1::VerifyRequest* request) override;
  grpc::ServerUnaryReactor* Delete(grpc::CallbackServerContext* context,
                                   const v1::DeleteRequest* request,
                                   v1::DeleteReply* reply) override;
  grpc::ServerUnaryReactor* Version(grpc::CallbackServerContext* context,
                                    const v1::VersionRequest* request,
                                    v1::VersionReply* reply) override;

 private:
  Core& core_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_ADMIN_SERVICE_H_
