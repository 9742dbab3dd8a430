// The text of an error as clients get it: whatever names it quotes, it must not keep the answer
// from arriving.
#ifndef CKPTD_SERVER_RPC_ERROR_TEXT_H_
#define CKPTD_SERVER_RPC_ERROR_TEXT_H_

#include <string>

#include "absl/status/status.h"

namespace ckptd {

// UTF-8 without NUL: escaped if the message is not. Cut off where it does not fit a gRPC trailer.
std::string ErrorText(const absl::Status& status);

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_ERROR_TEXT_H_
