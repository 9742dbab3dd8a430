// A job that starts again, without saying so: nothing of its two lives is ever mixed.

#include <gtest/gtest.h>

#include <string>

#include "tests/support/processes.h"

namespace ckptd {
namespace {

std::vector<std::string> Rank(const std::string& rank, const std::string& incarnation) {
  return {"--rank",        rank,        "--world-size", "2",
          "--incarnation", incarnation, "--tensor",     "w:float32:64x64:split=0"};
}

// The incarnation of both lives: the same, as if there were none, or a new one as it should be.
class TwoLives : public testing::TestWithParam<const char*> {};

TEST_P(TwoLives, AnAttemptOfTheFirstIsNotCompletedByTheSecond) {
  TestSite site;
  TestDaemon daemon(site);
  {
    TestTrainer alone(site, Rank("0", "1"));
    ASSERT_TRUE(alone.Ok("fill 1"));
    ASSERT_TRUE(alone.Ok("save a 1"));
    ASSERT_TRUE(alone.Ok("save b 1"));
    alone.process().Signal(SIGKILL);
    alone.process().AwaitEnd();
  }
  TestTrainer one(site, Rank("1", GetParam()));  // Before rank 0 is back.
  ASSERT_TRUE(one.Ok("fill 2"));
  one.Send("save a 2");
  TestTrainer zero(site, Rank("0", GetParam()));
  ASSERT_TRUE(zero.Ok("fill 2"));
  zero.Send("save a 2");
  EXPECT_EQ(one.AwaitOutcome("a")["event"], "committed");
  EXPECT_EQ(zero.AwaitOutcome("a")["event"], "committed");
  EXPECT_EQ(one.Answer("save")["ok"], true);
  EXPECT_EQ(zero.Answer("save")["ok"], true);
  for (TestTrainer* rank : {&zero, &one}) {
    ASSERT_TRUE(rank->Ok("load a 60s"));
    EXPECT_EQ(rank->Do("check 2")["equal"], true);
  }
  EXPECT_EQ(ListedIds(site), std::vector<std::string>{"a"});
  Json failures = Ckptctl(site, {"status"}).json["failures"];
  ASSERT_EQ(failures.size(), 2u) << failures;
  EXPECT_NE(failures[0]["error"]["message"].dump().find("started again"), std::string::npos)
      << failures;
}

INSTANTIATE_TEST_SUITE_P(Incarnations, TwoLives, testing::Values("1", "2"));

}  // namespace
}  // namespace ckptd
