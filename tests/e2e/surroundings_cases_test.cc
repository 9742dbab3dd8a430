// What a trainer's process brings along must not matter: proxy variables, and children.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "client/cpp/session.h"
#include "storage/base/unique_fd.h"
#include "tests/support/processes.h"
#include "tests/support/sessions.h"

namespace ckptd {
namespace {

// A port of the loopback where a proxy would listen.
class Port {
 public:
  Port() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(fd_.get(), any, length), 0);
    EXPECT_EQ(::listen(fd_.get(), 16), 0);
    EXPECT_EQ(::getsockname(fd_.get(), any, &length), 0);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
  }
  const std::string& url() const { return url_; }
  bool WasAsked() const {
    const UniqueFd connection(::accept(fd_.get(), nullptr, nullptr));
    return connection.valid() || errno != EAGAIN;
  }

 private:
  const UniqueFd fd_;
  std::string url_;
};

// Of this process, until the end of the test.
class Variables {
 public:
  ~Variables() {
    for (const std::string& name : names_) ::unsetenv(name.c_str());
  }
  void Set(const std::string& name, const std::string& value) {
    names_.push_back(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }

 private:
  std::vector<std::string> names_;
};

State OneTensor(const std::vector<float>& numbers) {
  State state;
  state.tensors = {WholeTensor("w", DType::kFloat32, {numbers.size()}, numbers.data())};
  return state;
}

// With and without exceptions for them: no local call goes to a proxy.
TEST(Proxies, AreAskedByNobody) {
  for (const char* exceptions : {"", "example.org", "localhost,127.0.0.1"}) {
    SCOPED_TRACE(exceptions);
    const Port port;
    std::vector<std::string> variables;
    Variables own;
    for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY",
                             "HTTPS_PROXY", "GRPC_PROXY", "ALL_PROXY"}) {
      variables.push_back(absl::StrCat(name, "=", port.url()));
      own.Set(name, port.url());
    }
    for (const char* name : {"no_proxy", "no_grpc_proxy", "NO_PROXY"}) {
      if (*exceptions == '\0') continue;
      variables.push_back(absl::StrCat(name, "=", exceptions));
      own.Set(name, exceptions);
    }
    TestSite site;
    TestDaemon daemon(site, {.variables = variables});
    ASSERT_TRUE(daemon.ready()) << daemon.Log();
    auto first = OpenSession(site, 0, 2);
    auto second = OpenSession(site, 1, 2);
    ASSERT_TRUE(first != nullptr && second != nullptr);
    const std::vector<float> numbers(100000, 0.5f);
    SaveOptions deferred;
    deferred.deferred = true;
    auto one = first->AsyncSave("a", 1, OneTensor(numbers), deferred);
    auto two = second->AsyncSave("a", 1, OneTensor(numbers), deferred);
    ASSERT_TRUE(one.ok() && two.ok());
    EXPECT_TRUE(one->Wait(SaveState::kCommitted, kPatience).ok());
    EXPECT_TRUE(two->Wait(SaveState::kCommitted, kPatience).ok());
    std::vector<float> loaded(numbers.size());
    EXPECT_TRUE(
        LoadNow(*first, "a", {WholeTarget("w", DType::kFloat32, {numbers.size()}, loaded.data())})
            .ok());
    EXPECT_EQ(loaded, numbers);
    ClientOptions options;
    options.socket = site.socket();
    auto client = Client::Connect(options);
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_TRUE((*client)->Latest("job").ok());
    for (const char* verb : {"status", "list", "verify", "health"}) {
      const CommandResult run =
          RunProgram({kCkptctlBinary, "--socket", site.socket(), verb}, variables);
      EXPECT_EQ(run.exit_code, 0) << verb << ": " << run.err;
    }
    EXPECT_FALSE(port.WasAsked());
  }
}

// --- Children

pid_t Fork(const std::function<int()>& child) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(child());
  return pid;
}

