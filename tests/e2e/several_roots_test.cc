// What operators see of a daemon with two roots: all of it, also while one of them hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SeveralRoots : public testing::Test {
 protected:
  SeveralRoots()
      : daemon_(site_, {.faulty = true,
                        .flags = {"--root", "other=" + site_.other_root(), "--block-size", "1MiB",
                                  "--arena-limit", "24MiB"}}) {
    EXPECT_TRUE(daemon_.ready()) << daemon_.Log();
  }

  void Save(const std::string& job, const std::string& root, const std::vector<std::string>& ids) {
    TestTrainer rank(site_, {"--job", job, "--root-label", root, "--rank", "0", "--world-size", "1",
                             "--tensor", "w:float32:1000"});
    for (const std::string& id : ids) {
      EXPECT_TRUE(rank.Ok(absl::StrCat("save ", id, " 1")));
      EXPECT_EQ(rank.AwaitOutcome(id)["event"], "committed");
    }
    EXPECT_TRUE(rank.Ok("close"));
    EXPECT_EQ(rank.Finish(), 0);
  }

  std::string Ids(const std::vector<std::string>& arguments) {
    std::vector<std::string> ids;
    const CommandResult list = Ckptctl(site_, arguments);
    EXPECT_EQ(list.exit_code, 0) << list.err;
    for (const Json& checkpoint : list.json["checkpoints"]) ids.push_back(checkpoint["id"]);
    return absl::StrJoin(ids, " ");
  }

  TestSite site_;
  TestDaemon daemon_;
};

TEST_F(SeveralRoots, AreListedTogetherAndAnIdIsFoundInEach) {
  Save("job", "default", {"one", "two"});
  Save("job", "other", {"first", "second", "third", "two"});
  EXPECT_EQ(Ids({"list"}), Ids({"--job", "job", "list"}));
  EXPECT_EQ(Ids({"--root-label", "default", "list"}), "one two");
  EXPECT_EQ(Ids({"--root-label", "other", "list"}), "first second third two");
  const Json list = Ckptctl(site_, {"list"}).json["checkpoints"];
  ASSERT_EQ(list.size(), 6u) << list;
  EXPECT_THAT(list[5]["path"].get<std::string>(), HasSubstr(site_.other_root())) << list;

  EXPECT_EQ(Ckptctl(site_, {"latest"}).json["id"], "two");
  EXPECT_THAT(Ckptctl(site_, {"latest"}).json["path"].get<std::string>(),
              HasSubstr(site_.other_root()));
  for (const char* verb : {"show", "describe", "verify", "wait"}) {
    for (const char* id : {"one", "third"}) {
      const CommandResult result = Ckptctl(site_, {verb, id});
      EXPECT_EQ(result.exit_code, 0) << verb << " " << id << result.err;
      EXPECT_EQ(result.err, "") << verb;
    }
    EXPECT_EQ(Ckptctl(site_, {verb, "none"}).exit_code, 3) << verb;
    EXPECT_EQ(Ckptctl(site_, {"--root-label", "default", verb, "third"}).exit_code, 3) << verb;
    // Which of two it is, is said.
    const CommandResult both = Ckptctl(site_, {verb, "two"});
    EXPECT_EQ(both.exit_code, 0) << verb << both.err;
    EXPECT_THAT(both.err, AllOf(HasSubstr("root \"other\""), HasSubstr("root \"default\""),
                                HasSubstr("--root-label")))
        << verb;
    const CommandResult named = Ckptctl(site_, {"--root-label", "default", verb, "two"});
    EXPECT_EQ(named.exit_code, 0) << verb << named.err;
    EXPECT_EQ(named.err, "") << verb;
  }
  EXPECT_EQ(Ckptctl(site_, {"verify"}).json["checked"].size(), 6u);
  EXPECT_EQ(Ckptctl(site_, {"--root-label", "none", "list"}).exit_code, 3);
}

TEST_F(SeveralRoots, LoseOnlyWhatIsNamedClearly) {
  Save("job", "default", {"one", "two", "three"});
  Save("job", "other", {"two", "four", "five"});
  const std::string all = Ids({"list"});
  const CommandResult refused = Ckptctl(site_, {"delete", "one", "two", "--yes"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, AllOf(HasSubstr(site_.root()), HasSubstr(site_.other_root()),
                                 HasSubstr("--root-label")));
  EXPECT_EQ(Ckptctl(site_, {"delete", "one", "none", "--yes"}).exit_code, 3);
  EXPECT_EQ(Ids({"list"}), all);

  // Each root keeps its newest.
  EXPECT_EQ(Ckptctl(site_, {"delete", "three", "--yes"}).exit_code, 9);
  EXPECT_EQ(Ckptctl(site_, {"delete", "four", "one", "four", "--yes"}).json["deleted"],
            Json({"four", "one"}));
  EXPECT_EQ(Ckptctl(site_, {"--root-label", "default", "delete", "two", "--yes"}).exit_code, 0);
  EXPECT_EQ(Ids({"--root-label", "default", "list"}), "three");
  EXPECT_EQ(Ids({"--root-label", "other", "list"}), "two five");
  EXPECT_EQ(Ckptctl(site_, {"delete", "two", "--yes"}).exit_code, 0);
  EXPECT_EQ(Ids({"--root-label", "other", "list"}), "five");
}

TEST_F(SeveralRoots, HaveTheJobsOfAll) {
  Save("job", "default", {"one"});
  Save("solo", "other", {"two"});
  const CommandResult several = Ckptctl(site_, {"latest"});
  EXPECT_EQ(several.exit_code, 2);
  EXPECT_THAT(several.err, HasSubstr("job, solo"));
  EXPECT_EQ(Ckptctl(site_, {"--job", "solo", "latest"}).json["id"], "two");
  EXPECT_EQ(Ckptctl(site_, {"--job", "solo", "show", "two"}).exit_code, 0);
  EXPECT_EQ(Ckptctl(site_, {"--job", "solo", "show", "one"}).exit_code, 3);
  EXPECT_EQ(Ckptctl(site_, {"--job", "none", "list"}).exit_code, 3);
}

TEST_F(SeveralRoots, AreReadWhileOneHangs) {
  Save("job", "default", {"one"});
  Save("solo", "other", {"two"});
  site_.SetFaults("op:solo=hang");
  auto ask = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {kCkptctlBinary, "--socket", site_.socket(), "--timeout", "3s"});
    return RunProgram(arguments);
  };
  for (const char* verb : {"list", "latest"}) {
    const CommandResult result = ask({verb});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr("one"), Not(HasSubstr("two"))));
    EXPECT_THAT(result.err, HasSubstr("not read: root \"other\" (" + site_.other_root()));
  }
  const CommandResult verify = ask({"verify"});
  EXPECT_EQ(verify.exit_code, 8) << "not all are known to be well" << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("one"));
  EXPECT_EQ(ask({"--job", "solo", "show", "two"}).exit_code, 8);
  EXPECT_EQ(ask({"--job", "job", "wait", "one"}).exit_code, 0);
  const CommandResult refused = ask({"--job", "job", "delete", "one", "--yes", "--allow-newest"});
  EXPECT_EQ(refused.exit_code, 8) << "the other root may have one, too";
  EXPECT_THAT(refused.err, HasSubstr("--root-label"));
  EXPECT_EQ(ask({"--root-label", "default", "delete", "one", "--yes", "--allow-newest"}).exit_code,
            0);
}

}  // namespace
}  // namespace ckptd
