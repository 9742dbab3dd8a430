// Several ranks, each a trainer process, at a real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;

TEST(Trainer, RanksTrainAndSaveAndAnotherNumberOfRanksGoesOn) {
  TestSite site;
  TestDaemon daemon(site);
  std::vector<std::unique_ptr<TestTrainer>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<TestTrainer>(
        site, RankFlags(rank, 4,
                        {"--tensor", "w:float32:7x30000", "--tensor", "r:bfloat16:1000", "--tensor",
                         "rng:uint8:16:local", "--steps", "6", "--save-every", "3"})));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->Finish(), 0);
  ranks.clear();
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<TestTrainer>(
        site, RankFlags(rank, 2,
                        {"--incarnation", "2", "--tensor", "r:bfloat16:1000", "--load", "latest",
                         "--steps", "4", "--save-every", "2", "--deferred"})));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->Finish(), 0);
  TestTrainer reader(site, RankFlags(0, 1, {"--incarnation", "3", "--tensor", "r:bfloat16:1000"}));
  EXPECT_EQ(reader.Do("latest")["id"], "step-10");
  const Json load = reader.Do("load step-6 0s");
  EXPECT_EQ(load["step"], 6) << load;
  EXPECT_EQ(load["extra"], (Json{"rng", "w"}));
  EXPECT_EQ(reader.Finish(), 0);
}

TEST(Trainer, AWrongByteIsFoundAndEndsWithItsOwnCode) {
  TestSite site;
  TestDaemon daemon(site);
  TestTrainer trainer(site, RankFlags(0, 1, {"--tensor", "w:float32:300"}));
  trainer.Do("fill 1");
  EXPECT_EQ(trainer.Do("save one 1")["ok"], true);
  EXPECT_EQ(trainer.Do("wait one committed 20s")["ok"], true);
  EXPECT_EQ(trainer.Do("load one 0s")["ok"], true);
  EXPECT_EQ(trainer.Do("check 1")["equal"], true);
  const Json wrong = trainer.Do("check 2");
  EXPECT_EQ(wrong["code"], "DATA_LOSS");
  EXPECT_EQ(wrong["tensor"], "w");
  EXPECT_EQ(trainer.Do("save")["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(trainer.Do("dance")["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(trainer.Finish(), 6);
}

TEST(Trainer, ARankThatChangesASealedBlockFailsTheAttempt) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  site.SetFaults("write=rate:16MiB");
  TestTrainer trainer(site, RankFlags(0, 1, {"--tensor", "w:float32:3000000"}));
  for (int round = 0; round < 3; ++round) {
    const std::string id = "s" + std::to_string(round);
    ASSERT_EQ(trainer.Do("save " + id + " 0")["ok"], true);
    EXPECT_EQ(trainer.Do("scribble")["ok"], true);
    const Json wait = trainer.Do("wait " + id + " committed 20s");
    EXPECT_EQ(wait["ok"], false);
    EXPECT_THAT(wait["message"].get<std::string>(), HasSubstr("rank 0 changed a sealed block"));
  }
}

TEST(Trainer, AKilledRankIsSeenAtOnceThoughItsChildKeepsTheSocketOpen) {
  TestSite site;
  TestDaemon daemon(site);
  TestTrainer zero(site, RankFlags(0, 2, {"--tensor", "w:float32:8x8"}));
  TestTrainer one(site, RankFlags(1, 2, {"--tensor", "w:float32:8x8"}));
  const Json forked = one.Do("fork 20s");
  EXPECT_EQ(forked["ok"], true);
  zero.Send("save both 1");
  EXPECT_EQ(one.Do("save both 1")["ok"], true);
  EXPECT_EQ(zero.Answer("save")["ok"], true);
  EXPECT_EQ(zero.Do("wait both committed 20s")["ok"], true);
  EXPECT_EQ(zero.Do("save half 2")["ok"], true) << "rank 0 is staged alone";
  const absl::Time killed = absl::Now();
  one.process().Signal(SIGKILL);
  TestTrainer successor(site, RankFlags(1, 2, {"--tensor", "w:float32:8x8"}));
  const Json answer = successor.Do("latest");
  EXPECT_EQ(answer["id"], "both") << "its session is taken over at once";
  EXPECT_LT(absl::Now() - killed, absl::Seconds(5));
  kill(forked["pid"].get<pid_t>(), SIGKILL);
}

TEST(Trainer, CancelledAndRefusedSavesAreAnswered) {
  TestSite site;
  TestDaemon daemon(site);
  TestTrainer trainer(site, RankFlags(0, 1, {"--tensor", "w:float32:300"}));
  EXPECT_EQ(trainer.Do("save a b 1")["ok"], true) << "an id may hold spaces";
  EXPECT_EQ(trainer.Do("wait a b committed 20s")["ok"], true);
  EXPECT_EQ(trainer.Do("save a b 1")["code"], "ALREADY_EXISTS");
  EXPECT_EQ(trainer.Do("wait a b staged 1s")["code"], "ALREADY_EXISTS");
  EXPECT_EQ(trainer.Do("cancel none")["code"], "NOT_FOUND");
  EXPECT_EQ(trainer.Do("prewarm")["ok"], true);
  EXPECT_EQ(trainer.Do("lock")["ok"], true);
  EXPECT_EQ(trainer.Do("close")["ok"], true);
  EXPECT_EQ(trainer.Do("exit 5")["ok"], true);
  EXPECT_EQ(trainer.Finish(), 5);
}

TEST(ReadmeExample, RunsAndGoesOnWhereItWas) {
  TestSite site;
  TestDaemon daemon(site);
  for (const char* latest : {"100", "200"}) {
    const CommandResult run = RunProgram({"client/examples/readme_example"},
                                         {absl::StrCat("CKPTD_SOCKET=", site.socket())});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_EQ(Ckptctl(site, {"latest"}).json["step"].dump(), latest);
  }
}

}  // namespace
}  // namespace ckptd
