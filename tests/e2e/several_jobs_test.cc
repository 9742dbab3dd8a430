// Three jobs of two ranks each at one daemon with two roots, with the same checkpoint ids and
// tensor names, and saves that overlap: each job's outcomes and bytes are its own.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "gmock/gmock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

// What a tensor holds depends on its name and the step: steps, and one shape, tell the jobs apart.
struct Job {
  std::string name;
  std::string root_label;
  int first_step = 0;
  std::string matrix;
};
const std::vector<Job> kJobs = {{"alpha", "default", 100, "w:float32:512x1024:split=0"},
                                {"gamma", "other", 200, "w:float32:512x1024:split=0"},
                                {"beta", "default", 300, "w:float32:8192x1024:split=0"}};

class SeveralJobs : public testing::Test {
 protected:
  SeveralJobs()
      : daemon_(site_, {.faulty = true,
                        .flags = {"--root", "other=" + site_.other_root(), "--block-size", "1MiB",
                                  "--arena-limit", "24MiB"}}) {
    EXPECT_TRUE(daemon_.ready()) << daemon_.Log();
    for (const Job& job : kJobs) {
      for (int rank = 0; rank < 2; ++rank) {
        Start(job, rank);
        // In this order, so that beta, which is larger than the arenas, leaves room for the others.
        EXPECT_TRUE(ranks_[job.name][rank]->Ok("prewarm"));
      }
    }
  }

  void Start(const Job& job, int rank) {
    ranks_[job.name][rank] = std::make_unique<TestTrainer>(
        site_, std::vector<std::string>{"--job", job.name, "--root-label", job.root_label, "--rank",
                                        absl::StrCat(rank), "--world-size", "2", "--deferred",
                                        "--tensor", job.matrix, "--tensor", "bias:float32:1000",
                                        "--tensor", "rng:uint8:5000:local"});
  }

  // All ranks of the job save, with the bytes that its `number`-th step has.
  void Save(const Job& job, const std::string& id, int number) {
    const int step = job.first_step + number;
    for (auto& [rank, trainer] : ranks_[job.name]) {
      trainer->Ok(absl::StrCat("fill ", step));
      trainer->Ok(absl::StrCat("save ", id, " ", step));
    }
  }

  // That all its ranks hear.
  Json Outcome(const Job& job, const std::string& id) {
    const Json first = ranks_[job.name][0]->AwaitOutcome(id);
    EXPECT_EQ(ranks_[job.name][1]->AwaitOutcome(id)["event"], first["event"]) << job.name << id;
    return first;
  }

  // Of the attempts in flight by this id, that of the job; null if there is none.
  Json Attempt(const Job& job, const std::string& id) {
    Json found;
    int jobs = 0;
    const Json status = Ckptctl(site_, {"status"}).json;
    for (const Json& attempt : status["attempts"]) {
      if (attempt["id"] == id && attempt["job"] == job.name) found = attempt, ++jobs;
    }
    EXPECT_LE(jobs, 1) << status;
    return found;
  }

  bool AllAreInFlight(const std::string& id) {
    std::vector<std::string> jobs;
    const Json status = Ckptctl(site_, {"status"}).json;
    for (const Json& attempt : status["attempts"]) {
      if (attempt["id"] == id) jobs.push_back(attempt["job"]);
    }
    return jobs.size() == kJobs.size();
  }

  // The committed ids of the job, by the daemon; each is the job's own.
  std::vector<std::string> Listed(const Job& job) {
    std::vector<std::string> ids;
    auto client = Client::Connect({site_.socket()});
    if (!client.ok()) return ids;
    auto list = (*client)->List(job.name, true, job.root_label);
    EXPECT_TRUE(list.ok()) << list.status();
    if (!list.ok()) return ids;
    for (const CheckpointInfo& checkpoint : list->checkpoints) {
      EXPECT_EQ(checkpoint.job, job.name);
      EXPECT_EQ(checkpoint.step / 100, job.first_step / 100) << checkpoint.id;
      ids.push_back(checkpoint.id);
    }
    for (const AttemptInfo& attempt : list->attempts) EXPECT_EQ(attempt.job, job.name);
    return ids;
  }

