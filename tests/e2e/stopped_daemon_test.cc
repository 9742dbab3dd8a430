// A daemon that is stopped, not dead: no call of a client blocks beyond its limit, nothing reads
// the tensors of a save that has failed, and once the daemon goes on, or a new one comes, the next
// save of the same session commits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cpp/client.h"
#include "client/cpp/session.h"
#include "storage/base/clock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

constexpr absl::Duration kSlack = absl::Seconds(2);
constexpr absl::Duration kLimit = absl::Seconds(1);

// Tensors in pages that can be taken away: who reads them then dies.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    data_ = static_cast<std::byte*>(memory);
    std::fill_n(data_, bytes_, std::byte{7});
  }
  ~Pages() { munmap(data_, bytes_); }

  void TakeAway() const { ASSERT_EQ(mprotect(data_, bytes_, PROT_NONE), 0); }
  void GiveBack() const { ASSERT_EQ(mprotect(data_, bytes_, PROT_READ | PROT_WRITE), 0); }

  State AsState() const {
    State state;
    state.tensors = {WholeTensor("v", DType::kUInt8, {bytes_}, data_)};
    return state;
  }
  // A plan of some 8 MB: more than a stream buffers.
  State AsStateOfLongNames() const {
    State state;
    for (int i = 0; i < 200; ++i) {
      const std::string name = absl::StrCat("t", i, std::string(40'000, 'n'));
      state.tensors.push_back(WholeTensor(name, DType::kUInt8, {16}, data_ + 16 * i));
    }
    return state;
  }

 private:
  const size_t bytes_;
  std::byte* data_ = nullptr;
};

// What the call gives, which it must give within `limit`, and a little.
template <typename Call>
auto Within(absl::Duration limit, const char* what, Call call) {
  const absl::Duration begun = SystemClock().Monotonic();
  auto result = call();
  const absl::Duration taken = SystemClock().Monotonic() - begun;
  EXPECT_LT(taken, limit + kSlack) << what;
  return result;
}

void ExpectNamesLimit(const absl::Status& status, const std::string& limit = "1s") {
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(limit));
}

enum class Sequel { kGoesOn, kDiesAndComesBack };

class StoppedDaemon : public testing::TestWithParam<Sequel> {
 protected:
  void SetUp() override {
    StartDaemon();
    session_ = OpenSession();
    ASSERT_NE(session_, nullptr);
    auto save = session_->AsyncSave("first", 1, pages_.AsState());
    ASSERT_TRUE(save.ok()) << save.status();
    ASSERT_TRUE(save->Wait(SaveState::kCommitted, kPatience).ok());
  }
  void TearDown() override {
    if (HasFailure()) std::fprintf(stderr, "%s", daemon_->Log().c_str());
  }

  void StartDaemon() {
    daemon_.reset();
    daemon_.emplace(
        site_, TestDaemon::Options{.flags = {"--block-size", "1MiB", "--arena-limit", "4MiB"}});
    ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
  }
  void Stop() { daemon_->process().Signal(SIGSTOP); }
  void Resume() {
    if (GetParam() == Sequel::kGoesOn) return daemon_->process().Signal(SIGCONT);
    daemon_->Kill();
    StartDaemon();
  }

