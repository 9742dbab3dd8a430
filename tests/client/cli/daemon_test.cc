// ckptctl with a daemon: the exit code of every answer. The daemon is a stand-in that says what it
// is told to.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/exit_code.h"
#include "gmock/gmock.h"
#include "grpcpp/health_check_service_interface.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/ckptd/v1/admin.grpc.pb.h"
#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "storage/base/unique_fd.h"
#include "tests/client/cli/run_tool.h"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

// What the stand-in answers: one status for all calls, and the parts that tests look at.
struct Script {
  grpc::Status status;
  v1::Attempt attempt;
  bool verified = true;

  void See(const std::string& request) {
    std::lock_guard lock(mutex);
    seen = request;
  }
  std::string Seen() {
    std::lock_guard lock(mutex);
    return seen;
  }

  std::mutex mutex;
  std::string seen;  // The last request, by `mutex`.
};

class Admin : public v1::AdminService::Service {
 public:
  explicit Admin(Script& script) : script_(script) {}

  grpc::Status List(grpc::ServerContext*, const v1::ListRequest* request,
                    v1::ListReply* reply) override {
    script_.See(request->ShortDebugString());
    reply->add_checkpoints()->set_id("step-1");
    return script_.status;
  }
  grpc::Status Show(grpc::ServerContext*, const v1::ShowRequest* request,
                    v1::ShowReply* reply) override {
    script_.See(request->ShortDebugString());
    *reply->mutable_attempt() = script_.attempt;
    return script_.status;
  }
  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusReply* reply) override {
    reply->mutable_daemon()->set_node("a");
    *reply->add_attempts() = script_.attempt;
    return script_.status;
  }
  grpc::Status Verify(grpc::ServerContext*, const v1::VerifyRequest* request,
                      grpc::ServerWriter<v1::VerifyReply>* writer) override {
    script_.See(request->ShortDebugString());
    v1::VerifyReply reply;
    reply.set_id("step-1");
    reply.set_ok(script_.verified);
    writer->Write(reply);
    return script_.status;
  }
  grpc::Status Delete(grpc::ServerContext*, const v1::DeleteRequest* request,
                      v1::DeleteReply* reply) override {
    script_.See(request->ShortDebugString());
    for (const std::string& id : request->ids()) reply->add_deleted(id);
    return script_.status;
  }
  grpc::Status Version(grpc::ServerContext*, const v1::VersionRequest*,
                       v1::VersionReply* reply) override {
    reply->set_version("9.9");
    return script_.status;
  }

 private:
  Script& script_;
};

class Checkpoints : public v1::CheckpointService::Service {
 public:
  explicit Checkpoints(Script& script) : script_(script) {}

  grpc::Status Latest(grpc::ServerContext*, const v1::LatestRequest* request,
                      v1::Checkpoint* reply) override {
    script_.See(request->ShortDebugString());
    reply->set_id("step-1");
    return script_.status;
  }
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest* request,
                        grpc::ServerWriter<v1::DescribeReply>* writer) override {
    script_.See(request->ShortDebugString());
    for (const char* name : {"a", "b"}) {
      v1::DescribeReply part;
      part.add_tensors()->set_name(name);
      writer->Write(part);
    }
    return script_.status;
  }
  grpc::Status Wait(grpc::ServerContext* context, const v1::WaitRequest* request,
                    v1::Attempt* reply) override {
    script_.See(request->ShortDebugString());
    while (script_.attempt.state() == "staging" && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    *reply = script_.attempt;
    return script_.status;
  }

 private:
  Script& script_;
};

class Daemon : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ckptd-tool-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    socket_ = folder_ + "/s";
    Listen();
  }
  void Listen() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket_, grpc::InsecureServerCredentials());
    builder.RegisterService(&admin_);
    builder.RegisterService(&checkpoints_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void TearDown() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  ToolResult Tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--socket", socket_});
    return RunTool(arguments);
  }

  // The exit code of a call that the daemon answers so.
  int ExitFor(grpc::StatusCode code, const std::vector<std::string>& arguments) {
    script_.status = grpc::Status(code, "because");
    ToolResult result = Tool(arguments);
    EXPECT_THAT(result.err, HasSubstr("because"));
    return result.exit_code;
  }

  Script script_;
  Admin admin_{script_};
  Checkpoints checkpoints_{script_};
  std::string folder_;
  std::string socket_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(Daemon, GoodAnswersAreZero) {
  script_.attempt.set_state("committed");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"list"},
                                                    {"latest"},
                                                    {"show", "step-1"},
                                                    {"describe", "step-1"},
                                                    {"verify"},
                                                    {"status"},
                                                    {"wait", "step-1"},
                                                    {"delete", "step-1", "--yes"},
                                                    {"health"},
                                                    {"version"}}) {
    ToolResult result = Tool(arguments);
    EXPECT_EQ(result.exit_code, kExitOk) << arguments[0] << ": " << result.err;
    EXPECT_NE(result.out, "") << arguments[0];
    std::vector<std::string> json = arguments;
    json.insert(json.end(), {"-o", "json"});
    EXPECT_FALSE(Json::parse(Tool(json).out, nullptr, false).is_discarded()) << arguments[0];
  }
}

