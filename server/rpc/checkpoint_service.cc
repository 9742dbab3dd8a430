#include "server/rpc/checkpoint_service.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/folder_queries.h"
#include "proto/ckptd/version.h"
#include "server/rpc/list_writer.h"
#include "server/rpc/load_call.h"
#include "server/rpc/prewarm_call.h"
#include "server/rpc/save_call.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/status_reply.h"
#include "server/rpc/waiter.h"

namespace ckptd {
namespace {

std::string Token(const grpc::CallbackServerContext& context) {
  auto found = context.client_metadata().find(kTokenMetadataKey);
  if (found == context.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

}  // namespace

grpc::ServerBidiReactor<v1::SaveRequest, v1::SaveReply>* CheckpointService::Save(
    grpc::CallbackServerContext* context) {
  return SaveCall::Start(core_, Token(*context));
}

grpc::ServerReadReactor<v1::PrewarmRequest>* CheckpointService::Prewarm(
    grpc::CallbackServerContext* context, v1::PrewarmReply* reply) {
  return PrewarmCall::Start(core_, Token(*context), reply);
}

grpc::ServerBidiReactor<v1::LoadRequest, v1::LoadReply>* CheckpointService::Load(
    grpc::CallbackServerContext* context) {
  return LoadCall::Start(core_, Token(*context));
}

grpc::ServerUnaryReactor* CheckpointService::CloseSession(grpc::CallbackServerContext* context,
                                                          const v1::CloseSessionRequest*,
                                                          v1::CloseSessionReply*) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  core_.loop().Post([this, reactor, token = Token(*context)] {
    absl::Status status = core_.sessions().Find(token).status();
    if (status.ok()) core_.sessions().Close(token);
    reactor->Finish(ToGrpc(status));
  });
  return reactor;
}

grpc::ServerUnaryReactor* CheckpointService::Latest(grpc::CallbackServerContext* context,
                                                    const v1::LatestRequest* request,
                                                    v1::Checkpoint* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request->root());
  if (!root.ok()) {
    reactor->Finish(ToGrpc(root.status()));
    return reactor;
  }
  (*root)->readers().Post([root = *root, request, reply, reactor] {
    absl::StatusOr<v1::Checkpoint> latest =
        FolderQueries(root->disk(), root->label(), root->path()).Latest(request->job());
    if (latest.ok()) *reply = *std::move(latest);
    reactor->Finish(ToGrpc(latest.status()));
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::DescribeReply>* CheckpointService::Describe(
    grpc::CallbackServerContext*, const v1::DescribeRequest* request) {
  auto writer = ListWriter<v1::DescribeReply>::Make();
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request->root());
  if (!root.ok()) {
    writer->sender().FinishWhenSent(ToGrpc(root.status()));
    return writer.get();
  }
  (*root)->readers().Post([root = *root, request = *request, writer] {
    auto parts = FolderQueries(root->disk(), root->label(), root->path())
                     .Describe(request.job(), request.checkpoint_id(), request.tensor_glob());
    if (parts.ok()) {
      for (v1::DescribeReply& part : *parts) writer->sender().Send(std::move(part));
    }
    writer->sender().FinishWhenSent(ToGrpc(parts.status()));
  });
  return writer.get();
}

grpc::ServerUnaryReactor* CheckpointService::Wait(grpc::CallbackServerContext*,
                                                  const v1::WaitRequest* request,
                                                  v1::Attempt* reply) {
  auto* waiter = new Waiter(core_, *request, reply);  // Deletes itself.
  waiter->Start();
  return waiter;
}

}  // namespace ckptd
