#include "client/cpp/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckptd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(SocketCandidates, FollowArgumentThenVariableThenDefault) {
  const Variables variables = {{"CKPTD_SOCKET", "/a"}, {"XDG_RUNTIME_DIR", "/run/user/7"}};
  EXPECT_EQ(SocketCandidates("/b", variables, 7)->at(0).origin, "argument");
  EXPECT_EQ(SocketCandidates("", variables, 7)->at(0).path, "/a");
  auto defaults = SocketCandidates("", {{"XDG_RUNTIME_DIR", "/run/user/7"}}, 7);
  ASSERT_EQ(defaults->size(), 2u);
  EXPECT_EQ(defaults->at(0).path, "/run/user/7/ckptd/ckptd.sock");
  EXPECT_EQ(defaults->at(1).path, "/tmp/ckptd-7/ckptd.sock");
  EXPECT_EQ(SocketCandidates("", {}, 0)->size(), 1u);
}

TEST(SocketCandidates, RefuseALongPathWithItsLength) {
  auto refused = SocketCandidates("/" + std::string(104, 'a'), {}, 0);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("105"));
}

TEST(ResolveIdentity, AJobOfOneProcessNeedsNothing) {
  auto identity = ResolveIdentity({}, {});
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->job, "default");
  EXPECT_EQ(identity->rank, 0u);
  EXPECT_EQ(identity->world_size, 1u);
  EXPECT_EQ(identity->incarnation.size(), 32u);
}

TEST(ResolveIdentity, ArgumentsWinOverOurVariables) {
  SessionOptions options;
  options.job = "arg";
  options.rank = 1;
  options.world_size = 4;
  options.incarnation = "i";
  auto identity = ResolveIdentity(options, {{"CKPTD_JOB", "var"},
                                            {"CKPTD_RANK", "2"},
                                            {"CKPTD_WORLD_SIZE", "3"},
                                            {"CKPTD_INCARNATION", "j"}});
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->job, "arg");
  EXPECT_EQ(identity->rank, 1u);
  EXPECT_EQ(identity->world_size, 4u);
  EXPECT_EQ(identity->incarnation, "i");
}

TEST(ResolveIdentity, BelievesTheFirstLauncher) {
  const Variables both = {{"CKPTD_JOB", "j"},    {"RANK", "5"},         {"WORLD_SIZE", "8"},
                          {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}};
  auto identity = ResolveIdentity({}, both);
  ASSERT_TRUE(identity.ok()) << identity.status();
  EXPECT_EQ(identity->rank, 5u);
  EXPECT_EQ(identity->world_size, 8u);
  EXPECT_EQ(identity->incarnation, "") << "Slurm's is not torchrun's";
  auto slurm = ResolveIdentity({}, {{"CKPTD_JOB", "j"},
                                    {"SLURM_PROCID", "1"},
                                    {"SLURM_NTASKS", "2"},
                                    {"SLURM_JOB_ID", "77"},
                                    {"SLURM_STEP_ID", "3"}});
  ASSERT_TRUE(slurm.ok()) << slurm.status();
  EXPECT_EQ(slurm->rank, 1u);
  EXPECT_EQ(slurm->incarnation, "77.3.");
}

TEST(ResolveIdentity, TakesTorchrunsIncarnationUnlessItIsNone) {
  Variables variables = {{"CKPTD_JOB", "j"},
                         {"RANK", "0"},
                         {"WORLD_SIZE", "2"},
                         {"TORCHELASTIC_RUN_ID", "abc"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"}};
  EXPECT_EQ(ResolveIdentity({}, variables)->incarnation, "abc.2");
  variables["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(ResolveIdentity({}, variables)->incarnation, "");
}

TEST(ResolveIdentity, NamesBothSidesOfAContradiction) {
  SessionOptions options;
  options.job = "j";
  options.rank = 1;
  auto refused = ResolveIdentity(options, {{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              AllOf(HasSubstr("argument"), HasSubstr("RANK says 0")));
}

TEST(ResolveIdentity, NeverGuessesForSeveralProcesses) {
  const auto message = [](const Variables& variables) {
    return std::string(ResolveIdentity({}, variables).status().message());
  };
  EXPECT_THAT(message({{"CKPTD_WORLD_SIZE", "2"}, {"CKPTD_JOB", "j"}}), HasSubstr("rank"));
  EXPECT_THAT(message({{"CKPTD_RANK", "1"}, {"CKPTD_JOB", "j"}}), HasSubstr("world size"));
  EXPECT_THAT(message({{"CKPTD_RANK", "0"}, {"CKPTD_WORLD_SIZE", "2"}}), HasSubstr("CKPTD_JOB"));
  EXPECT_THAT(message({{"CKPTD_RANK", "2"}, {"CKPTD_WORLD_SIZE", "2"}}), HasSubstr("world of 2"));
  EXPECT_THAT(message({{"CKPTD_RANK", "x"}}), HasSubstr("CKPTD_RANK=x"));
  EXPECT_THAT(message({{"CKPTD_JOB", "\xff"}}), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace ckptd
