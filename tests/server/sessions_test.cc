#include "server/sessions.h"

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"

namespace ckptd {
namespace {

constexpr absl::Duration kLost = absl::Seconds(10);

// Sessions on a loop of their own, whose clock the test moves.
class SessionsTest : public testing::Test {
 protected:
  SessionsTest() {
    Sessions::Options options;
    options.peer_lost_timeout = kLost;
    options.on_end = [this](const Session& session, SessionEnd end) {
      ended_.emplace_back(session.info.pid, end);
      EXPECT_FALSE(sessions_->Find(session.token).ok());
    };
    options.new_token = [this] { return absl::StrCat("token", ++tokens_); };
    sessions_ = std::make_unique<Sessions>(loop_, std::move(options));
    sessions_->OnRelease([this](uint64_t connection) { released_.push_back(connection); });
  }

  ~SessionsTest() override { loop_.Stop(); }

  template <class F>
  auto OnLoop(F f) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_.Post([&task] { task(); });
    return result.get();
  }

  static SessionInfo Info(uint32_t rank, int64_t pid, std::string incarnation = "") {
    SessionInfo info;
    info.job = "job";
    info.incarnation = std::move(incarnation);
    info.rank = rank;
    info.world_size = 4;
    info.pid = pid;
    return info;
  }

  // The token, or the error.
  absl::StatusOr<std::string> Open(const SessionInfo& info, uint64_t connection) {
    return OnLoop([&]() -> absl::StatusOr<std::string> {
      auto session = sessions_->Open(info, connection);
      if (!session.ok()) return session.status();
      return (*session)->token;
    });
  }

  Session Get(const std::string& token) {
    return OnLoop([&] {
      auto found = sessions_->Find(token);
      return found.ok() ? **found : Session{};
    });
  }

  void Disconnected(uint64_t connection) {
    OnLoop([&] { sessions_->Disconnected(connection); });
  }
  void Died(uint64_t connection) {
    OnLoop([&] { sessions_->Died(connection); });
  }
  void Close(const std::string& token) {
    OnLoop([&] { sessions_->Close(token); });
  }
  size_t Count() {
    return OnLoop([&] { return sessions_->all().size(); });
  }
  void Advance(absl::Duration duration) {
    clock_.Advance(duration);
    OnLoop([] {});
    OnLoop([] {});
  }

  using Ended = std::vector<std::pair<int64_t, SessionEnd>>;

