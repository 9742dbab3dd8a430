// The one translation between absl::Status and grpc::Status: same code numbers, same text.
#ifndef CKPTD_SERVER_RPC_STATUS_CONVERSION_H_
#define CKPTD_SERVER_RPC_STATUS_CONVERSION_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "server/rpc/error_text.h"

namespace ckptd {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), ErrorText(status));
}

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_STATUS_CONVERSION_H_
