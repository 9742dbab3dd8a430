// ckptctl at a real daemon that a real session saves to; and the same root without the daemon.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/exit_code.h"
#include "client/cpp/session.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/cli/run_tool.h"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::HasSubstr;

constexpr char kDaemon[] = "server/ckptd";

class Ckptctl : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ckptd-e2e-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
    StartDaemon();
  }
  void TearDown() override {
    session_.reset();
    if (daemon_ > 0) StopDaemon();
    std::filesystem::remove_all(folder_);
  }

  void StartDaemon() {
    std::vector<std::string> texts = {kDaemon,  "--socket", folder_ + "/s", "--root", root(),
                                      "--node", "node-a",   "--log-level",  "warning"};
    std::vector<char*> argv;
    for (std::string& text : texts) argv.push_back(text.data());
    argv.push_back(nullptr);
    char* no_variables[] = {nullptr};
    ASSERT_EQ(::posix_spawn(&daemon_, kDaemon, nullptr, nullptr, argv.data(), no_variables), 0);
    ASSERT_EQ(Tool({"health", "--wait", "30s"}).exit_code, kExitOk);
  }
  void StopDaemon() {
    ::kill(daemon_, SIGTERM);
    int status = 0;
    ::waitpid(daemon_, &status, 0);
    EXPECT_EQ(status, 0);
    daemon_ = -1;
  }

  std::string root() const { return folder_ + "/root"; }

  void OpenSession() {
    SessionOptions options;
    options.client.socket = folder_ + "/s";
    options.job = "llm";
    options.rank = 0;
    options.world_size = 1;
    auto session = Session::Open(options);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  void Save(const std::string& id, int64_t step) {
    State state;
    state.tensors = {WholeTensor("w", DType::kFloat32, {100, 10}, weights_.data())};
    state.items = {{.name = "lr", .value = "0.1"}};
    auto save = session_->AsyncSave(id, step, state);
    ASSERT_TRUE(save.ok()) << save.status();
    absl::Status committed = save->Wait(SaveState::kCommitted, absl::Minutes(1));
    ASSERT_TRUE(committed.ok()) << committed;
  }

  ToolResult Tool(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--socket", folder_ + "/s"});
    return RunTool(arguments);
  }
  ToolResult Offline(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--root", root()});
    return RunTool(arguments);
  }
  static Json Parse(const ToolResult& result) {
    Json json = Json::parse(result.out, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << result.out << result.err;
    return json;
  }
  Json Answer(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    ToolResult result = Tool(arguments);
    EXPECT_EQ(result.exit_code, kExitOk) << result.err;
    return Parse(result);
  }

  std::string folder_;
  pid_t daemon_ = -1;
  std::unique_ptr<Session> session_;
  std::vector<float> weights_ = std::vector<float>(1000, 1.5f);
};

TEST_F(Ckptctl, AnEmptyDaemonHasNothingThere) {
  Json list = Answer({"list"});
  EXPECT_EQ(list["checkpoints"], Json::array());
  EXPECT_EQ(list["attempts"], Json::array());
  EXPECT_EQ(Tool({"latest"}).exit_code, kExitNothingThere);
  EXPECT_EQ(Tool({"show", "x"}).exit_code, kExitNothingThere);
  EXPECT_EQ(Tool({"describe", "x"}).exit_code, kExitNothingThere);
  EXPECT_EQ(Tool({"verify", "x"}).exit_code, kExitNothingThere);
  EXPECT_EQ(Tool({"wait", "x", "--timeout", "500ms"}).exit_code, kExitNothingThere);
  EXPECT_EQ(Tool({"verify"}).exit_code, kExitOk);
}

TEST_F(Ckptctl, StatusTellsOfDaemonRootsAndSessions) {
  OpenSession();
  Json json = Answer({"status"});
  EXPECT_EQ(json["daemon"]["node"], "node-a");
  EXPECT_EQ(json["daemon"]["pid"], daemon_);
  EXPECT_EQ(json["daemon"]["socket"], folder_ + "/s");
  EXPECT_EQ(json["daemon"]["state"], "serving");
  ASSERT_EQ(json["roots"].size(), 1u);
  EXPECT_EQ(json["roots"][0]["label"], "default");
  EXPECT_EQ(json["roots"][0]["path"], root());
  EXPECT_EQ(json["roots"][0]["state"], "ok");
  EXPECT_TRUE(json["roots"][0]["io_reason"].is_string());
  ASSERT_EQ(json["sessions"].size(), 1u);
  EXPECT_EQ(json["sessions"][0]["job"], "llm");
  EXPECT_EQ(json["sessions"][0]["pid"], ::getpid());
  EXPECT_EQ(json["sessions"][0]["state"], "alive");
}

TEST_F(Ckptctl, WhatIsCommittedIsTheSameWithAndWithoutTheDaemon) {
  OpenSession();
  Save("step-1", 1);
  Save("step-2", 2);
  EXPECT_EQ(Tool({"latest"}).out, "step-2\n");
  EXPECT_EQ(Answer({"verify", "--all"})["ok"], true);
  EXPECT_EQ(Answer({"list"})["checkpoints"].size(), 2u);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"list", "-o", "json"},
                                                    {"latest", "-o", "json"},
                                                    {"show", "step-1", "-o", "json"},
                                                    {"describe", "step-2", "-o", "json"},
                                                    {"verify", "step-2", "-o", "json"}}) {
    EXPECT_EQ(Parse(Tool(arguments)), Parse(Offline(arguments))) << arguments[0];
  }
  Json checkpoint = Answer({"latest"});
  EXPECT_EQ(checkpoint["step"], 2);
  EXPECT_EQ(checkpoint["tensors"], 1);
  EXPECT_EQ(checkpoint["items"], 1);
  EXPECT_EQ(checkpoint["nodes"], Json({"node-a"}));
  EXPECT_EQ(checkpoint["verified"]["ok"], true);
  Json description = Answer({"describe", "step-1"});
  EXPECT_EQ(description["tensors"][0]["shape"], Json({100, 10}));
  EXPECT_EQ(description["items"][0]["value"], 0.1);
}