  // `steps`: of the ids that are there, in order.
  void ExpectExactly(const Job& job, const std::vector<std::pair<std::string, int>>& numbers) {
    SCOPED_TRACE(job.name);
    std::vector<std::string> ids;
    auto client = Client::Connect({site_.socket()});
    ASSERT_TRUE(client.ok()) << client.status();
    for (const auto& [id, number] : numbers) {
      ids.push_back(id);
      const int step = job.first_step + number;
      auto description = (*client)->Describe(id, job.name, job.root_label);
      ASSERT_TRUE(description.ok()) << description.status();
      EXPECT_EQ(description->checkpoint.step, step);
      for (const auto& tensor : description->tensors) {
        if (tensor.name == "w") {
          EXPECT_THAT(job.matrix, HasSubstr(absl::StrCat(":", tensor.shape[0], "x")));
        }
      }
      for (auto& [rank, trainer] : ranks_[job.name]) {
        trainer->Ok(absl::StrCat("load ", id, " 0s"));
        EXPECT_EQ(trainer->Do(absl::StrCat("check ", step))["equal"], true) << id << " " << rank;
      }
    }
    EXPECT_EQ(Listed(job), ids);
    const int last = job.first_step + numbers.back().second;
    auto latest = (*client)->Latest(job.name, job.root_label);
    ASSERT_TRUE(latest.ok() && latest->has_value()) << latest.status();
    EXPECT_EQ((*latest)->id, ids.back());
    EXPECT_EQ((*latest)->step, last);
    // Every job's ranks load the latest under the same incarnation and restore id.
    for (auto& [rank, trainer] : ranks_[job.name]) {
      EXPECT_EQ(trainer->Do("load latest 0s")["step"], last) << rank;
      EXPECT_EQ(trainer->Do(absl::StrCat("check ", last))["equal"], true) << rank;
    }
  }

  uint64_t ArenaBytes() { return Ckptctl(site_, {"status"}).json["memory"]["arena_bytes"]; }

  TestSite site_;
  TestDaemon daemon_;
  std::map<std::string, std::map<int, std::unique_ptr<TestTrainer>>> ranks_;
};

TEST_F(SeveralJobs, OverlapAndEachHasItsOwnOutcomesAndBytes) {
  const Job &alpha = kJobs[0], &gamma = kJobs[1], &beta = kJobs[2];
  site_.SetFaults("write:shard=rate:4MiB");
  for (const Job& job : kJobs) Save(job, "one", 1);
  EXPECT_TRUE(Eventually([&] { return AllAreInFlight("one"); }));
  // What is in flight is seen in its own job only, and nothing is there yet.
  const Json list = Ckptctl(site_, {"--job", "alpha", "list"}).json;
  for (const Json& attempt : list["attempts"]) EXPECT_EQ(attempt["job"], "alpha") << list;
  site_.SetFaults("");
  for (const Job& job : kJobs) {
    const Json end = Outcome(job, "one");
    EXPECT_EQ(end["event"], "committed") << job.name << end;
  }

  // A rank of beta dies while it stages: beta's state is larger than the arena.
  site_.SetFaults("write:shard=rate:1MiB");
  for (const Job& job : kJobs) Save(job, "two", 2);
  ASSERT_TRUE(Eventually([&] {
    const Json attempt = Attempt(beta, "two");
    return attempt.is_object() && attempt["ranks"].size() == 2 &&
           attempt["ranks"][1]["staged_bytes"] > 0;
  }));
  EXPECT_NE(Attempt(beta, "two")["ranks"][1]["state"], "staged");
  EXPECT_TRUE(AllAreInFlight("two"));
  ranks_["beta"][1] = nullptr;  // SIGKILL.
  // Meanwhile one of alpha's is deleted; the same id of the others is another checkpoint.
  EXPECT_EQ(
      Ckptctl(site_, {"--job", "alpha", "delete", "one", "--yes", "--allow-newest"}).exit_code, 0);
  const Json lost = ranks_["beta"][0]->AwaitOutcome("two");
  EXPECT_EQ(lost["event"], "failed") << lost;
  EXPECT_THAT(lost["message"].get<std::string>(), HasSubstr("rank 1"));
  site_.SetFaults("");
  EXPECT_EQ(Outcome(alpha, "two")["event"], "committed");
  EXPECT_EQ(Outcome(gamma, "two")["event"], "committed");
  Start(beta, 1);

  ExpectExactly(alpha, {{"two", 2}});
  ExpectExactly(beta, {{"one", 1}});
  ExpectExactly(gamma, {{"one", 1}, {"two", 2}});
  const Json failures = Ckptctl(site_, {"status"}).json["failures"];
  ASSERT_EQ(failures.size(), 1u) << failures;
  EXPECT_EQ(failures[0]["job"], "beta");
  EXPECT_EQ(failures[0]["error"]["rank"], 1) << failures;

  // Beta saves the id that failed, and alpha the one that was deleted.
  Save(beta, "two", 3);
  Save(alpha, "one", 3);
  EXPECT_TRUE(Eventually([&] { return Listed(beta).size() == 2 && Listed(alpha).size() == 2; }))
      << daemon_.Log();
  ExpectExactly(alpha, {{"two", 2}, {"one", 3}});
  ExpectExactly(beta, {{"one", 1}, {"two", 3}});
  ExpectExactly(gamma, {{"one", 1}, {"two", 2}});
}

