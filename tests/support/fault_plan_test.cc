#include "tests/support/fault_plan.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

using Kind = FaultAction::Kind;

std::unique_ptr<FaultInjector> Injector(absl::string_view plan) {
  auto injector =
      FaultInjector::Create({.plan = std::string(plan), .plan_file = "", .log_file = ""});
  EXPECT_TRUE(injector.ok()) << injector.status();
  return *std::move(injector);
}

// Which of the first ten writes of "a" the plan's rules hit: "..x.......".
std::string Hits(absl::string_view plan) {
  auto injector = Injector(plan);
  std::string hits;
  for (int i = 0; i < 10; ++i) {
    hits += injector->OnOperation(FaultOperation::kWrite, "a").has_value() ? 'x' : '.';
  }
  return hits;
}

std::string Read(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

void Write(const std::string& path, absl::string_view content) { std::ofstream(path) << content; }

TEST(FaultPlan, EveryActionIsParsed) {
  auto rules = ParseFaultPlan(
      "write=error:EIO; read:shard-0@3=short:100;write=flip:0;write=rate:1MiB;op@2+=delay:250ms;"
      "list=hang;rename=stop;op@17=kill;fsyncdir=kill-after;write=error:28;");
  ASSERT_TRUE(rules.ok()) << rules.status();
  ASSERT_EQ(rules->size(), 10u);
  EXPECT_EQ((*rules)[0].action.kind, Kind::kError);
  EXPECT_EQ((*rules)[0].action.error, EIO);
  EXPECT_EQ((*rules)[1].where, "read");
  EXPECT_EQ((*rules)[1].path_part, "shard-0");
  EXPECT_EQ((*rules)[1].first, 3u);
  EXPECT_TRUE((*rules)[1].only_first);
  EXPECT_EQ((*rules)[1].action.bytes, 100u);
  EXPECT_EQ((*rules)[1].text, "read:shard-0@3=short:100");
  EXPECT_EQ((*rules)[2].action.kind, Kind::kFlip);
  EXPECT_EQ((*rules)[3].action.kind, Kind::kRate);
  EXPECT_EQ((*rules)[3].action.bytes, 1u << 20);
  EXPECT_EQ((*rules)[4].action.delay, absl::Milliseconds(250));
  EXPECT_FALSE((*rules)[4].only_first);
  EXPECT_EQ((*rules)[5].action.kind, Kind::kHang);
  EXPECT_EQ((*rules)[6].action.kind, Kind::kStop);
  EXPECT_EQ((*rules)[7].action.kind, Kind::kKill);
  EXPECT_EQ((*rules)[8].action.kind, Kind::kKillAfter);
  EXPECT_EQ((*rules)[9].action.error, ENOSPC);
  EXPECT_TRUE(ParseFaultPlan(" ; \n")->empty());
}

TEST(FaultPlan, ABadRuleIsNamedWithTheReason) {
  struct Case {
    const char* plan;
    const char* rule;
    const char* why;
  };
  for (const Case& c : {
           Case{"write=kill;wrte=kill", "\"wrte=kill\"", "no operation or point \"wrte\""},
           Case{"write", "\"write\"", "=ACTION"},
           Case{"write=explode", "\"write=explode\"", "no action \"explode\""},
           Case{"write=error", "\"write=error\"", "error needs :ERRNO"},
           Case{"write=error:EWHAT", "EWHAT", "no errno \"EWHAT\""},
           Case{"write=kill:now", "write=kill:now", "kill takes nothing"},
           Case{"write=delay:soon", "write=delay:soon", "not a duration"},
           Case{"write=rate:0", "write=rate:0", "at least 1"},
           Case{"fsync=short:1", "fsync=short:1", "write and read only"},
           Case{"op=flip:1", "op=flip:1", "write and read only"},
           Case{"write@0=kill", "write@0=kill", "no count \"@0\""},
           Case{"write@=kill", "write@=kill", "no count \"@\""},
           Case{"write@x=kill", "write@x=kill", "no count \"@x\""},
           Case{"told=error:EIO", "told=error:EIO", "a point takes"},
           Case{"told=kill-after", "told=kill-after", "a point takes"},
           Case{"told:a=kill", "told:a=kill", "a point has no path"},
       }) {
    absl::Status status = ParseFaultPlan(c.plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.plan;
    EXPECT_TRUE(absl::StrContains(status.message(), c.rule)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), c.why)) << status;
  }
}

