// A full disk fails one save, with numbers, and nothing else.

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <string>

#include "tests/support/processes.h"

namespace ckptd {
namespace {

// A file system of 64 MiB at the site's root.
class SmallRoot {
 public:
  explicit SmallRoot(const TestSite& site) : site_(site), path_(site.root()) {
    mkdir(path_.c_str(), 0755);
    mounted_ = mount("ckptd-test", path_.c_str(), "tmpfs", 0, "size=64m") == 0;
  }
  ~SmallRoot() {
    site_.CheckForeignFiles();
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  uint64_t FreeBytes() const {
    struct statvfs info;
    EXPECT_EQ(statvfs(path_.c_str(), &info), 0);
    return info.f_bavail * info.f_frsize;
  }

 private:
  const TestSite& site_;
  const std::string path_;
  bool mounted_ = false;
};

TEST(FullDisk, ASaveThatDoesNotFitIsRefusedAndTheNextThatFitsCommits) {
  TestSite site;
  SmallRoot root(site);
  if (!root.mounted()) GTEST_SKIP() << "needs to mount a file system";
  TestDaemon daemon(site);
  TestTrainer small(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:20971520"});
  ASSERT_TRUE(small.Ok("fill 1"));
  ASSERT_TRUE(small.Ok("save one 1"));
  ASSERT_EQ(small.AwaitOutcome("one")["event"], "committed");
  uint64_t free_before = root.FreeBytes();

  TestTrainer large(
      site, {"--job", "large", "--rank", "0", "--world-size", "1", "--tensor", "w:uint8:62914560"});
  Json refused = large.Do("save two 2");
  EXPECT_EQ(refused["code"], "RESOURCE_EXHAUSTED") << refused;
  std::string message = refused["message"];
  EXPECT_NE(message.find("62914560"), std::string::npos) << message;
  EXPECT_NE(message.find(site.root()), std::string::npos) << message;
  EXPECT_TRUE(Eventually([&] { return root.FreeBytes() + (1 << 20) > free_before; }))
      << root.FreeBytes();
  Json failures = Ckptctl(site, {"status"}).json["failures"];
  EXPECT_EQ(failures[0]["error"]["phase"], "admit") << failures;

  ASSERT_TRUE(small.Ok("load one 60s"));
  EXPECT_EQ(small.Do("check 1")["equal"], true);
  ASSERT_TRUE(small.Ok("fill 3"));
  ASSERT_TRUE(small.Ok("save three 3"));
  EXPECT_EQ(small.AwaitOutcome("three")["event"], "committed");
}

TEST(FullDisk, ADiskThatFillsUpLateFailsTheSaveAndGivesItsSpaceBack) {
  TestSite site;
  SmallRoot root(site);
  if (!root.mounted()) GTEST_SKIP() << "needs to mount a file system";
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:41943040"});
  ASSERT_TRUE(rank.Ok("fill 1"));
  site.SetFaults("first-write=delay:2s");  // Between the check of the space and the first byte …
  rank.Send("save one 1");
  ASSERT_TRUE(Eventually([&] { return !Ckptctl(site, {"list"}).json["attempts"].empty(); }));
  WriteTextFile(site.root() + "/foreign", std::string(40 << 20, 'x'));  // … somebody else takes it.
  Json outcome = rank.AwaitOutcome("one");
  EXPECT_EQ(outcome["event"], "failed");
  EXPECT_EQ(outcome["code"], "RESOURCE_EXHAUSTED") << outcome;
  EXPECT_TRUE(Eventually([&] { return root.FreeBytes() > (20u << 20); })) << root.FreeBytes();
  unlink((site.root() + "/foreign").c_str());
  ASSERT_TRUE(rank.Ok("fill 2"));
  ASSERT_TRUE(rank.Ok("save two 2"));
  EXPECT_EQ(rank.AwaitOutcome("two")["event"], "committed");
  EXPECT_TRUE(daemon.process().Running());
}

TEST(FullDisk, WhatWasDeletedGivesWayToASaveBeforeItsGraceIsOver) {
  TestSite site;
  SmallRoot root(site);
  if (!root.mounted()) GTEST_SKIP() << "needs to mount a file system";
  TestDaemon daemon(site, {.flags = {"--trash-grace", "1h"}});
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:20971520"});
  for (const char* step : {"1", "2", "3"}) {
    ASSERT_TRUE(rank.Ok(std::string("fill ") + step));
    ASSERT_TRUE(rank.Ok(std::string("save step-") + step + " " + step));
    ASSERT_EQ(rank.AwaitOutcome(std::string("step-") + step)["event"], "committed");
  }
  EXPECT_EQ(rank.Do("save step-4 4")["code"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(Ckptctl(site, {"delete", "step-1", "step-2", "--yes"}).exit_code, 0);
  EXPECT_LT(root.FreeBytes(), 20u << 20) << "their grace is not over";
  ASSERT_TRUE(rank.Ok("fill 5"));
  ASSERT_TRUE(rank.Ok("save step-5 5"));
  EXPECT_EQ(rank.AwaitOutcome("step-5")["event"], "committed");
  EXPECT_EQ(ListedIds(site), (std::vector<std::string>{"step-3", "step-5"}));
  EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0);
}

TEST(FullDisk, IsForetoldWhileTwoCheckpointsStillFit) {
  TestSite site;
  SmallRoot root(site);
  if (!root.mounted()) GTEST_SKIP() << "needs to mount a file system";
  TestDaemon daemon(site, {.flags = {"--trash-grace", "0s"}});
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:20971520"});
  const auto status = [&] { return Ckptctl(site, {"status"}).json["roots"][0]; };
  ASSERT_TRUE(rank.Ok("save one 1"));
  ASSERT_EQ(rank.AwaitOutcome("one")["event"], "committed");
  ASSERT_TRUE(Eventually([&] { return status()["free_bytes"] < 50 << 20; }));
  EXPECT_TRUE(status()["reason"].is_null()) << status();
  ASSERT_TRUE(rank.Ok("save two 2"));
  ASSERT_EQ(rank.AwaitOutcome("two")["event"], "committed");
  EXPECT_TRUE(Eventually([&] { return !status()["reason"].is_null(); }));
  EXPECT_EQ(status()["state"], "ok");
  EXPECT_NE(daemon.Log().find("root.filling"), std::string::npos) << daemon.Log();
  EXPECT_EQ(Ckptctl(site, {"delete", "one", "--yes"}).exit_code, 0);
  EXPECT_TRUE(Eventually([&] { return status()["reason"].is_null(); })) << status();
}

TEST(FullDisk, ADaemonStartsWithoutAByteFree) {
  TestSite site;
  SmallRoot root(site);
  if (!root.mounted()) GTEST_SKIP() << "needs to mount a file system";
  WriteTextFile(site.root() + "/foreign", std::string(root.FreeBytes(), 'x'));
  ASSERT_EQ(root.FreeBytes(), 0u);
  TestDaemon daemon(site);
  EXPECT_TRUE(daemon.ready()) << daemon.Log();
  EXPECT_NE(daemon.Log().find("no room to write who holds it"), std::string::npos) << daemon.Log();
  EXPECT_EQ(Ckptctl(site, {"status"}).json["roots"][0]["free_bytes"], 0);
  // It is locked all the same.
  TestDaemon second(site, {.socket = site.folder() + "/s2"});
  EXPECT_FALSE(second.ready());
  EXPECT_EQ(second.process().AwaitEnd(), 9);
}

}  // namespace
}  // namespace ckptd
