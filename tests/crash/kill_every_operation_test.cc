// A real daemon is killed at every operation of a save in turn, before it and after it, and at
// every point of the protocol.
#include <cstdio>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/format/paths.h"
#include "tests/crash/crash_round.h"
#include "tests/support/fault_plan.h"

namespace ckptd {
namespace {

constexpr char kWatchOperations[] = "op=delay:0s";

// The operations of one save; with a new job, its first save.
std::vector<std::string> Operations(bool first_save) {
  CrashRounds rounds;
  rounds.NewJob();
  if (!first_save) rounds.Watch(kWatchOperations);
  std::vector<std::string> operations;
  for (const Json& line : rounds.Watch(kWatchOperations)) {
    if (line["rule"].is_null()) continue;
    operations.push_back(
        absl::StrCat(line["point"].get<std::string>(), " ", line["path"].get<std::string>()));
  }
  return operations;
}

// Kills at each of the operations first..last, shared by two daemons.
void KillAtEach(const std::vector<std::string>& operations, size_t first, bool first_save,
                const std::string& action) {
  std::set<size_t> visited[2];
  int committed[2] = {};
  int failed[2] = {};
  const auto run = [&](int worker) {
    CrashRounds rounds;
    rounds.NewJob();
    if (!first_save) rounds.Watch("");
    for (size_t n = first + worker; n <= operations.size(); n += 2) {
      if (first_save && n > first + worker) rounds.NewJob();
      SCOPED_TRACE(absl::StrCat(action, " at operation ", n, ": ", operations[n - 1]));
      if (rounds.Round(absl::StrCat("op@", n, "=", action))) visited[worker].insert(n);
      if (testing::Test::HasFailure()) break;
    }
    committed[worker] = rounds.committed();
    failed[worker] = rounds.failed();
  };
  std::thread other([&] { run(1); });
  run(0);
  other.join();
  visited[0].merge(visited[1]);
  EXPECT_EQ(visited[0].size(), operations.size() - first + 1);
  EXPECT_EQ(failed[0] + failed[1], 0) << "the ranks came back in time";
  std::printf("%s: N = %zu operations, %zu of %zu visited; committed %d, failed %d\n",
              action.c_str(), operations.size(), visited[0].size(), operations.size() - first + 1,
              committed[0] + committed[1], failed[0] + failed[1]);
}

TEST(KillEveryOperation, OfTheFirstSaveOfAJob) { KillAtEach(Operations(true), 1, true, "kill"); }

TEST(KillEveryOperation, OfALaterSave) { KillAtEach(Operations(false), 1, false, "kill"); }

TEST(KillEveryOperation, AfterEachOneFromTheManifestOn) {
  const std::vector<std::string> operations = Operations(false);
  size_t first = 0;
  while (first < operations.size() && !absl::StrContains(operations[first], kManifestFile)) ++first;
  ASSERT_LT(first, operations.size());
  KillAtEach(operations, first + 1, false, "kill-after");
}

TEST(KillEveryPoint, OfASave) {
  CrashRounds rounds;
  ASSERT_TRUE(rounds.RoundOfOpening("session-opened=kill"));
  size_t visited = 1;
  for (absl::string_view point : FaultPoints()) {
    if (point == "session-opened") continue;
    if (point == "abort-before") break;
    SCOPED_TRACE(point);
    visited += rounds.Round(absl::StrCat(point, "=kill")) ? 1 : 0;
  }
  EXPECT_EQ(rounds.failed(), 0);
  std::printf("%zu points of a save visited, %d committed\n", visited, rounds.committed());
}

TEST(KillEveryPoint, OfAnAbort) {
  CrashRounds rounds;
  rounds.NewJob();
  for (const char* point : {"abort-before", "abort-renamed", "abort-synced"}) {
    SCOPED_TRACE(point);
    rounds.Round(absl::StrCat("fsync:shard=error:EIO;", point, "=kill"));
  }
  std::printf("3 points of an abort: %d committed, %d failed\n", rounds.committed(),
              rounds.failed());
  EXPECT_GE(rounds.failed(), 2);  // Whoever is killed before the rename judges afresh.
}

TEST(KillEveryPoint, OfALoad) {
  CrashRounds rounds;
  rounds.NewJob();
  rounds.Watch("");
  for (const char* point : {"load-planned", "load-read", "load-done"}) {
    SCOPED_TRACE(point);
    rounds.RoundOfLoading(absl::StrCat(point, "=kill"));
  }
}

TEST(KillEveryPoint, OfARestart) {
  CrashRounds rounds;
  rounds.NewJob();
  for (const char* point : {"settle-begun", "settle-done"}) {
    SCOPED_TRACE(point);
    rounds.RoundOfSettling(absl::StrCat(point, "=kill"));
  }
  EXPECT_EQ(rounds.failed(), 0);
}

// A restart, too, is killed at each operation.
TEST(KillEveryOperation, OfARestart) {
  CrashRounds rounds;
  rounds.NewJob();
  size_t n = 1;
  while (rounds.RoundOfSettling(absl::StrCat("op@", n, "=kill;settle-done=kill")) &&
         !rounds.settled()) {
    ++n;
  }
  EXPECT_GT(n, 10u);
  EXPECT_EQ(rounds.failed(), 0);
  std::printf("a restart: N = %zu operations, all visited\n", n - 1);
}

}  // namespace
}  // namespace ckptd
