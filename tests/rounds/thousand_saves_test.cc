// A thousand saves leave the daemon as it was: descriptors, memory, threads.
//
// CKPTD_SAVES: how many. CKPTD_DEMO_MODEL: a safetensors file (deploy/setup --model); without it
// the state is made up.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

constexpr int kSaves = 1000;
constexpr int kWarmUp = 50;  // Caches and pools are filled by then.
constexpr int kRanks = 4;
constexpr int64_t kAnonGrowthKib = 1024;

struct Footprint {
  int64_t descriptors = 0;
  int64_t threads = 0;
  int64_t anon_kib = 0;    // RssAnon.
  int64_t shared_kib = 0;  // RssShmem: the arenas.
  int64_t arena_bytes = 0;
};

// A line "Name:  123 kB" of /proc/<pid>/status.
int64_t StatusNumber(const std::string& status, const std::string& name) {
  const size_t at = status.find(name + ":");
  return at == status.npos ? -1 : std::atoll(status.c_str() + at + name.size() + 1);
}

Footprint Measure(const TestSite& site, pid_t pid) {
  const std::string proc = absl::StrCat("/proc/", pid);
  std::ifstream stream(proc + "/status");
  const std::string status{std::istreambuf_iterator<char>(stream), {}};
  Footprint result;
  std::filesystem::directory_iterator descriptors(proc + "/fd");
  result.descriptors = std::distance(begin(descriptors), end(descriptors));
  result.threads = StatusNumber(status, "Threads");
  result.anon_kib = StatusNumber(status, "RssAnon");
  result.shared_kib = StatusNumber(status, "RssShmem");
  result.arena_bytes = Ckptctl(site, {"status"}).json["memory"]["arena_bytes"];
  return result;
}

// What is left once nothing of the last save, of its trash or of a question is under way: the least
// of some looks.
Footprint MeasureAtRest(const TestSite& site, pid_t pid) {
  Footprint least = Measure(site, pid);
  for (int look = 0; look < 10; ++look) {
    absl::SleepFor(absl::Milliseconds(200));
    const Footprint now = Measure(site, pid);
    least.descriptors = std::min(least.descriptors, now.descriptors);
    least.threads = std::min(least.threads, now.threads);
  }
  return least;
}

std::vector<std::string> State() {
  const char* model = std::getenv("CKPTD_DEMO_MODEL");
  if (model != nullptr) return {"--model", model};
  return {"--tensor", "w:float32:2000x1000", "--tensor", "b:bfloat16:7:replicated"};
}

int Saves() {
  int saves = kSaves;
  const char* text = std::getenv("CKPTD_SAVES");
  EXPECT_TRUE(text == nullptr || absl::SimpleAtoi(text, &saves)) << text;
  return saves;
}

void SaveOnce(std::deque<TestTrainer>& ranks, int step) {
  const std::string id = absl::StrCat("step-", step);
  for (TestTrainer& rank : ranks) rank.Send(absl::StrCat("fill ", step));
  for (TestTrainer& rank : ranks) rank.Send(absl::StrCat("save ", id, " ", step));
  for (TestTrainer& rank : ranks) {
    rank.Answer("fill");
    EXPECT_EQ(rank.Answer("save")["ok"], true) << id;
    EXPECT_EQ(rank.AwaitOutcome(id)["event"], "committed") << id;
  }
}

TEST(AThousandSaves, LeaveTheDaemonAsItWas) {
  const TestSite site;
  TestDaemon daemon(site, {.flags = {"--keep-last", "2", "--trash-grace", "0s"}});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  std::deque<TestTrainer> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<std::string> flags = State();
    flags.insert(flags.end(), {"--rank", absl::StrCat(rank), "--world-size", absl::StrCat(kRanks)});
    ranks.emplace_back(site, flags);
  }
  int step = 0;
  while (step < kWarmUp && !HasFailure()) SaveOnce(ranks, ++step);
  const Footprint before = MeasureAtRest(site, daemon.pid());
  while (step < Saves() && !HasFailure()) SaveOnce(ranks, ++step);
  const Footprint after = MeasureAtRest(site, daemon.pid());
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.arena_bytes, before.arena_bytes);
  EXPECT_EQ(after.shared_kib, before.shared_kib);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.anon_kib, before.anon_kib + kAnonGrowthKib);
  std::printf("after %d and %d saves: RssAnon %lld and %lld KiB, descriptors %lld, threads %lld\n",
              kWarmUp, step, static_cast<long long>(before.anon_kib),
              static_cast<long long>(after.anon_kib), static_cast<long long>(after.descriptors),
              static_cast<long long>(after.threads));
  EXPECT_EQ(ListedIds(site).size(), 2u);
  for (TestTrainer& rank : ranks) {
    rank.Ok("fill 0");
    rank.Ok("load latest 60s");
    rank.Ok(absl::StrCat("check ", step));
  }
}

}  // namespace
}  // namespace ckptd