TEST(FaultPlan, ARuleFiresAtItsMatchesOnly) {
  EXPECT_EQ(Hits("write=error:EIO"), "xxxxxxxxxx");
  EXPECT_EQ(Hits("write@3=error:EIO"), "..x.......");
  EXPECT_EQ(Hits("write@8+=error:EIO"), ".......xxx");
  EXPECT_EQ(Hits("op@10=error:EIO"), ".........x");
  EXPECT_EQ(Hits("read=error:EIO"), "..........");
  EXPECT_EQ(Hits("write:b=error:EIO"), "..........");
  EXPECT_EQ(Hits("write@2=error:EIO;op@5+=error:EIO"), ".x..xxxxxx");
  EXPECT_EQ(Hits(""), "..........");
}

TEST(FaultPlan, AnyOperationCountsThemTogether) {
  auto injector = Injector("op:x@3=error:EIO");
  EXPECT_FALSE(injector->OnOperation(FaultOperation::kOpen, "x").has_value());
  EXPECT_FALSE(injector->OnOperation(FaultOperation::kOpen, "y").has_value());
  EXPECT_FALSE(injector->OnOperation(FaultOperation::kSync, "a/x/b").has_value());
  EXPECT_TRUE(injector->OnOperation(FaultOperation::kRename, "a to x").has_value());
  injector->OnPoint("told");
}

TEST(FaultPlan, ThePathMayHoldAnAtOrAnEqualsSign) {
  auto injector = Injector("write:a@b@2=error:EIO;read:a=b=error:EIO;list:a@b=error:EIO");
  EXPECT_FALSE(injector->OnOperation(FaultOperation::kWrite, "x/a@b/c").has_value());
  EXPECT_TRUE(injector->OnOperation(FaultOperation::kWrite, "x/a@b/c").has_value());
  EXPECT_TRUE(injector->OnOperation(FaultOperation::kRead, "a=b").has_value());
  EXPECT_TRUE(injector->OnOperation(FaultOperation::kList, "a@b").has_value());
}

TEST(FaultPlan, TheFirstRuleWinsAndAllCount) {
  auto injector = Injector("write@2=error:EIO;write@2+=error:ENOSPC");
  EXPECT_FALSE(injector->OnOperation(FaultOperation::kWrite, "a").has_value());
  EXPECT_EQ(injector->OnOperation(FaultOperation::kWrite, "a")->error, EIO);
  EXPECT_EQ(injector->OnOperation(FaultOperation::kWrite, "a")->error, ENOSPC);
}

TEST(FaultPlan, EveryPointAndEveryFiredRuleIsLogged) {
  TempFolder folder;
  std::string log = folder.path() + "/log";
  auto injector = FaultInjector::Create(
      {.plan = "write@2=error:EIO;told@2=delay:0", .plan_file = "", .log_file = log});
  ASSERT_TRUE(injector.ok()) << injector.status();
  (*injector)->OnOperation(FaultOperation::kWrite, "a");
  (*injector)->OnOperation(FaultOperation::kWrite, "job/\"a\"");
  (*injector)->OnPoint("told");
  (*injector)->OnPoint("minted");
  (*injector)->OnPoint("told");
  EXPECT_EQ(Read(log), R"({"point":"write","n":2,"rule":"write@2=error:EIO","path":"job/\"a\""})"
                       "\n"
                       R"({"point":"told","n":1,"rule":null,"path":null})"
                       "\n"
                       R"({"point":"minted","n":1,"rule":null,"path":null})"
                       "\n"
                       R"({"point":"told","n":2,"rule":"told@2=delay:0","path":null})"
                       "\n");
}