TEST_F(Daemon, RequestsSayWhatWasAsked) {
  Tool({"--job", "j", "list", "--all"});
  EXPECT_EQ(script_.Seen(), "job: \"j\" failed: true");
  Tool({"--root-label", "big", "list"});
  EXPECT_EQ(script_.Seen(), "root: \"big\"");
  Tool({"--job", "j", "describe", "x", "--tensor", "w*"});
  EXPECT_EQ(script_.Seen(), "job: \"j\" checkpoint_id: \"x\" tensor_glob: \"w*\"");
  Tool({"verify", "x", "y"});
  EXPECT_EQ(script_.Seen(), "ids: \"x\" ids: \"y\"");
  Tool({"delete", "x", "--yes", "--allow-newest"});
  EXPECT_EQ(script_.Seen(), "ids: \"x\" allow_newest: true");
  script_.attempt.set_state("durable");
  Tool({"wait", "x", "--for", "durable"});
  EXPECT_EQ(script_.Seen(), "checkpoint_id: \"x\" state: \"durable\"");
  Tool({"--root-label", "big", "wait", "x"});
  EXPECT_EQ(script_.Seen(), "checkpoint_id: \"x\" state: \"committed\" root: \"big\"");
}

TEST_F(Daemon, EachCodeHasItsExitCode) {
  EXPECT_EQ(ExitFor(grpc::StatusCode::INVALID_ARGUMENT, {"latest"}), kExitUsage);
  EXPECT_EQ(ExitFor(grpc::StatusCode::NOT_FOUND, {"latest"}), kExitNothingThere);
  EXPECT_EQ(ExitFor(grpc::StatusCode::UNAVAILABLE, {"list"}), kExitUnreachable);
  EXPECT_EQ(ExitFor(grpc::StatusCode::PERMISSION_DENIED, {"status"}), kExitPermission);
  EXPECT_EQ(ExitFor(grpc::StatusCode::DATA_LOSS, {"describe", "x"}), kExitIntegrity);
  EXPECT_EQ(ExitFor(grpc::StatusCode::FAILED_PRECONDITION, {"latest"}), kExitNotCommitted);
  EXPECT_EQ(ExitFor(grpc::StatusCode::DEADLINE_EXCEEDED, {"wait", "x"}), kExitTimeout);
  EXPECT_EQ(ExitFor(grpc::StatusCode::INTERNAL, {"show", "x"}), kExitFailed);
  EXPECT_EQ(ExitFor(grpc::StatusCode::FAILED_PRECONDITION, {"delete", "x", "--yes"}), kExitHeld);
  EXPECT_EQ(ExitFor(grpc::StatusCode::NOT_FOUND, {"verify", "x"}), kExitNothingThere);
}

TEST_F(Daemon, AFailedWaitShowsTheAttemptAndIsSeven) {
  script_.attempt.set_state("failed");
  script_.attempt.mutable_error()->set_message("process 17 died");
  script_.attempt.mutable_error()->set_rank(1);
  ToolResult result = Tool({"wait", "step-1", "-o", "json"});
  EXPECT_EQ(result.exit_code, kExitNotCommitted);
  EXPECT_EQ(Json::parse(result.out)["state"], "failed");
  Json error = Json::parse(LastLine(result.err));
  EXPECT_EQ(error["exit"], kExitNotCommitted);
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("rank 1: process 17 died"));
}

TEST_F(Daemon, AWaitEndsWithItsTimeout) {
  script_.attempt.set_state("staging");
  script_.attempt.set_checkpoint_id("step-1");
  script_.attempt.set_planned_bytes(100);
  script_.attempt.set_staged_bytes(24);
  ToolResult result = Tool({"--timeout", "100ms", "wait", "step-1", "--for", "durable"});
  EXPECT_EQ(result.exit_code, kExitTimeout);
  EXPECT_THAT(result.err,
              HasSubstr("\"step-1\" was not durable within 100ms: it is staging, staged 24%"));
}

TEST_F(Daemon, AnInterruptedWaitIs130) {
  script_.attempt.set_state("staging");
  RunningTool tool({"--socket", socket_, "-o", "json", "--timeout", "1m", "wait", "step-1"}, {});
  while (script_.Seen().empty()) absl::SleepFor(absl::Milliseconds(5));
  ::kill(tool.pid(), SIGINT);
  ToolResult result = tool.Wait();
  EXPECT_EQ(result.exit_code, kExitInterrupted);
  EXPECT_EQ(Json::parse(LastLine(result.err))["exit"], kExitInterrupted);
}