  SessionOptions Options() const {
    SessionOptions options;
    options.client.socket = site_.socket();
    options.client.timeout = kLimit;
    options.job = "job";
    options.rank = 0;
    options.world_size = 1;
    return options;
  }
  std::unique_ptr<Session> OpenSession() {
    SessionOptions options = Options();
    options.client.timeout = kPatience;
    auto session = Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  void ExpectNextCommits(Session& session) {
    auto save = session.AsyncSave("next", 2, pages_.AsState());
    ASSERT_TRUE(save.ok()) << save.status();
    const absl::Status status = save->Wait(SaveState::kCommitted, kPatience);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::byte> loaded(kBytes);
    auto load = session.Load("next", {WholeTarget("v", DType::kUInt8, {kBytes}, loaded.data())});
    ASSERT_TRUE(load.ok()) << load.status();
    EXPECT_TRUE(load->Wait(kPatience).ok()) << load->Wait(kPatience).status();
    EXPECT_EQ(loaded, std::vector<std::byte>(kBytes, std::byte{7}));
  }

  static constexpr size_t kBytes = 16 << 20;
  TestSite site_;
  Pages pages_{kBytes};
  std::optional<TestDaemon> daemon_;
  std::unique_ptr<Session> session_;
};

TEST_P(StoppedDaemon, HoldsNoSaveBeyondItsLimitThoughThePlanIsLarge) {
  Stop();
  SaveOptions limited;
  limited.block_timeout = kLimit;
  for (const char* id : {"one", "two"}) {
    ExpectNamesLimit(Within(kLimit, id, [&] {
      return session_->AsyncSave(id, 2, pages_.AsStateOfLongNames(), limited).status();
    }));
  }
  ExpectNamesLimit(Within(kLimit, "a small plan", [&] {
    return session_->AsyncSave("three", 2, pages_.AsState(), limited).status();
  }));
  pages_.TakeAway();
  Resume();
  absl::SleepFor(absl::Seconds(1));
  pages_.GiveBack();
  ExpectNextCommits(*session_);
}

TEST_P(StoppedDaemon, HoldsNoDeferredSaveBeyondTheLimitsOfItsWaits) {
  Stop();
  SaveOptions deferred;
  deferred.deferred = true;
  auto save = Within(absl::ZeroDuration(), "a deferred save", [&] {
    return session_->AsyncSave("deferred", 2, pages_.AsStateOfLongNames(), deferred);
  });
  ASSERT_TRUE(save.ok()) << save.status();
  ExpectNamesLimit(Within(kLimit, "lock", [&] { return session_->Lock(kLimit); }));
  ExpectNamesLimit(
      Within(kLimit, "wait", [&] { return save->Wait(SaveState::kCommitted, kLimit); }));
  Within(absl::ZeroDuration(), "cancel", [&] {
    save->Cancel();
    return 0;
  });
  ExpectNamesLimit(
      Within(kLimit, "wait", [&] { return save->Wait(SaveState::kCommitted, kLimit); }));
  Resume();
  const absl::Status status = save->Wait(SaveState::kCommitted, kPatience);
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  ExpectNextCommits(*session_);
}

TEST_P(StoppedDaemon, InMidStagingGetsNoByteOfTensorsAfterTheError) {
  SaveOptions limited;
  limited.block_timeout = kLimit;
  std::atomic<bool> stopped = false;
  limited.on_copied = [&](uint64_t bytes) {
    if (bytes >= 6 << 20 && !stopped.exchange(true)) Stop();
  };
  ExpectNamesLimit(Within(kLimit, "a save that is half staged", [&] {
    return session_->AsyncSave("half", 2, pages_.AsState(), limited).status();
  }));
  EXPECT_TRUE(stopped);
  pages_.TakeAway();
  Resume();
  absl::SleepFor(absl::Seconds(1));
  pages_.GiveBack();
  ExpectNextCommits(*session_);
}

TEST_P(StoppedDaemon, HoldsNoOtherCallBeyondItsLimit) {
  auto client = Client::Connect({site_.socket(), kLimit});
  ASSERT_TRUE(client.ok()) << client.status();
  auto other = Session::Open(Options());
  ASSERT_TRUE(other.ok()) << other.status();
  Stop();
  ExpectNamesLimit(Within(kLimit, "List", [&] { return (*client)->List("job").status(); }));
  ExpectNamesLimit(Within(kLimit, "Latest", [&] { return (*client)->Latest("job").status(); }));
  ExpectNamesLimit(
      Within(kLimit, "Describe", [&] { return (*client)->Describe("first", "job").status(); }));
  ExpectNamesLimit(Within(kLimit, "the session's", [&] { return (*other)->Latest().status(); }));
  std::vector<std::byte> target(kBytes);
  LoadOptions impatient;
  impatient.progress_timeout = kLimit;
  ExpectNamesLimit(Within(kLimit, "Load", [&]() -> absl::Status {
    auto load = session_->Load("first", {WholeTarget("v", DType::kUInt8, {kBytes}, target.data())},
                               impatient);
    return load.ok() ? load->Wait(kPatience).status() : load.status();
  }));
  ExpectNamesLimit(Within(kLimit, "Prewarm",
                          [&] { return session_->Prewarm(pages_.AsStateOfLongNames(), kLimit); }));
  const absl::Status connect = Within(kLimit, "Connect", [&] {
    return Client::Connect({site_.socket(), kLimit}).status();
  });
  EXPECT_EQ(connect.code(), absl::StatusCode::kUnavailable) << connect;
  SessionOptions third = Options();
  third.job = "third";
  const absl::Status open = Within(kLimit, "Open", [&] { return Session::Open(third).status(); });
  EXPECT_EQ(open.code(), absl::StatusCode::kUnavailable) << open;
  Resume();
  ExpectNextCommits(*session_);
}

// gRPC takes no call back whose bytes wait in a socket that nobody reads.
TEST_P(StoppedDaemon, HoldsNoCallThoughASaveHasFilledTheSocket) {
  session_.reset();  // A rank has one session, and the last to say hello has the arena.
  for (int call = 0; call < 4; ++call) {
    SCOPED_TRACE(call);
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(Options());
    ASSERT_TRUE(session.ok()) << session.status();
    Stop();
    SaveOptions limited;
    limited.block_timeout = absl::Milliseconds(200);
    EXPECT_FALSE((*session)->AsyncSave("stuck", 2, pages_.AsStateOfLongNames(), limited).ok());
    const absl::Status status = Within(kLimit, "a call", [&]() -> absl::Status {
      if (call == 0) return (*session)->Latest().status();
      if (call == 1) return (*session)->Prewarm(pages_.AsState(), kLimit);
      if (call == 2) return (*session)->Close(CloseMode::kWait, kLimit);
      LoadOptions impatient;
      impatient.progress_timeout = kLimit;
      auto load = (*session)->Load("first", {}, impatient);
      return load.ok() ? load->Wait(kPatience).status() : load.status();
    });
    ExpectNamesLimit(status);
    Resume();
    if (call == 2) session = Session::Open(Options());
    ASSERT_TRUE(session.ok()) << session.status();
    SaveOptions replace;
    replace.on_existing = OnExisting::kReplace;
    auto save = (*session)->AsyncSave("next", 2, pages_.AsState(), replace);
    ASSERT_TRUE(save.ok()) << save.status();
    EXPECT_TRUE(save->Wait(SaveState::kCommitted, kPatience).ok());
  }
}

TEST_P(StoppedDaemon, HoldsNoCloseBeyondItsLimit) {
  SaveOptions deferred;
  deferred.deferred = true;
  Stop();
  auto save = session_->AsyncSave("waits", 2, pages_.AsStateOfLongNames(), deferred);
  ASSERT_TRUE(save.ok()) << save.status();
  ExpectNamesLimit(
      Within(kLimit, "Close", [&] { return session_->Close(CloseMode::kWait, kLimit); }));
  EXPECT_EQ(save->Wait(SaveState::kCommitted, kPatience).code(), absl::StatusCode::kCancelled);
  Resume();
  session_ = OpenSession();
  Stop();
  ASSERT_TRUE(session_->AsyncSave("too", 2, pages_.AsStateOfLongNames(), deferred).ok());
  Within(absl::Seconds(5), "the destructor", [&] {
    session_ = nullptr;
    return 0;
  });
  Resume();
  session_ = OpenSession();
  ExpectNextCommits(*session_);
}

// The session comes back to a daemon that lets it in and says nothing.
TEST_P(StoppedDaemon, HoldsNoCloseOfASessionThatComesBackToIt) {
  daemon_->Kill();
  StartDaemon();
  Stop();
  Within(absl::Seconds(5), "the destructor", [&] {
    session_ = nullptr;
    return 0;
  });
  Resume();
  session_ = OpenSession();
  ExpectNextCommits(*session_);
}

INSTANTIATE_TEST_SUITE_P(AndThen, StoppedDaemon,
                         testing::Values(Sequel::kGoesOn, Sequel::kDiesAndComesBack),
                         [](const auto& sequel) {
                           return sequel.param == Sequel::kGoesOn ? "GoesOn" : "DiesAndComesBack";
                         });

// Whenever a save is given up, also in the midst of a copy.
TEST(GivenUpSaves, ReadNothingAfterTheError) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--block-size", "1MiB"}});
  SessionOptions options;
  options.client.socket = site.socket();
  options.job = "job";
  options.threads = 2;
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  const Pages pages(64 << 20);
  int failed = 0;
  for (int round = 0; round < 40; ++round) {
    SaveOptions limited;
    limited.block_timeout = absl::Milliseconds(2 + round);
    auto save = (*session)->AsyncSave(absl::StrCat("s", round), round, pages.AsState(), limited);
    pages.TakeAway();
    failed += save.ok() ? 0 : 1;
    absl::SleepFor(absl::Milliseconds(20));
    pages.GiveBack();
  }
  EXPECT_GT(failed, 0);
  auto last = (*session)->AsyncSave("last", 99, pages.AsState());
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->Wait(SaveState::kCommitted, kPatience).ok());
}

}  // namespace
}  // namespace ckptd
