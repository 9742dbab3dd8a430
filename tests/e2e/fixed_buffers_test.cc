// Registered buffers are in use where they are allowed: the daemon's arenas are known to its ring.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/support/processes.h"

namespace ckptd {
namespace {

TEST(FixedBuffers, AreInUseForTheArenaOfARank) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  Json root = Ckptctl(site, {"status"}).json["roots"][0];
  if (::geteuid() != 0) GTEST_SKIP() << "locked memory is limited for uid " << ::geteuid();
  if (root["io"] != "uring") {
    GTEST_SKIP() << "io_uring is not available: " << root["io_reason"].get<std::string>();
  }
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:3000x1000"});
  rank.Ok("fill 1");
  rank.Ok("save a 1");
  EXPECT_EQ(rank.AwaitOutcome("a")["event"], "committed");
  root = Ckptctl(site, {"status"}).json["roots"][0];
  EXPECT_EQ(root["fixed_buffers"], true) << root.dump();
  EXPECT_TRUE(rank.Ok("load a 0s"));
  EXPECT_EQ(rank.Do("check 1")["equal"], true);
}

TEST(FixedBuffers, ThatAreSwitchedOffAreNotInUseAndTheBytesAreTheSame) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--fixed-buffers", "off"}});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:3000x1000"});
  rank.Ok("fill 1");
  rank.Ok("save a 1");
  EXPECT_EQ(rank.AwaitOutcome("a")["event"], "committed");
  EXPECT_EQ(Ckptctl(site, {"status"}).json["roots"][0]["fixed_buffers"], false);
  EXPECT_TRUE(rank.Ok("load a 0s"));
  EXPECT_EQ(rank.Do("check 1")["equal"], true);
}

}  // namespace
}  // namespace ckptd
