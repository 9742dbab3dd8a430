#include "client/cpp/client.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <utility>

#include "client/cpp/environment.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/rpc_channel.h"
#include "client/cpp/wire.h"
#include "proto/ckptd/v1/admin.grpc.pb.h"
#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "storage/base/status.h"

namespace ckptd::inline client {

namespace {

// The least that a candidate gets after an earlier one has used the time up.
constexpr absl::Duration kConnectMin = absl::Milliseconds(100);

}  // namespace

struct Client::Parts {
  ForkGuard guard;
  absl::Duration timeout;
  std::string socket;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoints;
  std::unique_ptr<v1::AdminService::Stub> admin;
};

Client::Client(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Client::~Client() {
  if (!parts_->guard.Check().ok()) ForkGuard::Leak(std::shared_ptr<Parts>(std::move(parts_)));
}

const std::string& Client::socket() const { return parts_->socket; }

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  RETURN_IF_ERROR(ForkGuard::CheckProcess());
  ASSIGN_OR_RETURN(std::vector<SocketCandidate> candidates,
                   SocketCandidates(options.socket, ProcessVariables(), geteuid()));
  auto parts = std::make_unique<Parts>();
  parts->timeout = options.timeout;
  std::shared_ptr<grpc::Channel> channel;
  RETURN_IF_ERROR(
      TryCandidates(candidates, options.timeout, kConnectMin,
                    [&](const SocketCandidate& candidate, absl::Duration left) -> absl::Status {
                      // Quicker than gRPC, which does not tell why.
                      RETURN_IF_ERROR(ConnectSocket(candidate.path).status());
                      ASSIGN_OR_RETURN(channel, OpenChannel(candidate.path, left));
                      parts->socket = candidate.path;
                      return absl::OkStatus();
                    }));
  parts->guard.AddPeer(parts->socket);
  parts->checkpoints = v1::CheckpointService::NewStub(channel);
  parts->admin = v1::AdminService::NewStub(channel);
  return std::unique_ptr<Client>(new Client(std::move(parts)));
}

absl::StatusOr<CheckpointList> Client::List(const std::string& job, bool failed,
                                            const std::string& root) {
  RETURN_IF_ERROR(parts_->guard.Check());
  grpc::ClientContext context;
  SetDeadline(context, parts_->timeout);
  v1::ListRequest request;
  request.set_job(job);
  request.set_root(root);
  request.set_failed(failed);
  v1::ListReply reply;
  RETURN_IF_ERROR(
      FromGrpc(parts_->admin->List(&context, request, &reply), "List", parts_->timeout));
  CheckpointList list;
  for (const v1::Checkpoint& checkpoint : reply.checkpoints()) {
    list.checkpoints.push_back(FromProto(checkpoint));
  }
  for (const v1::Attempt& attempt : reply.attempts()) list.attempts.push_back(FromProto(attempt));
  return list;
}

absl::StatusOr<std::optional<CheckpointInfo>> Client::Latest(const std::string& job,
                                                             const std::string& root) {
  RETURN_IF_ERROR(parts_->guard.Check());
  grpc::ClientContext context;
  SetDeadline(context, parts_->timeout);
  v1::LatestRequest request;
  request.set_job(job);
  request.set_root(root);
  v1::Checkpoint reply;
  const absl::Status status =
      FromGrpc(parts_->checkpoints->Latest(&context, request, &reply), "Latest", parts_->timeout);
  if (absl::IsNotFound(status)) return std::nullopt;
  RETURN_IF_ERROR(status);
  return FromProto(reply);
}

absl::StatusOr<Description> Client::Describe(const std::string& id, const std::string& job,
                                             const std::string& root) {
  RETURN_IF_ERROR(parts_->guard.Check());
  grpc::ClientContext context;
  SetDeadline(context, parts_->timeout);
  v1::DescribeRequest request;
  request.set_job(job);
  request.set_root(root);
  request.set_checkpoint_id(id);
  std::unique_ptr<grpc::ClientReader<v1::DescribeReply>> reader =
      parts_->checkpoints->Describe(&context, request);
  Description description;
  absl::Status status;
  v1::DescribeReply reply;
  while (reader->Read(&reply)) {
    if (reply.has_checkpoint()) description.checkpoint = FromProto(reply.checkpoint());
    for (const v1::StoredTensor& tensor : reply.tensors()) {
      absl::StatusOr<StoredTensorInfo> info = FromProto(tensor);
      if (info.ok()) description.tensors.push_back(*std::move(info));
      status.Update(info.status());
    }
    for (const v1::ItemEntry& item : reply.items()) description.items.push_back(FromProto(item));
  }
  RETURN_IF_ERROR(FromGrpc(reader->Finish(), "Describe", parts_->timeout));
  RETURN_IF_ERROR(status);
  return description;
}

}  // namespace ckptd::inline client
