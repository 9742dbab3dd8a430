// Storage that says no: read-only, over a quota or a limit. One save fails and says why; the daemon
// and the trainer go on. And what is stored has the modes that the job would have given it.
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> OneRank(const std::string& tensor) {
  return {"--rank", "0", "--world-size", "1", "--tensor", tensor};
}

Json Save(TestTrainer& rank, const std::string& id, int step) {
  rank.Ok(absl::StrCat("fill ", step));
  rank.Send(absl::StrCat("save ", id, " ", step));
  Json end = rank.AwaitOutcome(id);
  rank.Answer("save");
  return end;
}

void ExpectSavesAndLoads(TestTrainer& rank, const std::string& id, int step) {
  const Json end = Save(rank, id, step);
  EXPECT_EQ(end["event"], "committed") << end;
  rank.Ok("fill 0");
  rank.Ok(absl::StrCat("load ", id, " 0s"));
  EXPECT_EQ(rank.Do(absl::StrCat("check ", step))["equal"], true);
}

// An empty file system at the site's root.
class ReadOnlyMount {
 public:
  explicit ReadOnlyMount(const TestSite& site) : site_(site), path_(site.root()) {
    ::mkdir(path_.c_str(), 0755);
    mounted_ = ::mount("ckptd-test", path_.c_str(), "tmpfs", MS_RDONLY, "size=64m") == 0;
  }
  ~ReadOnlyMount() {
    if (!mounted_) return;
    site_.CheckForeignFiles();  // They go with the mount.
    ::umount2(path_.c_str(), MNT_DETACH);
  }
  ReadOnlyMount(const ReadOnlyMount&) = delete;
  ReadOnlyMount& operator=(const ReadOnlyMount&) = delete;

  bool mounted() const { return mounted_; }

 private:
  const TestSite& site_;
  const std::string path_;
  bool mounted_ = false;
};

TEST(ReadOnlyRoot, IsRefusedAtTheStartByName) {
  TestSite site;
  ReadOnlyMount root(site);
  if (!root.mounted()) GTEST_SKIP() << "needs to mount a file system";
  TestDaemon daemon(site);
  EXPECT_FALSE(daemon.ready());
  EXPECT_EQ(daemon.process().AwaitEnd(), 5) << daemon.Log();
  EXPECT_THAT(daemon.Log(), AllOf(HasSubstr(site.root()), HasSubstr("Read-only file system")));
}

// As a file system does that has met an error of its disk.
TEST(ReadOnlyRoot, ThatBecomesOneFailsSavesUntilItIsNoneAgain) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, OneRank("w:uint8:300000"));
  ExpectSavesAndLoads(rank, "one", 1);
  std::string plan;
  for (const char* operation :
       {"create", "write", "truncate", "rename", "mkdir:attempts/", "unlink"}) {
    absl::StrAppend(&plan, operation, "=error:EROFS;");
  }
  site.SetFaults(plan);
  const Json end = Save(rank, "two", 2);
  EXPECT_EQ(end["event"], "failed");
  EXPECT_THAT(end["message"].get<std::string>(),
              AllOf(HasSubstr("job/attempts"), HasSubstr("Read-only file system")));
  EXPECT_EQ(ListedIds(site), std::vector<std::string>{"one"});
  rank.Ok("load one 0s");
  EXPECT_EQ(rank.Do("check 1")["equal"], true);
  site.SetFaults("");
  ExpectSavesAndLoads(rank, "three", 3);
  EXPECT_EQ(ListedIds(site), (std::vector<std::string>{"one", "three"}));
}

// The limit of processes that this one starts meanwhile.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    ::signal(SIGXFSZ, SIG_DFL);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_ = {};
};

class LimitedFiles : public testing::TestWithParam<std::string> {};

TEST_P(LimitedFiles, FailTheSaveAndEndNobody) {
  TestSite site;
  std::optional<TestDaemon> daemon;
  {
    FileSizeLimit limit(24 << 20);
    daemon.emplace(
        site, TestDaemon::Options{.flags = {"--io", GetParam(), "--arena-limit", "16MiB",
                                            "--block-size", "4MiB", "--read-window", "16MiB"}});
  }
  ASSERT_TRUE(daemon->ready()) << daemon->Log();
  TestTrainer small(site, OneRank("w:uint8:20971520"));
  ExpectSavesAndLoads(small, "one", 1);
  small.Ok("close");
  TestTrainer large(
      site, {"--job", "large", "--rank", "0", "--world-size", "1", "--tensor", "w:uint8:41943040"});
  const Json end = Save(large, "two", 2);
  EXPECT_EQ(end["event"], "failed");
  EXPECT_EQ(end["code"], "RESOURCE_EXHAUSTED") << end;
  EXPECT_THAT(end["message"].get<std::string>(),
              AllOf(HasSubstr("File too large"), HasSubstr("shard-00000")));
  EXPECT_TRUE(daemon->process().Running()) << daemon->Log();
  EXPECT_EQ(ListedIds(site, "large"), std::vector<std::string>());
  large.Ok("close");
  TestTrainer next(site, {"--incarnation", "2", "--rank", "0", "--world-size", "1", "--tensor",
                          "w:uint8:20971520"});
  ExpectSavesAndLoads(next, "three", 3);
}

INSTANTIATE_TEST_SUITE_P(Engines, LimitedFiles, testing::Values("uring", "posix"),
                         [](const auto& info) { return info.param; });

