// Waiter answers one Wait call: when the attempt of a checkpoint id reaches a state, or has failed,
// or is found ended on disk.
#ifndef CKPTD_SERVER_RPC_WAITER_H_
#define CKPTD_SERVER_RPC_WAITER_H_

#include <grpcpp/grpcpp.h>

#include <memory>

#include "proto/ckptd/v1/checkpoint.pb.h"
#include "server/core.h"

namespace ckptd {

// Deletes itself in OnDone.
class Waiter : public grpc::ServerUnaryReactor {
 public:
  Waiter(Core& core, v1::WaitRequest request, v1::Attempt* reply);

  void Start();
  void OnCancel() override;  // Also at the call's deadline.
  void OnDone() override { delete this; }

 private:
  // On the loop. Shared with what may outlive the call; `waiter` is null once it is answered.
  struct Link {
    Waiter* waiter;
  };

  void Look();
  bool Reached(const Attempt& attempt) const;
  void LookOnDisk();
  void Answer(absl::StatusOr<v1::Attempt> answer);

  Core& core_;
  const v1::WaitRequest request_;
  v1::Attempt* const reply_;
  std::shared_ptr<Root> root_;
  std::shared_ptr<Link> link_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_WAITER_H_
