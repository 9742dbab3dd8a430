// What a trainer is short of, time or threads, is not the daemon's doing and does not end it.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "client/cpp/session.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

class ClientStrain : public ::testing::Test {
 protected:
  ClientStrain() { StartDaemon(); }

  SessionOptions Options() const {
    SessionOptions options;
    options.client.socket = site_.socket();
    options.job = "job";
    options.rank = 0;
    options.world_size = 1;
    return options;
  }

  std::unique_ptr<Session> OpenSession(const SessionOptions& options) {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status() << "\n" << daemon_->Log();
    return session.ok() ? *std::move(session) : nullptr;
  }
  std::unique_ptr<Session> OpenSession() { return OpenSession(Options()); }

  void TearDown() override {
    if (HasFailure()) std::fprintf(stderr, "%s", daemon_->Log().c_str());
  }

  void StartDaemon() {
    daemon_.emplace(site_,
                    TestDaemon::Options{.flags = {"--block-size", "1MiB", "--log-level", "debug"}});
  }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
};

std::vector<float> Numbers(size_t count, float first = 0) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

State VectorState(const std::vector<float>& numbers) {
  State state;
  state.tensors = {WholeTensor("v", DType::kFloat32, {numbers.size()}, numbers.data())};
  return state;
}

// What counts is how long the daemon makes a call wait, not how long this process takes between
// two.
TEST_F(ClientStrain, ABusyClientIsNoDaemonThatStandsStill) {
  std::atomic<int> losses{0};
  SessionOptions options = Options();
  options.threads = 1;
  options.on_connection = [&](bool lost, const std::string&) { losses += lost; };
  std::unique_ptr<Session> session = OpenSession(options);
  const std::vector<float> numbers = Numbers(1'000'000);
  auto first = session->AsyncSave("one", 1, VectorState(numbers));
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->Wait(SaveState::kCommitted, kLong).ok());

  std::atomic<bool> busy{false};
  std::promise<void> free;
  SaveOptions slow;
  slow.deferred = true;
  slow.on_copied = [&](uint64_t) {
    if (!busy.exchange(true)) free.get_future().wait();
  };
  auto save = session->AsyncSave("two", 2, VectorState(numbers), slow);
  ASSERT_TRUE(save.ok()) << save.status();
  while (!busy) absl::SleepFor(absl::Milliseconds(1));
  // The threads that copy are taken now, for longer than each of these two may wait.
  std::vector<float> loaded(numbers.size(), -1);
  LoadOptions impatient;
  impatient.progress_timeout = absl::Milliseconds(700);
  auto load = session->Load(
      "one", {WholeTarget("v", DType::kFloat32, {loaded.size()}, loaded.data())}, impatient);
  ASSERT_TRUE(load.ok()) << load.status();
  auto prewarm = std::async(std::launch::async, [&] {
    return session->Prewarm(VectorState(numbers), absl::Milliseconds(700));
  });
  absl::SleepFor(absl::Seconds(3));
  free.set_value();
  EXPECT_TRUE(load->Wait(kLong).ok()) << load->Wait(kLong).status();
  EXPECT_EQ(loaded, numbers);
  const absl::Status warm = prewarm.get();
  EXPECT_TRUE(warm.ok()) << warm;
  EXPECT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok()) << save->failure().status;
  EXPECT_EQ(losses, 0);
}

// While it lives the system gives this process no thread: none has room for its stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_setstacksize(&huge, size_t{1} << 46);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_F(ClientStrain, WithoutAThreadACallFailsAndTheProcessGoesOn) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(500'000);
  {
    const NoThreads none;
    EXPECT_EQ(session->AsyncSave("one", 1, VectorState(numbers)).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(session->Load("", {}).status().code(), absl::StatusCode::kResourceExhausted);
  }
  // The process goes on, and so does the session.
  auto save = session->AsyncSave("two", 2, VectorState(numbers));
  ASSERT_TRUE(save.ok()) << save.status();
  EXPECT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok()) << save->failure().status;
}

}  // namespace
}  // namespace ckptd