  FakeClock clock_;
  ControlLoop loop_{clock_};
  std::unique_ptr<Sessions> sessions_;
  std::vector<uint64_t> released_;
  int tokens_ = 0;
  Ended ended_;
};

TEST_F(SessionsTest, OpensOneForEachRank) {
  auto first = Open(Info(0, 100), 1);
  auto second = Open(Info(1, 101), 2);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(Get(*first).info.pid, 100);
  EXPECT_EQ(Get(*second).connection, 2u);
  EXPECT_EQ(Count(), 2u);
}

TEST_F(SessionsTest, TheSameProcessTakesItsSessionUpAgain) {
  std::string token = *Open(Info(0, 100), 1);
  SessionInfo again = Info(0, 100);
  again.root = "other";
  EXPECT_EQ(*Open(again, 2), token);
  EXPECT_EQ(Count(), 1u);
  EXPECT_EQ(Get(token).connection, 2u);
  EXPECT_EQ(Get(token).info.root, "other");
  Disconnected(1);  // The former connection: nothing.
  EXPECT_EQ(Get(token).state, Session::State::kAlive);
  Advance(2 * kLost);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(SessionsTest, AnotherLivingProcessIsRefusedNamingBoth) {
  std::string token = *Open(Info(0, 100), 1);
  auto other = Open(Info(0, 222), 2);
  EXPECT_EQ(other.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(other.status().message().find("100"), std::string::npos) << other.status();
  EXPECT_NE(other.status().message().find("222"), std::string::npos) << other.status();
  Disconnected(2);
  Died(2);
  EXPECT_EQ(Get(token).state, Session::State::kAlive);
  // Not even while the holder is disconnected: it may live.
  Disconnected(1);
  EXPECT_EQ(Open(Info(0, 222), 3).status().code(), absl::StatusCode::kAlreadyExists);
  Died(1);
  EXPECT_TRUE(Open(Info(0, 222), 4).ok());
}

TEST_F(SessionsTest, ProcessesWhosePidIsNotSeenAreNeverTheSame) {
  ASSERT_TRUE(Open(Info(0, 0), 1).ok());
  EXPECT_EQ(Open(Info(0, 0), 2).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(SessionsTest, AnotherIncarnationIsAnotherRank) {
  ASSERT_TRUE(Open(Info(0, 100, "a"), 1).ok());
  EXPECT_TRUE(Open(Info(0, 200, "b"), 2).ok());
  EXPECT_EQ(Count(), 2u);
}

TEST_F(SessionsTest, ADisconnectedProcessIsLostAfterTheTimeout) {
  std::string token = *Open(Info(0, 100), 1);
  Disconnected(1);
  EXPECT_EQ(Get(token).state, Session::State::kDisconnected);
  EXPECT_EQ(Get(token).connection, 0u);
  Advance(kLost - absl::Seconds(1));
  EXPECT_TRUE(ended_.empty());
  Advance(absl::Seconds(1));
  EXPECT_EQ(ended_, (Ended{{100, SessionEnd::kLost}}));
  EXPECT_EQ(Count(), 0u);
  Died(1);  // Later: nothing more.
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_F(SessionsTest, ADisconnectedProcessComesBackInTime) {
  std::string token = *Open(Info(0, 100), 1);
  Disconnected(1);
  Advance(kLost - absl::Seconds(1));
  EXPECT_EQ(*Open(Info(0, 100), 2), token);
  EXPECT_EQ(Get(token).state, Session::State::kAlive);
  Advance(2 * kLost);
  EXPECT_TRUE(ended_.empty());
}

TEST_F(SessionsTest, ADeadProcessEndsItsSessionAtOnce) {
  std::string token = *Open(Info(0, 100), 1);
  Died(1);
  EXPECT_EQ(ended_, (Ended{{100, SessionEnd::kDead}}));
  EXPECT_EQ(OnLoop([&] { return sessions_->Find(token).status().code(); }),
            absl::StatusCode::kUnauthenticated);
  // The successor gets a session of its own.
  auto next = Open(Info(0, 300), 2);
  ASSERT_TRUE(next.ok());
  EXPECT_NE(*next, token);
}

TEST_F(SessionsTest, DeathIsSeenWhileDisconnected) {
  ASSERT_TRUE(Open(Info(0, 100), 1).ok());
  Disconnected(1);
  EXPECT_TRUE(released_.empty()) << "its pidfd is needed";
  Died(1);
  EXPECT_EQ(ended_, (Ended{{100, SessionEnd::kDead}}));
  Advance(2 * kLost);  // The time-out is off.
  EXPECT_EQ(ended_.size(), 1u);
}

TEST_F(SessionsTest, ReleasesTheConnectionsThatNobodyNeeds) {
  std::string token = *Open(Info(0, 100), 1);
  ASSERT_FALSE(Open(Info(0, 200), 2).ok());
  Disconnected(2);
  EXPECT_EQ(released_, (std::vector<uint64_t>{2})) << "it was refused";
  ASSERT_TRUE(Open(Info(0, 100), 3).ok());
  EXPECT_EQ(released_, (std::vector<uint64_t>{2, 1})) << "the process has a newer one";
  Died(1);
  EXPECT_TRUE(ended_.empty());
  Close(token);
  EXPECT_EQ(released_, (std::vector<uint64_t>{2, 1, 3}));
  ASSERT_TRUE(Open(Info(1, 101), 4).ok());
  Disconnected(4);
  Advance(kLost);
  EXPECT_EQ(released_.back(), 4u) << "it is lost";
  ASSERT_TRUE(Open(Info(2, 102), 5).ok());
  Died(5);
  EXPECT_EQ(released_.back(), 5u);
}

TEST_F(SessionsTest, ClosingEndsItOnce) {
  std::string token = *Open(Info(0, 100), 1);
  Close(token);
  EXPECT_EQ(ended_, (Ended{{100, SessionEnd::kClosed}}));
  Disconnected(1);
  Died(1);
  Close(token);
  Close("nobody's");
  Advance(2 * kLost);
  EXPECT_EQ(ended_.size(), 1u);
  // The same process may open another one.
  auto next = Open(Info(0, 100), 2);
  ASSERT_TRUE(next.ok());
  EXPECT_NE(*next, token);
}

TEST_F(SessionsTest, AnUnknownTokenIsUnauthenticated) {
  ASSERT_TRUE(Open(Info(0, 100), 1).ok());
  for (std::string token : {"", "token", "token11"}) {
    EXPECT_EQ(OnLoop([&] { return sessions_->Find(token).status().code(); }),
              absl::StatusCode::kUnauthenticated)
        << token;
  }
}

}  // namespace
}  // namespace ckptd