TEST_F(Ckptctl, WaitAnswersForWhatIsCommitted) {
  OpenSession();
  Save("step-1", 1);
  for (const char* state : {"staged", "durable", "committed"}) {
    Json attempt = Answer({"wait", "step-1", "--for", state});
    EXPECT_EQ(attempt["state"], "committed");
    EXPECT_EQ(attempt["id"], "step-1");
  }
}

TEST_F(Ckptctl, TheNewestIsNotDeletedUnlessAllowed) {
  OpenSession();
  Save("step-1", 1);
  Save("step-2", 2);
  ToolResult refused = Tool({"delete", "step-2", "--yes", "-o", "json"});
  EXPECT_EQ(refused.exit_code, kExitHeld);
  EXPECT_EQ(Json::parse(LastLine(refused.err))["exit"], kExitHeld);
  EXPECT_EQ(Answer({"delete", "step-1", "--yes"})["deleted"], Json({"step-1"}));
  EXPECT_EQ(Tool({"show", "step-1"}).exit_code, kExitNothingThere);
  EXPECT_EQ(Answer({"delete", "step-2", "--yes", "--allow-newest"})["deleted"], Json({"step-2"}));
  EXPECT_EQ(Tool({"latest"}).exit_code, kExitNothingThere);
}

TEST_F(Ckptctl, AFlippedByteIsFound) {
  OpenSession();
  Save("step-1", 1);
  std::string path = Parse(Tool({"show", "step-1", "-o", "json"}))["path"];
  std::fstream shard(path + "/shard-00000-of-00001.safetensors",
                     std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(shard.is_open());
  shard.seekp(4096 + 5);
  shard.put('\x55');
  shard.close();
  ToolResult result = Tool({"verify", "step-1", "-o", "json"});
  EXPECT_EQ(result.exit_code, kExitIntegrity);
  Json json = Parse(result);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checked"][0]["errors"][0]["tensor"], "w");
  EXPECT_EQ(Answer({"list"})["checkpoints"][0]["verified"]["ok"], false);
}

TEST_F(Ckptctl, AStoppedDaemonIsUnreachableAndItsRootStillReadable) {
  OpenSession();
  Save("step-1", 1);
  session_.reset();
  StopDaemon();
  EXPECT_EQ(Tool({"latest"}).exit_code, kExitUnreachable);
  EXPECT_EQ(Offline({"latest"}).out, "step-1\n");
}

TEST_F(Ckptctl, AWatchSaysThatADaemonIsAwayAndGoesOnWithTheNext) {
  RunningTool watch({"--socket", folder_ + "/s", "status", "--watch"}, {});
  auto shows = [&](const std::string& text) {
    for (int i = 0; i < 6000; ++i) {
      if (watch.OutSoFar().find(text) != std::string::npos) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  };
  EXPECT_TRUE(shows(absl::StrCat("pid ", daemon_, ",")));
  ::kill(daemon_, SIGKILL);
  ::waitpid(daemon_, nullptr, 0);
  EXPECT_TRUE(shows("daemon away for "));
  StartDaemon();
  EXPECT_TRUE(shows(absl::StrCat("pid ", daemon_, ",")));
  ::kill(daemon_, SIGSTOP);
  EXPECT_TRUE(shows("did not answer in time"));
  ::kill(watch.pid(), SIGINT);
  EXPECT_EQ(watch.Wait().exit_code, kExitInterrupted);
  ::kill(daemon_, SIGCONT);
}

TEST_F(Ckptctl, ADaemonThatDoesNotAnswerIsATimeout) {
  ::kill(daemon_, SIGSTOP);
  ToolResult result = Tool({"--timeout", "300ms", "list"});
  ::kill(daemon_, SIGCONT);
  EXPECT_EQ(result.exit_code, kExitTimeout) << result.err;
}

}  // namespace
}  // namespace ckptd