TEST(FaultPlan, ThePlanFileIsReadAgainWheneverItChanges) {
  TempFolder folder;
  std::string path = folder.path() + "/plan";
  auto injector =
      FaultInjector::Create({.plan = "read=error:EIO", .plan_file = path, .log_file = ""});
  ASSERT_TRUE(injector.ok()) << injector.status();
  auto hit = [&](FaultOperation operation) {
    return (*injector)->OnOperation(operation, "a").has_value();
  };
  EXPECT_FALSE(hit(FaultOperation::kWrite));
  Write(path, "write@2+=error:EIO\n");
  EXPECT_FALSE(hit(FaultOperation::kWrite));
  EXPECT_TRUE(hit(FaultOperation::kWrite));
  EXPECT_TRUE(hit(FaultOperation::kRead));
  Write(path, "list=error:EIO\nopen=error:EIO\n");
  EXPECT_FALSE(hit(FaultOperation::kWrite));
  EXPECT_TRUE(hit(FaultOperation::kList));
  EXPECT_TRUE(hit(FaultOperation::kOpen));
  Write(path, "nonsense, which leaves the rules as they were");
  EXPECT_TRUE(hit(FaultOperation::kList));
  ::unlink(path.c_str());
  EXPECT_FALSE(hit(FaultOperation::kList));
  EXPECT_TRUE(hit(FaultOperation::kRead));
}

TEST(FaultPlan, ABadPlanFileIsAnErrorAtTheStart) {
  TempFolder folder;
  std::string path = folder.path() + "/plan";
  Write(path, "write=explode");
  absl::Status status =
      FaultInjector::Create({.plan = "", .plan_file = path, .log_file = ""}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), path)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "write=explode")) << status;
}

TEST(FaultPlan, MatchesOfManyThreadsAreCountedOnce) {
  auto injector = Injector("op@1000=error:EIO");
  std::atomic<int> hits = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 500; ++j) {
        hits += injector->OnOperation(FaultOperation::kStat, "a").has_value();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hits, 1);
}

// What becomes of a child that passes the point "told" under this plan.
int StatusOfChild(absl::string_view plan) {
  pid_t child = ::fork();
  if (child == 0) {
    Injector(plan)->OnPoint("told");
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WUNTRACED), child);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGCONT);
    int after = 0;
    EXPECT_EQ(::waitpid(child, &after, 0), child);
    EXPECT_TRUE(WIFEXITED(after));
  }
  return status;
}

TEST(FaultPlan, APointKillsOrStopsTheProcess) {
  int killed = StatusOfChild("told=kill");
  EXPECT_TRUE(WIFSIGNALED(killed) && WTERMSIG(killed) == SIGKILL);
  int stopped = StatusOfChild("told=stop");
  EXPECT_TRUE(WIFSTOPPED(stopped) && WSTOPSIG(stopped) == SIGSTOP);
  int passed = StatusOfChild("told@2=kill");
  EXPECT_TRUE(WIFEXITED(passed) && WEXITSTATUS(passed) == 0);
}

TEST(FaultPlan, TheListNamesEverything) {
  std::string list = FaultListText();
  for (absl::string_view point : FaultPoints()) {
    EXPECT_TRUE(absl::StrContains(list, absl::StrCat("  ", point, "\n"))) << point;
  }
  for (const char* name : {"fsyncdir", "op", "kill-after", "rate:SIZE", "error:ERRNO"}) {
    EXPECT_TRUE(absl::StrContains(list, absl::StrCat("  ", name))) << name;
  }
  EXPECT_EQ(FaultPoints().size(), 30u);
}

}  // namespace
}  // namespace ckptd
