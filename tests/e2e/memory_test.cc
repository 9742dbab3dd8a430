// When memory is short, one save fails with numbers; nobody is killed.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/memory_group.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

void ExpectSaves(TestTrainer& rank, const std::string& id, const std::string& step) {
  ASSERT_TRUE(rank.Ok("fill " + step));
  ASSERT_TRUE(rank.Ok("save " + id + " " + step));
  EXPECT_EQ(rank.AwaitOutcome(id)["event"], "committed");
  ASSERT_TRUE(rank.Ok("load " + id + " 60s"));
  EXPECT_EQ(rank.Do("check " + step)["equal"], true);
}

TEST(Memory, AnImageLargerThanTheCgroupFailsWithBothNumbersAndNobodyDies) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--arena-limit", "1GiB"}});
  MemoryGroup group(daemon.pid(), "67108864");
  if (!group.made()) GTEST_SKIP() << "needs root and a writable memory cgroup of version 1";
  TestTrainer large(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:100663296"});
  ASSERT_TRUE(large.Ok("fill 1"));
  Json answer = large.Do("save large 1");
  EXPECT_EQ(answer["code"], "RESOURCE_EXHAUSTED") << answer;
  std::string message = answer["message"];
  EXPECT_NE(message.find("100663296"), std::string::npos) << message;
  EXPECT_NE(message.find("memory.limit_in_bytes leaves"), std::string::npos) << message;
  EXPECT_TRUE(daemon.process().Running());
  EXPECT_TRUE(large.process().Running());
  EXPECT_EQ(large.Do("prewarm")["code"], "RESOURCE_EXHAUSTED");
  TestTrainer small(
      site, {"--job", "small", "--rank", "0", "--world-size", "1", "--tensor", "w:uint8:1048576"});
  ExpectSaves(small, "fits", "2");
  daemon.Kill();
}

TEST(Memory, TheDefaultLimitKeepsToTheCgroupAndLargerStatesStream) {
  TestSite site;
  // The limit is looked up at the start: a parent that is in the group already starts the daemon
  // there.
  MemoryGroup group(getpid(), "268435456");
  if (!group.made()) GTEST_SKIP() << "needs root and a writable memory cgroup of version 1";
  TestDaemon daemon(site, {});
  std::ofstream("/sys/fs/cgroup/memory/cgroup.procs") << getpid();
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:314572800"});
  ExpectSaves(rank, "streams", "1");
  Json status = Ckptctl(site, {"status"}).json;
  EXPECT_LE(status["memory"]["arena_limit_bytes"].get<uint64_t>(), 268435456u / 10 * 9);
  EXPECT_NE(status["memory"]["warnings"].dump().find("streams"), std::string::npos)
      << status["memory"];
  daemon.Kill();
}

TEST(Memory, AStateOfAGibibyteStreamsThroughAnEighthOfIt) {
  TestSite site;
  TestDaemon daemon(site, {.flags = {"--arena-limit", "128MiB"}});
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:float32:16384x16384"});
  ExpectSaves(rank, "big", "3");
  Json status = Ckptctl(site, {"status"}).json;
  EXPECT_LE(status["memory"]["arena_bytes"].get<uint64_t>(), 128u << 20);
  EXPECT_NE(status["memory"]["warnings"].dump().find("--arena-limit"), std::string::npos)
      << status["memory"];
}

}  // namespace
}  // namespace ckptd
