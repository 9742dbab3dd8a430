// A root that does not answer when the daemon starts costs the others nothing, and is there again
// once it answers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

constexpr char kStillRunning[] = "recovery is still running";

class LateRoot : public testing::Test {
 protected:
  LateRoot() {
    site_.SetFaults("write:late/attempts@2+=hang");
    Start("32MiB");
  }

  void Start(const std::string& arena_limit) {
    daemon_.emplace(site_, TestDaemon::Options{
                               .faulty = true,
                               .flags = {"--root", "other=" + site_.other_root(), "--block-size",
                                         "1MiB", "--arena-limit", arena_limit}});
    EXPECT_TRUE(daemon_->ready()) << daemon_->Log();
  }

  // The daemon dies while it writes "a" of the job "late", and this is the plan of the next one,
  // which has room for the arena that comes back and for another.
  void Restart(const std::string& faults) {
    daemon_->Kill();
    site_.SetFaults(faults);
    Start("40MiB");
  }

  TestTrainer Trainer(const std::string& job, const std::string& root, int mebibytes) {
    return TestTrainer(site_, {"--job", job, "--root-label", root, "--rank", "0", "--world-size",
                               "1", "--tensor", absl::StrCat("w:uint8:", mebibytes << 20)});
  }

  std::string AttemptOf(const std::string& job) {
    Json attempt;
    EXPECT_TRUE(Eventually([&] {
      const Json attempts = Ckptctl(site_, {"status"}).json["attempts"];
      for (const Json& each : attempts) {
        if (each["job"] == job && each["staged_bytes"] > 0) attempt = each["attempt"];
      }
      return attempt.is_string();
    }));
    return attempt.is_string() ? attempt.get<std::string>() : "";
  }

  void ExpectTheRestGoesOn() {
    absl::Time before = absl::Now();
    const Json status = Ckptctl(site_, {"status"}).json;
    EXPECT_LT(absl::Now() - before, absl::Seconds(5))
        << "a process start on a loaded machine, and no more";
    EXPECT_EQ(status["roots"][0]["state"], "unhealthy") << status;
    EXPECT_EQ(status["roots"][0]["reason"], kStillRunning) << status;
    EXPECT_EQ(status["roots"][1]["state"], "ok") << status;
    TestTrainer free = Trainer("free", "other", 1);
    ASSERT_TRUE(free.Ok("save elsewhere 1"));
    EXPECT_EQ(free.AwaitOutcome("elsewhere")["event"], "committed");
  }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
};

TEST_F(LateRoot, ThatHangsIsUnhealthyAndTheOtherCommits) {
  TestTrainer late = Trainer("late", "default", 8);
  ASSERT_TRUE(late.Ok("save a 1"));
  AttemptOf("late");
  Restart("fsyncdir:late/=hang");
  ExpectTheRestGoesOn();
  const CommandResult list = Ckptctl(site_, {"--job", "late", "list"});
  EXPECT_NE(list.exit_code, 0) << list.out;
  EXPECT_THAT(list.err, HasSubstr(kStillRunning));
  EXPECT_THAT(list.err, HasSubstr("default"));
  TestTrainer next = Trainer("next", "default", 1);
  const Json refused = next.Do("save b 2");
  EXPECT_EQ(refused["code"], "UNAVAILABLE") << refused;
  EXPECT_THAT(refused["message"].get<std::string>(), HasSubstr(kStillRunning));
  EXPECT_EQ(next.Do("load latest 1s")["code"], "UNAVAILABLE");
  EXPECT_EQ(daemon_->Stop(), 0) << "it does not wait for the root";
}

// What is staged is offered to the new daemon long before its root is there.
TEST_F(LateRoot, GoesOnWithAStagedSaveOnceItAnswers) {
  TestTrainer late = Trainer("late", "default", 8);
  ASSERT_TRUE(late.Ok("save a 1"));
  const std::string attempt = AttemptOf("late");
  Restart("fsyncdir:late/@1=delay:8s");
  ExpectTheRestGoesOn();
  EXPECT_EQ(late.AwaitOutcome("a")["event"], "committed");
  const Json status = Ckptctl(site_, {"status"}).json;
  EXPECT_EQ(status["roots"][0]["state"], "ok") << status;
  EXPECT_EQ(status["roots"][0]["reason"], nullptr) << status;
  EXPECT_EQ(Ckptctl(site_, {"--job", "late", "show", "a"}).json["attempt"], attempt);
  EXPECT_EQ(Ckptctl(site_, {"--job", "late", "verify", "a"}).exit_code, 0);
}

// The daemon hears of it before it has the save again.
TEST_F(LateRoot, AbortsASaveThatIsCancelledBeforeItAnswers) {
  TestTrainer late = Trainer("late", "default", 8);
  ASSERT_TRUE(late.Ok("save a 1"));
  AttemptOf("late");
  Restart("fsyncdir:late/@1=delay:8s");
  ASSERT_TRUE(Eventually([&] { return Ckptctl(site_, {"status"}).json["sessions"].size() == 1; }));
  ASSERT_TRUE(late.Ok("cancel a"));
  const Json outcome = late.AwaitOutcome("a");
  EXPECT_EQ(outcome["event"], "failed") << outcome;
  EXPECT_EQ(outcome["code"], "CANCELLED") << outcome;
  EXPECT_EQ(Ckptctl(site_, {"--job", "late", "show", "a"}).json["state"], "failed");
}

TEST_F(LateRoot, ThatIsGivenUpEndsTheSavesThatWaitForIt) {
  TestTrainer late = Trainer("late", "default", 8);
  ASSERT_TRUE(late.Ok("save a 1"));
  AttemptOf("late");
  Restart("fsyncdir:late/=error:EIO");
  const Json outcome = late.AwaitOutcome("a");
  EXPECT_EQ(outcome["event"], "failed") << outcome;
  EXPECT_EQ(outcome["code"], "UNKNOWN") << outcome;
  EXPECT_THAT(outcome["message"].get<std::string>(), HasSubstr("recovery"));
}

// A save that streams through a small arena has most of its bytes still with its rank.
TEST_F(LateRoot, GoesOnWithASaveThatIsNotStaged) {
  TestTrainer late = Trainer("late", "default", 64);
  late.Send("save a 1");
  const std::string attempt = AttemptOf("late");
  Restart("fsyncdir:late/@1=delay:14s");
  ExpectTheRestGoesOn();
  EXPECT_EQ(late.AwaitOutcome("a")["event"], "committed");
  EXPECT_EQ(Ckptctl(site_, {"--job", "late", "show", "a"}).json["attempt"], attempt);
  EXPECT_EQ(Ckptctl(site_, {"--job", "late", "verify", "a"}).exit_code, 0);
}

// Nobody comes back for it: what was left is settled all the same.
TEST_F(LateRoot, SettlesWhatWasLeftOnceItAnswers) {
  {
    TestTrainer late = Trainer("late", "default", 8);
    ASSERT_TRUE(late.Ok("save a 1"));
    AttemptOf("late");
    daemon_->Kill();
  }
  Restart("fsyncdir:late/@1=delay:7s");
  ExpectTheRestGoesOn();
  EXPECT_TRUE(Eventually([&] {
    const Json list = Ckptctl(site_, {"--job", "late", "list", "--all"}).json;
    return list.is_object() && list["attempts"].size() == 1 &&
           list["attempts"][0]["state"] == "failed";
  }));
  EXPECT_EQ(Ckptctl(site_, {"status"}).json["roots"][0]["state"], "ok");
}

}  // namespace
}  // namespace ckptd