TEST(LimitedMemoryFiles, NoArenaLargerThanTheLimitIsMadeAndTheSaveSaysSo) {
  TestSite site;
  std::optional<TestDaemon> daemon;
  {
    FileSizeLimit limit(24 << 20);
    daemon.emplace(site, TestDaemon::Options{});
  }
  ASSERT_TRUE(daemon->ready()) << daemon->Log();
  TestTrainer large(site, OneRank("w:uint8:41943040"));
  const Json end = Save(large, "two", 2);
  EXPECT_EQ(end["event"], "failed");
  EXPECT_EQ(end["code"], "RESOURCE_EXHAUSTED") << end;
  EXPECT_THAT(end["message"].get<std::string>(), HasSubstr("File too large"));
  EXPECT_TRUE(daemon->process().Running()) << daemon->Log();
}

TEST(Quota, ThatIsUsedUpFailsTheSaveNamingTheFile) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  TestTrainer rank(site, OneRank("w:uint8:300000"));
  ExpectSavesAndLoads(rank, "good-0", 1);
  int n = 0;
  for (const auto& [where, part] : std::vector<std::pair<std::string, std::string>>{
           {"mkdir:attempts/", "attempts/"},
           {"create:ATTEMPT.pb", "ATTEMPT.pb"},
           {"create:shard", "shard-00000"},
           {"write:shard", "shard-00000"},
           {"write:fragment", "fragment-"},
           {"create:MANIFEST", "MANIFEST"},
           {"rename:to job/checkpoints/", "checkpoints"}}) {
    SCOPED_TRACE(where);
    const std::string id = absl::StrCat("bad-", ++n);
    site.SetFaults(where + "=error:EDQUOT");
    const Json end = Save(rank, id, n);
    EXPECT_EQ(end["event"], "failed");
    EXPECT_EQ(end["code"], "RESOURCE_EXHAUSTED") << end;
    EXPECT_THAT(end["message"].get<std::string>(),
                AllOf(HasSubstr("Disk quota exceeded"), HasSubstr(part)));
    site.SetFaults("");
    ExpectSavesAndLoads(rank, absl::StrCat("good-", n), n);
    for (const auto& [path, content] : ReadTree(site.root() + "/job")) {
      EXPECT_FALSE(absl::StartsWith(path, "attempts/")) << path;
      EXPECT_FALSE(absl::StrContains(path, id) && absl::EndsWith(path, ".safetensors")) << path;
    }
  }
  EXPECT_TRUE(daemon.process().Running());
}

// --- Modes

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(::umask(mask)) {}
  ~Umask() { ::umask(before_); }

 private:
  const mode_t before_;
};

// Whatever is in the job's folder has the modes that the trainer itself would give it.
void ExpectModes(const std::string& folder, mode_t mask) {
  struct stat own;
  ASSERT_EQ(::stat(folder.c_str(), &own), 0);
  EXPECT_EQ(own.st_mode & 07777, 0777 & ~mask) << folder;
  for (const auto& [path, content] : ReadTree(folder)) {
    struct stat info;
    ASSERT_EQ(::stat((folder + "/" + path).c_str(), &info), 0) << path;
    const mode_t wanted = (S_ISDIR(info.st_mode) ? 0777 : 0666) & ~mask;
    EXPECT_EQ(info.st_mode & 07777, wanted) << std::oct << info.st_mode << " " << path;
    EXPECT_EQ(info.st_gid, own.st_gid) << path;
  }
}

class Modes : public testing::TestWithParam<mode_t> {};

TEST_P(Modes, AreThoseOfTheJobsUmaskAndNotOfTheDaemons) {
  const mode_t mask = GetParam();
  TestSite site;
  ASSERT_EQ(::mkdir(site.root().c_str(), 0755), 0);
  const TestDaemon::Options options = {
      .faulty = true, .flags = {"--trash-grace", "1h", "--reattach-timeout", "5s"}};
  std::optional<TestDaemon> daemon;
  {
    Umask daemons(077);
    daemon.emplace(site, options);
  }
  Umask jobs(mask);
  TestTrainer rank(site, {"--rank", "0", "--world-size", "1", "--tensor", "w:uint8:300000",
                          "--on-existing", "replace"});
  // In flight:
  site.SetFaults("write:shard=rate:1MiB");
  rank.Ok("fill 1");
  rank.Ok("save one 1");
  ExpectModes(site.root() + "/job", mask);
  site.SetFaults("");
  ASSERT_EQ(rank.AwaitOutcome("one")["event"], "committed");
  ExpectModes(site.root() + "/job", mask);
  // Failed, committed, deleted, replaced, verified:
  site.SetFaults("write:fragment=error:EIO");
  EXPECT_EQ(Save(rank, "bad", 2)["event"], "failed");
  site.SetFaults("");
  ExpectSavesAndLoads(rank, "two", 2);
  ExpectSavesAndLoads(rank, "three", 3);
  ExpectSavesAndLoads(rank, "four", 4);
  EXPECT_EQ(Ckptctl(site, {"delete", "two", "--yes"}).exit_code, 0);
  EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0);
  ExpectModes(site.root() + "/job", mask);
  // Finished by the daemon's next life:
  site.SetFaults("commit-renamed=kill");
  rank.Ok("fill 5");
  rank.Send("save five 5");
  EXPECT_EQ(daemon->process().AwaitEnd(), -SIGKILL);
  site.SetFaults("");
  {
    Umask daemons(077);
    daemon.emplace(site, options);
  }
  EXPECT_EQ(rank.AwaitOutcome("five")["event"], "committed");
  rank.Answer("save");
  ExpectSavesAndLoads(rank, "six", 6);
  ExpectModes(site.root() + "/job", mask);
}

INSTANTIATE_TEST_SUITE_P(Umasks, Modes, testing::Values(mode_t{022}, mode_t{027}, mode_t{002}),
                         [](const auto& info) { return absl::StrCat("mask", info.param); });

}  // namespace
}  // namespace ckptd
