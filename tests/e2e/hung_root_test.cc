// A root that hangs costs its own saves, in bounded time, and nobody else anything.

#include <gtest/gtest.h>

#include <string>

#include "absl/time/clock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

class HungRoot : public testing::Test {
 protected:
  HungRoot()
      : daemon_(site_, {.faulty = true,
                        .flags = {"--root", "other=" + site_.other_root(),
                                  "--attempt-timeout", "2s"}}),
        stuck_(site_, {"--rank", "0", "--world-size", "1", "--tensor", "w:float32:1048576"}),
        free_(site_, {"--job", "free", "--root-label", "other", "--rank", "0", "--world-size", "1",
                      "--tensor", "w:float32:1000"}) {}

  void ExpectTheRestGoesOn() {
    absl::Time before = absl::Now();
    CommandResult status = Ckptctl(site_, {"status"});
    EXPECT_EQ(status.exit_code, 0) << status.err;
    EXPECT_LT(absl::Now() - before, absl::Seconds(5))
        << "a process start on a loaded machine, and no more";
    ASSERT_TRUE(free_.Ok("save elsewhere 1"));
    EXPECT_EQ(free_.AwaitOutcome("elsewhere")["event"], "committed");
  }

  TestSite site_;
  TestDaemon daemon_;
  TestTrainer stuck_;
  TestTrainer free_;
};

TEST_F(HungRoot, WritesThatNeverEndFailTheSaveAndTheOtherRootCommits) {
  ASSERT_TRUE(stuck_.Ok("fill 1"));
  site_.SetFaults("write:job/attempts@2+=hang");
  stuck_.Send("save stuck 1");
  ExpectTheRestGoesOn();
  Json outcome = stuck_.AwaitOutcome("stuck");
  EXPECT_EQ(outcome["event"], "failed");
  EXPECT_EQ(outcome["code"], "DEADLINE_EXCEEDED") << outcome;
}

TEST_F(HungRoot, ARootThatDoesNotEvenRenameIsUnknownAndTakesNoMoreSaves) {
  ASSERT_TRUE(stuck_.Ok("fill 1"));
  site_.SetFaults("fsync:job/attempts@2+=hang;rename:job/=hang");
  ASSERT_TRUE(stuck_.Ok("save stuck 1"));
  ExpectTheRestGoesOn();
  Json outcome = stuck_.AwaitOutcome("stuck");
  EXPECT_EQ(outcome["event"], "failed");
  EXPECT_EQ(outcome["code"], "UNKNOWN") << outcome;
  Json roots = Ckptctl(site_, {"status"}).json["roots"];
  EXPECT_EQ(roots[0]["state"], "unhealthy") << roots;
  EXPECT_EQ(roots[1]["state"], "ok") << roots;
  EXPECT_EQ(stuck_.Do("save again 2")["code"], "UNAVAILABLE");

  daemon_.Kill();  // The next start looks, and decides.
  TestDaemon next(site_, {.flags = {"--root", "other=" + site_.other_root(),
                                    "--reattach-timeout", "2s"}});
  EXPECT_TRUE(Eventually([&] {
    return Ckptctl(site_, {"--job", "job", "list"}).json["attempts"].empty();
  }));
  EXPECT_EQ(Ckptctl(site_, {"verify"}).exit_code == 6, false);
}

}  // namespace
}  // namespace ckptd
