#include "client/cpp/save_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeClock : public Clock {
 public:
  absl::Duration Monotonic() const override { return now; }
  absl::Time Wall() const override { return absl::UnixEpoch(); }
  absl::Duration now;
};

struct SaveProgressTest : ::testing::Test {
  FakeClock clock;
  SaveProgress progress{"step-1", 1, "r", clock};
  FailureInfo failure{absl::AbortedError("gone"), 3, "node", "stage"};
};

TEST_F(SaveProgressTest, PassesEveryStateOnTheWay) {
  std::vector<SaveState> seen;
  progress.OnState([&](SaveState state, const FailureInfo&) { seen.push_back(state); });
  clock.now = absl::Seconds(2);
  progress.Reach(SaveState::kStaged);
  progress.Reach(SaveState::kAdmitted);  // Told again after a reconnect.
  clock.now = absl::Seconds(5);
  progress.Reach(SaveState::kCommitted);
  EXPECT_THAT(seen, ElementsAre(SaveState::kAdmitted, SaveState::kStaged, SaveState::kDurable,
                                SaveState::kCommitted));
  EXPECT_EQ(progress.report().staged_s, 2);
  EXPECT_EQ(progress.report().durable_s, 5);
  EXPECT_TRUE(progress.Wait(SaveState::kStaged, absl::ZeroDuration()).ok());
  progress.Fail(failure);
  EXPECT_EQ(progress.state(), SaveState::kCommitted) << "committed is the end";
}

TEST_F(SaveProgressTest, ALateCallbackHearsWhatHasPassed) {
  progress.Reach(SaveState::kStaged);
  std::vector<SaveState> seen;
  progress.OnState([&](SaveState state, const FailureInfo&) { seen.push_back(state); });
  EXPECT_THAT(seen, ElementsAre(SaveState::kAdmitted, SaveState::kStaged));
}

TEST_F(SaveProgressTest, WaitersGetTheFailure) {
  std::thread waiter([&] {
    EXPECT_EQ(progress.Wait(SaveState::kCommitted, absl::InfiniteDuration()),
              absl::AbortedError("gone (rank 3, node node, stage)"));
  });
  progress.Fail(failure);
  waiter.join();
  EXPECT_EQ(progress.failure().status, absl::AbortedError("gone"));
  EXPECT_EQ(progress.failure().rank, 3u);
  progress.Reach(SaveState::kCommitted);
  EXPECT_EQ(progress.state(), SaveState::kFailed);
}

TEST_F(SaveProgressTest, AFailureIsToldWithWhatIsKnownOfItsPlace) {
  failure.status = absl::AbortedError("rank 3 died");
  progress.Fail(failure);
  EXPECT_EQ(progress.Wait(SaveState::kStaged, absl::ZeroDuration()),
            absl::AbortedError("rank 3 died (node node, stage)"));
  SaveProgress own("step-2", 2, "r", clock);
  own.Fail({absl::UnavailableError("no daemon"), 0, "", "admit"});
  EXPECT_EQ(own.Wait(SaveState::kStaged, absl::ZeroDuration()),
            absl::UnavailableError("no daemon"));
}

TEST_F(SaveProgressTest, AWaitEndsInTimeAndSaysWhatItWaitedFor) {
  progress.Reach(SaveState::kAdmitted);
  const absl::Status status = progress.Wait(SaveState::kDurable, absl::Milliseconds(5));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("step-1 is not durable"));
}

TEST_F(SaveProgressTest, AClosedSessionFreesItsWaiters) {
  progress.Reach(SaveState::kStaged);
  progress.Detach();
  EXPECT_TRUE(progress.Wait(SaveState::kStaged, absl::InfiniteDuration()).ok());
  EXPECT_EQ(progress.Wait(SaveState::kCommitted, absl::InfiniteDuration()).code(),
            absl::StatusCode::kCancelled);
  EXPECT_TRUE(progress.ended());
}

}  // namespace
}  // namespace ckptd
