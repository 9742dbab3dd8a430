// RawRank speaks the protocol of a client by hand, so that a test can say what no client says.
#ifndef CKPTD_TESTS_E2E_RAW_RANK_H_
#define CKPTD_TESTS_E2E_RAW_RANK_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "proto/ckptd/v1/side.pb.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

class RawRank {
 public:
  struct Options {
    std::string socket;
    std::string job = "job";
    std::string incarnation = "1";
    uint32_t rank = 0;
    uint32_t world_size = 1;
    uint32_t protocol = 0;  // 0: the one of this build.
  };
  // Does not connect yet.
  explicit RawRank(Options options);

  // Connects the side socket and says hello. The daemon's reply; empty if there was none.
  v1::SideReply Hello();
  void CloseSide() { side_ = UniqueFd(); }

  const std::string& token() const { return token_; }
  v1::CheckpointService::Stub& stub() { return *stub_; }

  // A call's context with that token.
  static std::unique_ptr<grpc::ClientContext> Context(const std::string& token);

  // One save with the token given: begins with the plan, and reads until the stream ends or
  // `staging` is true and blocks are granted. The stream stays open in that case.
  struct SaveEnd {
    grpc::Status status;
    v1::Failure failure;  // If there was one.
    bool granted = false;
  };
  SaveEnd Save(const std::string& token, const std::string& id, uint32_t rank,
               const v1::PlanPart& plan, bool staging);

  // The end of a save that was left staging.
  SaveEnd AwaitSaveEnd();

 private:
  using Stream = grpc::ClientReaderWriter<v1::SaveRequest, v1::SaveReply>;

  const Options options_;
  UniqueFd side_;
  std::string token_;
  std::unique_ptr<v1::CheckpointService::Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
};

// A float32 tensor of 16 x 16 with these chunks: {first row, rows}.
v1::PlanPart PlanOf(const std::string& name,
                    const std::vector<std::pair<uint64_t, uint64_t>>& rows);

}  // namespace ckptd

#endif  // CKPTD_TESTS_E2E_RAW_RANK_H_
