#include "server/rpc/admin_service.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/ckptd/folder_queries.h"
#include "proto/ckptd/version.h"
#include "server/rpc/list_writer.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/status_reply.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/commit/delete_checkpoint.h"
#include "storage/commit/runner.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

FolderQueries Queries(Root& root) { return FolderQueries(root.disk(), root.label(), root.path()); }

// The attempts that the loop knows replace what their folders alone say.
void PutLive(const std::map<std::string, v1::Attempt>& live, v1::ListReply& reply) {
  google::protobuf::RepeatedPtrField<v1::Attempt> attempts;
  for (const v1::Attempt& attempt : reply.attempts()) {
    if (!live.contains(attempt.job() + "/" + attempt.attempt())) *attempts.Add() = attempt;
  }
  for (const auto& [key, attempt] : live) *attempts.Add() = attempt;
  *reply.mutable_attempts() = std::move(attempts);
}

// Moves it to the trash, which the loop is told of.
absl::Status DeleteOne(const std::shared_ptr<Root>& root, const std::string& job,
                       const std::string& id, bool allow_newest, Core& core) {
  if (!root->healthy()) {
    return absl::UnavailableError(absl::StrCat("root \"", root->label(), "\" (", root->path(),
                                               ") deletes nothing: ", root->unhealthy_reason()));
  }
  DeleteCheckpoint machine({.job = job, .checkpoint_id = id, .allow_newest = allow_newest});
  ActionRunner(root->disk(), nullptr).RunToEnd(machine);
  if (!machine.trashed().empty()) {
    core.loop().Post([&core, root, job, trashed = machine.trashed()] {
      core.tidier().trash().Moved(root, job, trashed);
    });
  }
  if (machine.result().ok()) {
    core.logger().Info("checkpoint.deleted", {{"job", job},
                                              {"id", id},
                                              {"attempt", ToString(machine.result()->attempt)},
                                              {"root", root->label()},
                                              {"why", "asked for"}});
  }
  if (!absl::IsNotFound(machine.result().status())) return machine.result().status();
  // Perhaps it is in flight, or just being replaced.
  absl::StatusOr<CheckpointInfo> there = FindCheckpoint(root->disk(), job, id);
  if (!there.ok()) return there.status();
  return absl::AbortedError(
      absl::StrCat("checkpoint \"", id, "\" of job \"", job, "\" was replaced meanwhile"));
}

absl::Status DeleteAll(const std::shared_ptr<Root>& root, const v1::DeleteRequest& request,
                       v1::DeleteReply& reply, Core& core) {
  ASSIGN_OR_RETURN(std::string job, Queries(*root).OneJob(request.job()));
  std::set<std::string> seen;
  for (const std::string& id : request.ids()) {
    if (!seen.insert(id).second) continue;
    absl::Status why = DeleteOne(root, job, id, request.allow_newest(), core);
    if (!why.ok()) {
      if (reply.deleted().empty()) return why;
      return absl::Status(
          why.code(),
          absl::StrCat(why.message(), "; deleted before: ", absl::StrJoin(reply.deleted(), ", ")));
    }
    reply.add_deleted(id);
  }
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::List(grpc::CallbackServerContext* context,
                                             const v1::ListRequest* request, v1::ListReply* reply) {
  // In flight first, then the folders: what ends in between is then found in its folder.
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  core_.loop().Post([this, request, reply, reactor] {
    absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request->root());
    if (!root.ok()) return reactor->Finish(ToGrpc(root.status()));
    std::map<std::string, v1::Attempt> live;
    for (const std::shared_ptr<Attempt>& attempt : core_.attempts().in_flight()) {
      if (&attempt->root() != root->get()) continue;
      if (!request->job().empty() && attempt->record().job != request->job()) continue;
      v1::Attempt message = ToProto(*attempt);
      live[message.job() + "/" + message.attempt() +
           (attempt->minted() ? "" : message.checkpoint_id())] = message;
    }
    (*root)->readers().Post([root = *root, request, reply, reactor, live = std::move(live)] {
      absl::StatusOr<v1::ListReply> list = Queries(*root).List(request->job(), request->failed());
      bool nothing_yet = absl::IsNotFound(list.status()) && !live.empty();
      if (list.ok()) *reply = *std::move(list);
      PutLive(live, *reply);
      reactor->Finish(nothing_yet ? grpc::Status::OK : ToGrpc(list.status()));
    });
  });
  return reactor;
}

