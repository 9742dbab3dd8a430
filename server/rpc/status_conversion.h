// The one translation between absl::Status and grpc::Status: same code numbers, same text.
#ifndef CKPTD_SERVER_RPC_STATUS_CONVERSION_H_
#define CKPTD_SERVER_RPC_STATUS_CONVERSION_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "absl/status/status.h"

namespace ckptd {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_STATUS_CONVERSION_H_
