#include "client/cli/daemon_source.h"

#include <errno.h>
#include <grpcpp/grpcpp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/default_paths.h"
#include "proto/ckptd/v1/admin.grpc.pb.h"
#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "proto/ckptd/version.h"
#include "proto/grpc/health/v1/health.grpc.pb.h"
#include "storage/base/status.h"
#include "storage/base/unique_fd.h"

namespace ckptd {
namespace {

// gRPC says little about why it cannot connect; the socket itself says it exactly.
absl::Status Probe(const DaemonSource::Options& options) {
  RETURN_IF_ERROR(CheckSocketPath(options.socket));
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, options.socket.data(), options.socket.size());
  if (::connect(fd.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address) == 0) {
    return absl::OkStatus();
  }
  absl::Status why = ErrnoStatus(
      errno, absl::StrCat("no daemon at ", options.socket, " (", options.socket_origin, ")"));
  if (absl::IsPermissionDenied(why)) return why;
  return absl::UnavailableError(why.message());
}

void SetDeadline(grpc::ClientContext& context, absl::Duration timeout) {
  if (timeout == absl::InfiniteDuration()) return;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
}

}  // namespace

struct DaemonSource::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : admin(v1::AdminService::NewStub(channel)),
        checkpoint(v1::CheckpointService::NewStub(channel)),
        health(grpc::health::v1::Health::NewStub(channel)) {}

  std::unique_ptr<v1::AdminService::Stub> admin;
  std::unique_ptr<v1::CheckpointService::Stub> checkpoint;
  std::unique_ptr<grpc::health::v1::Health::Stub> health;
};

namespace {

absl::Status FromGrpc(const grpc::Status& status, const DaemonSource::Options& options) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::CANCELLED) {  // Not by us.
    return absl::UnavailableError(
        absl::StrCat("the daemon at ", options.socket, " ended before it answered"));
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    message = absl::StrCat("the daemon at ", options.socket, ": ", message);
  } else if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    message = absl::StrCat("the daemon at ", options.socket, " did not answer in time: ", message);
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), message);
}

// One call with one answer.
template <typename Reply, typename Stub, typename Method, typename Request>
absl::StatusOr<Reply> Call(Stub& stub, Method method, const Request& request,
                           const DaemonSource::Options& options) {
  grpc::ClientContext context;
  SetDeadline(context, options.timeout);
  Reply reply;
  RETURN_IF_ERROR(FromGrpc((stub.*method)(&context, request, &reply), options));
  return reply;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DaemonSource>> DaemonSource::Connect(const Options& options) {
  RETURN_IF_ERROR(Probe(options));
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // Would be asked even for a Unix socket.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A new source tries at once.
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  std::shared_ptr<grpc::Channel> channel = grpc::CreateCustomChannel(
      absl::StrCat("unix:", options.socket), grpc::InsecureChannelCredentials(), arguments);
  return std::unique_ptr<DaemonSource>(new DaemonSource(options, std::make_unique<Stubs>(channel)));
}

DaemonSource::DaemonSource(Options options, std::unique_ptr<Stubs> stubs)
    : options_(std::move(options)), stubs_(std::move(stubs)) {}

DaemonSource::~DaemonSource() = default;

absl::StatusOr<v1::ListReply> DaemonSource::List(const std::string& job, bool failed) {
  v1::ListRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  request.set_failed(failed);
  return Call<v1::ListReply>(*stubs_->admin, &v1::AdminService::Stub::List, request, options_);
}

absl::StatusOr<v1::Checkpoint> DaemonSource::Latest(const std::string& job) {
  v1::LatestRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  return Call<v1::Checkpoint>(*stubs_->checkpoint, &v1::CheckpointService::Stub::Latest, request,
                              options_);
}

absl::StatusOr<v1::ShowReply> DaemonSource::Show(const std::string& job, const std::string& name) {
  v1::ShowRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  request.set_name(name);
  return Call<v1::ShowReply>(*stubs_->admin, &v1::AdminService::Stub::Show, request, options_);
}

absl::StatusOr<v1::DescribeReply> DaemonSource::Describe(const std::string& job,
                                                         const std::string& id,
                                                         const std::string& glob) {
  grpc::ClientContext context;
  SetDeadline(context, options_.timeout);
  v1::DescribeRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  request.set_checkpoint_id(id);
  request.set_tensor_glob(glob);
  auto reader = stubs_->checkpoint->Describe(&context, request);
  v1::DescribeReply whole;
  v1::DescribeReply part;
  while (reader->Read(&part)) whole.MergeFrom(part);
  RETURN_IF_ERROR(FromGrpc(reader->Finish(), options_));
  return whole;
}

absl::StatusOr<std::vector<v1::VerifyReply>> DaemonSource::Verify(
    const std::string& job, const std::vector<std::string>& ids) {
  grpc::ClientContext context;
  SetDeadline(context, options_.verify_timeout);
  v1::VerifyRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  request.mutable_ids()->Add(ids.begin(), ids.end());
  auto reader = stubs_->admin->Verify(&context, request);
  std::vector<v1::VerifyReply> replies;
  v1::VerifyReply reply;
  while (reader->Read(&reply)) replies.push_back(reply);
  RETURN_IF_ERROR(FromGrpc(reader->Finish(), options_));
  return replies;
}

absl::StatusOr<v1::StatusReply> DaemonSource::Status() {
  return Call<v1::StatusReply>(*stubs_->admin, &v1::AdminService::Stub::Status, v1::StatusRequest(),
                               options_);
}

absl::StatusOr<v1::VersionReply> DaemonSource::Version() {
  return Call<v1::VersionReply>(*stubs_->admin, &v1::AdminService::Stub::Version,
                                v1::VersionRequest(), options_);
}

absl::StatusOr<v1::Attempt> DaemonSource::Wait(const std::string& job, const std::string& id,
                                               const std::string& state) {
  v1::WaitRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  request.set_checkpoint_id(id);
  request.set_state(state);
  return Call<v1::Attempt>(*stubs_->checkpoint, &v1::CheckpointService::Stub::Wait, request,
                           options_);
}

absl::StatusOr<v1::DeleteReply> DaemonSource::Delete(const std::string& job,
                                                     const std::vector<std::string>& ids,
                                                     bool allow_newest) {
  v1::DeleteRequest request;
  request.set_job(job);
  request.set_root(options_.root);
  request.mutable_ids()->Add(ids.begin(), ids.end());
  request.set_allow_newest(allow_newest);
  return Call<v1::DeleteReply>(*stubs_->admin, &v1::AdminService::Stub::Delete, request, options_);
}

absl::StatusOr<bool> DaemonSource::Serving() {
  using grpc::health::v1::HealthCheckResponse;
  absl::StatusOr<HealthCheckResponse> reply =
      Call<HealthCheckResponse>(*stubs_->health, &grpc::health::v1::Health::Stub::Check,
                                grpc::health::v1::HealthCheckRequest(), options_);
  if (!reply.ok()) return reply.status();
  return reply->status() == HealthCheckResponse::SERVING;
}

}  // namespace ckptd