TEST_F(SeveralJobs, AreAskedForByNameAndFoundUnderNoOther) {
  const Job &alpha = kJobs[0], &gamma = kJobs[1];
  Save(alpha, "only-alpha", 1);
  Save(gamma, "only-gamma", 1);
  EXPECT_EQ(Outcome(alpha, "only-alpha")["event"], "committed");
  EXPECT_EQ(Outcome(gamma, "only-gamma")["event"], "committed");
  for (const char* verb : {"show", "describe", "verify"}) {
    EXPECT_EQ(Ckptctl(site_, {"--job", "alpha", verb, "only-alpha"}).exit_code, 0) << verb;
    EXPECT_EQ(Ckptctl(site_, {"--job", "beta", verb, "only-alpha"}).exit_code, 3) << verb;
    EXPECT_EQ(Ckptctl(site_, {"--job", "alpha", verb, "only-gamma"}).exit_code, 3) << verb;
  }
  EXPECT_EQ(Ckptctl(site_, {"--job", "beta", "latest"}).exit_code, 3);
  EXPECT_EQ(Ckptctl(site_, {"--job", "beta", "delete", "only-alpha", "--yes"}).exit_code, 3);
  EXPECT_EQ(ranks_["beta"][0]->Do("latest")["code"], "NOT_FOUND");
  EXPECT_EQ(ranks_["beta"][0]->Do("load latest 0s")["code"], "NOT_FOUND");
  EXPECT_EQ(ranks_["beta"][0]->Do("load only-alpha 0s")["code"], "NOT_FOUND");
  EXPECT_EQ(ranks_["gamma"][0]->Do("load only-alpha 0s")["code"], "NOT_FOUND");
  ExpectExactly(alpha, {{"only-alpha", 1}});
  ExpectExactly(gamma, {{"only-gamma", 1}});
}

TEST_F(SeveralJobs, GiveTheirArenasBackWhenTheyClose) {
  for (const Job& job : kJobs) Save(job, "one", 1);
  for (const Job& job : kJobs) EXPECT_EQ(Outcome(job, "one")["event"], "committed");
  EXPECT_GT(ArenaBytes(), 0u);
  EXPECT_LE(ArenaBytes(), 24u << 20);
  for (auto& [rank, trainer] : ranks_["beta"]) EXPECT_TRUE(trainer->Ok("close"));
  // Only beta's go.
  EXPECT_TRUE(Eventually([&] {
    uint64_t others = 0;
    const Json status = Ckptctl(site_, {"status"}).json;
    for (const Json& session : status["sessions"]) {
      if (session["job"] == "beta") return false;
      others += session["arena_bytes"].get<uint64_t>();
    }
    return others > 0 && status["memory"]["arena_bytes"] == others;
  }));
  for (const char* job : {"alpha", "gamma"}) {
    for (auto& [rank, trainer] : ranks_[job]) EXPECT_TRUE(trainer->Ok("close"));
  }
  EXPECT_TRUE(Eventually([&] { return ArenaBytes() == 0; }));
}

}  // namespace
}  // namespace ckptd