// A checkpoint as its folder says; an attempt as the loop knows it, if it is in flight.
grpc::ServerUnaryReactor* AdminService::Show(grpc::CallbackServerContext* context,
                                             const v1::ShowRequest* request, v1::ShowReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  core_.loop().Post([this, request, reply, reactor] {
    absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request->root());
    if (!root.ok()) return reactor->Finish(ToGrpc(root.status()));
    std::optional<v1::Attempt> live;
    for (const std::shared_ptr<Attempt>& attempt : core_.attempts().in_flight()) {
      v1::Attempt message = ToProto(*attempt);
      bool asked =
          message.attempt() == request->name() || message.checkpoint_id() == request->name();
      bool job = request->job().empty() || message.job() == request->job();
      if (asked && job && &attempt->root() == root->get()) live = std::move(message);
    }
    (*root)->readers().Post([root = *root, request, reply, reactor,
                             live = std::move(live)]() mutable {
      absl::StatusOr<v1::ShowReply> found = Queries(*root).Show(request->job(), request->name());
      if (found.ok()) *reply = *std::move(found);
      if (!live || reply->has_checkpoint()) return reactor->Finish(ToGrpc(found.status()));
      if (reply->attempt().attempt() == live->attempt()) {
        *live->mutable_files() = reply->attempt().files();
      }
      *reply->mutable_attempt() = *live;
      reactor->Finish(grpc::Status::OK);
    });
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Status(grpc::CallbackServerContext* context,
                                               const v1::StatusRequest*, v1::StatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  core_.loop().Post([this, reply, reactor] {
    *reply = MakeStatus(core_);
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

grpc::ServerWriteReactor<v1::VerifyReply>* AdminService::Verify(grpc::CallbackServerContext*,
                                                                const v1::VerifyRequest* request) {
  auto writer = ListWriter<v1::VerifyReply>::Make();
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request->root());
  if (!root.ok()) {
    writer->sender().FinishWhenSent(ToGrpc(root.status()));
    return writer.get();
  }
  (*root)->readers().Post([this, root = *root, request = *request, writer] {
    auto each = [&](v1::VerifyReply reply) {
      if (!reply.ok())
        core_.logger().Error("checkpoint.corrupt", {{"job", reply.job()}, {"id", reply.id()}});
      writer->sender().Send(std::move(reply));
    };
    auto warn = [&](std::string text) {
      core_.logger().Warning("verdict.lost", {{"error", text}});
    };
    absl::Status status = Queries(*root).Verify(
        request.job(), {request.ids().begin(), request.ids().end()}, each, warn);
    writer->sender().FinishWhenSent(ToGrpc(status));
  });
  return writer.get();
}

grpc::ServerUnaryReactor* AdminService::Delete(grpc::CallbackServerContext* context,
                                               const v1::DeleteRequest* request,
                                               v1::DeleteReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request->root());
  if (!root.ok()) {
    reactor->Finish(ToGrpc(root.status()));
    return reactor;
  }
  (*root)->readers().Post([this, root = *root, request, reply, reactor] {
    reactor->Finish(ToGrpc(DeleteAll(root, *request, *reply, core_)));
  });
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Version(grpc::CallbackServerContext* context,
                                                const v1::VersionRequest*,
                                                v1::VersionReply* reply) {
  reply->set_version(kVersion);
  reply->set_protocol(kProtocolVersion);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ckptd