TEST_F(Daemon, ADamagedCheckpointIsSix) {
  script_.verified = false;
  ToolResult result = Tool({"verify", "-o", "json"});
  EXPECT_EQ(result.exit_code, kExitIntegrity);
  EXPECT_EQ(Json::parse(result.out)["ok"], false);
}

TEST_F(Daemon, DeletingAsksOrNeedsYes) {
  ToolResult result = Tool({"delete", "step-1"});
  EXPECT_EQ(result.exit_code, kExitUsage);
  EXPECT_EQ(script_.Seen(), "");
  EXPECT_THAT(result.err, HasSubstr("--yes"));
}

TEST_F(Daemon, HealthIsZeroOnlyIfServing) {
  server_->GetHealthCheckService()->SetServingStatus(false);
  ToolResult result = Tool({"health", "-o", "json"});
  EXPECT_EQ(result.exit_code, kExitFailed);
  EXPECT_EQ(Json::parse(result.out)["state"], "not_serving");
  RunningTool waiting({"--socket", socket_, "health", "--wait", "1m"}, {});
  server_->GetHealthCheckService()->SetServingStatus(true);
  EXPECT_EQ(waiting.Wait().exit_code, kExitOk);
}

TEST_F(Daemon, AWatchIsOneDocumentALine) {
  RunningTool tool({"--socket", socket_, "status", "--watch", "-o", "json"}, {});
  while (tool.OutSoFar().find('\n') == std::string::npos) absl::SleepFor(absl::Milliseconds(5));
  ::kill(tool.pid(), SIGINT);
  ToolResult result = tool.Wait();
  EXPECT_EQ(result.exit_code, kExitInterrupted);
  EXPECT_EQ(Json::parse(result.out.substr(0, result.out.find('\n')))["daemon"]["node"], "a");
}

TEST_F(Daemon, AWatchOutlivesTheDaemon) {
  auto lines = [](const RunningTool& tool) {
    std::vector<Json> parsed;
    std::istringstream text(tool.OutSoFar());
    for (std::string line; std::getline(text, line) && !text.eof();) {
      parsed.push_back(Json::parse(line));
    }
    return parsed;
  };
  auto await = [&](const RunningTool& tool, size_t from, bool away) {
    for (int i = 0; i < 6000; ++i) {
      std::vector<Json> seen = lines(tool);
      for (size_t at = from; at < seen.size(); ++at) {
        if (seen[at]["away"].is_null() != away) return at;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << "the watch does not see it";
    return from;
  };
  RunningTool tool({"--socket", socket_, "status", "--watch", "-o", "json"}, {});
  size_t at = await(tool, 0, false);
  server_.reset();
  at = await(tool, at, true);
  EXPECT_THAT(lines(tool)[at]["away"].get<std::string>(), HasSubstr(socket_));
  Listen();
  at = await(tool, at, false);
  EXPECT_EQ(lines(tool)[at]["daemon"]["node"], "a");
  ::kill(tool.pid(), SIGINT);
  EXPECT_EQ(tool.Wait().exit_code, kExitInterrupted);
}

TEST_F(Daemon, AWatchEndsIfItIsRefused) {
  script_.status = grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "because");
  ToolResult result = Tool({"status", "--watch"});
  EXPECT_EQ(result.exit_code, kExitPermission);
  EXPECT_THAT(result.err, HasSubstr("because"));
}

TEST_F(Daemon, ASocketThatNobodyAnswersIsFourAndNamed) {
  ToolResult result = RunTool({"status"}, {absl::StrCat("CKPTD_SOCKET=", folder_, "/none")});
  EXPECT_EQ(result.exit_code, kExitUnreachable);
  EXPECT_THAT(result.err, AllOf(HasSubstr(folder_ + "/none"), HasSubstr("$CKPTD_SOCKET"),
                                HasSubstr("No such file")));
  EXPECT_EQ(RunTool({"--socket", folder_ + "/none", "health"}).exit_code, kExitUnreachable);
  EXPECT_EQ(RunTool({"--socket", folder_ + "/none", "version"}).exit_code, kExitOk);
}

TEST_F(Daemon, ADaemonThatHangsIsEight) {
  std::string path = folder_ + "/hung";
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
  struct sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<struct sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(fd.get(), 8), 0);
  ToolResult result = RunTool({"--socket", path, "--timeout", "200ms", "status"});
  EXPECT_EQ(result.exit_code, kExitTimeout) << result.err;
}

}  // namespace
}  // namespace ckptd
