// What the control loop knows, as messages. To be called on the loop.
#ifndef CKPTD_SERVER_RPC_STATUS_REPLY_H_
#define CKPTD_SERVER_RPC_STATUS_REPLY_H_

#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/types.pb.h"
#include "server/core.h"

namespace ckptd {

v1::Attempt ToProto(const Attempt& attempt);

// A committed checkpoint, as the attempt that made it: for Wait.
v1::Attempt AttemptOf(const v1::Checkpoint& checkpoint);

v1::StatusReply MakeStatus(Core& core);

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_STATUS_REPLY_H_