class ForkedWorkers : public testing::Test {
 protected:
  ForkedWorkers() : session_(OpenSession(site_, 0, 1)) {
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<float>(i);
  }
  ~ForkedWorkers() override {
    for (pid_t worker : workers_) {
      ::kill(worker, SIGKILL);
      ::waitpid(worker, nullptr, 0);
    }
  }

  static int Sleep() {
    for (;;) ::pause();
  }

  // A child that calls is refused at once, by every door and by its parent's handles.
  int Call(const SaveHandle& in_flight) {
    const auto refused = [](const absl::Status& status) {
      return status.code() == absl::StatusCode::kFailedPrecondition;
    };
    if (!refused(session_->AsyncSave("child", 1, OneTensor(numbers_)).status())) return 2;
    if (!refused(session_->Latest().status()) || !refused(session_->Lock())) return 3;
    if (!refused(in_flight.Wait(SaveState::kCommitted, kPatience))) return 4;
    ClientOptions options;
    options.socket = site_.socket();
    if (!refused(Client::Connect(options).status())) return 5;
    session_ = nullptr;
    return 0;
  }

  void ForkAll(const SaveHandle& in_flight) {
    workers_.push_back(Fork(Sleep));
    const pid_t calls = Fork([&] { return Call(in_flight); });
    const pid_t ends = Fork([] { return 7; });
    const pid_t killed = Fork(Sleep);
    const pid_t executes = Fork([] {
      ::execl("/bin/sh", "sh", "-c", "exit 9", static_cast<char*>(nullptr));
      return 1;
    });
    int status = 0;
    ::kill(killed, SIGKILL);
    EXPECT_EQ(::waitpid(killed, &status, 0), killed);
    EXPECT_TRUE(WIFSIGNALED(status));
    for (const auto& [pid, code] :
         std::vector<std::pair<pid_t, int>>{{calls, 0}, {ends, 7}, {executes, 9}}) {
      EXPECT_EQ(::waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), code);
    }
    EXPECT_EQ(std::system("true"), 0);
  }

  TestSite site_;
  TestDaemon daemon_{site_, {.faulty = true, .flags = {"--block-size", "1MiB"}}};
  std::unique_ptr<Session> session_;
  std::vector<float> numbers_ = std::vector<float>(1000000);
  std::vector<pid_t> workers_;  // That live as long as the test.
};

// As loaders of data are forked: while saves are under way, some to live long, some to be killed.
TEST_F(ForkedWorkers, RunExitAndDieWhileTheParentSaves) {
  site_.SetFaults("write:shard=rate:32MiB");
  for (int step = 0; step < 10; ++step) {
    numbers_[0] = static_cast<float>(step);
    SaveOptions options;
    options.deferred = step % 2 == 0;  // Then threads of the session copy while this one forks.
    auto save = session_->AsyncSave(absl::StrCat(step), step, OneTensor(numbers_), options);
    ASSERT_TRUE(save.ok()) << save.status();
    ForkAll(*save);
    ASSERT_TRUE(session_->Lock().ok());
    EXPECT_TRUE(save->Wait(SaveState::kCommitted, kPatience).ok());
  }
  for (int step = 0; step < 10; ++step) {
    std::vector<float> loaded(numbers_.size());
    ASSERT_TRUE(LoadNow(*session_, absl::StrCat(step),
                        {WholeTarget("w", DType::kFloat32, {numbers_.size()}, loaded.data())})
                    .ok());
    numbers_[0] = static_cast<float>(step);
    EXPECT_EQ(loaded, numbers_);
  }
  EXPECT_EQ(ListedIds(site_).size(), 10u);
  EXPECT_EQ(Ckptctl(site_, {"status"}).json["sessions"].size(), 1u);
  session_ = nullptr;
  EXPECT_TRUE(Eventually([&] {
    return Ckptctl(site_, {"status"}).json["memory"]["arena_bytes"] == 0;
  })) << "children keep the memory of a session that is closed";
}

}  // namespace
}  // namespace ckptd
