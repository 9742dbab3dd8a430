// Several ranks, each a trainer process, at a real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <memory>

#include "tests/e2e/daemon_process.h"
#include "tests/e2e/trainer_process.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::string> Flags(const DaemonProcess& daemon, int rank, int world_size,
                               std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {
      "--socket", daemon.socket(),      "--job",        "job",
      "--rank",   std::to_string(rank), "--world-size", std::to_string(world_size)};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

std::string Text(const Json& json) { return json.dump(); }

TEST(Trainer, RanksTrainAndSaveAndAnotherNumberOfRanksGoesOn) {
  DaemonProcess daemon;
  std::vector<std::unique_ptr<TrainerProcess>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<TrainerProcess>(
        Flags(daemon, rank, 4,
              {"--tensor", "w:float32:7x30000", "--tensor", "r:bfloat16:1000", "--tensor",
               "rng:uint8:16:local", "--steps", "6", "--save-every", "3"})));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->Finish(), 0);
  ranks.clear();
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<TrainerProcess>(
        Flags(daemon, rank, 2,
              {"--tensor", "r:bfloat16:1000", "--load", "latest", "--steps", "4", "--save-every",
               "2", "--deferred"})));
  }
  for (auto& rank : ranks) EXPECT_EQ(rank->Finish(), 0);
  TrainerProcess reader(Flags(daemon, 0, 1, {"--tensor", "r:bfloat16:1000", "--stdin"}));
  EXPECT_EQ(reader.Do("latest")["id"], "step-10");
  const Json load = reader.Do("load step-6 0s");
  EXPECT_EQ(load["step"], 6) << Text(load);
  EXPECT_EQ(load["extra"], (Json{"rng", "w"}));
  EXPECT_EQ(reader.Finish(), 0);
}

TEST(Trainer, AWrongByteIsFoundAndEndsWithItsOwnCode) {
  DaemonProcess daemon;
  TrainerProcess trainer(Flags(daemon, 0, 1, {"--tensor", "w:float32:300", "--stdin"}));
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
  DaemonProcess daemon({"--fault-plan", "write=rate:16MiB"}, "tests/support/ckptd_faulty");
  TrainerProcess trainer(Flags(daemon, 0, 1, {"--tensor", "w:float32:3000000", "--stdin"}));
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
  DaemonProcess daemon;
  TrainerProcess zero(Flags(daemon, 0, 2, {"--tensor", "w:float32:8x8", "--stdin"}));
  TrainerProcess one(Flags(daemon, 1, 2, {"--tensor", "w:float32:8x8", "--stdin"}));
  const Json forked = one.Do("fork 20s");
  EXPECT_EQ(forked["ok"], true);
  zero.Send("save both 1");
  EXPECT_EQ(one.Do("save both 1")["ok"], true);
  EXPECT_EQ(zero.Answer()["ok"], true);
  EXPECT_EQ(zero.Do("wait both committed 20s")["ok"], true);
  zero.Send("save half 2");
  EXPECT_EQ(zero.Answer()["ok"], true) << "rank 0 is staged alone";
  const auto killed = std::chrono::steady_clock::now();
  one.Kill();
  TrainerProcess successor(Flags(daemon, 1, 2, {"--tensor", "w:float32:8x8", "--stdin"}));
  const Json answer = successor.Do("latest");
  EXPECT_EQ(answer["id"], "both") << "its session is taken over at once";
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(5));
  kill(forked["pid"].get<pid_t>(), SIGKILL);
}

TEST(Trainer, CancelledAndRefusedSavesAreAnswered) {
  DaemonProcess daemon;
  TrainerProcess trainer(Flags(daemon, 0, 1, {"--tensor", "w:float32:300", "--stdin"}));
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
  DaemonProcess daemon;
  const std::string run =
      "CKPTD_SOCKET=" + daemon.socket() + " client/examples/readme_example 2>&1";
  EXPECT_EQ(system(run.c_str()), 0);
  EXPECT_EQ(system(run.c_str()), 0);
  TrainerProcess reader({"--socket", daemon.socket(), "--stdin"});
  EXPECT_EQ(reader.Do("latest")["step"], 200);
}

}  // namespace
}  // namespace ckptd
