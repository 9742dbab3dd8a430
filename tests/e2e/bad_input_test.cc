// Input that is wrong: an error names the thing, and nothing is lost by it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/e2e/raw_rank.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> OneRank(const std::vector<std::string>& tensors) {
  std::vector<std::string> flags = {"--rank", "0", "--world-size", "1"};
  for (const std::string& tensor : tensors) flags.insert(flags.end(), {"--tensor", tensor});
  return flags;
}

void Commit(TestTrainer& rank, const std::string& id, int step) {
  rank.Ok(absl::StrCat("fill ", step));
  rank.Ok(absl::StrCat("save ", id, " ", step));
  EXPECT_EQ(rank.AwaitOutcome(id)["event"], "committed");
}

TEST(WrongLoad, OfAnotherShapeOrDtypeNamesTheTensorAndLeavesTheTargetsAlone) {
  TestSite site;
  TestDaemon daemon(site);
  {
    TestTrainer rank(site, OneRank({"w:float32:6x3", "v:int64:4"}));
    Commit(rank, "a", 1);
    rank.Ok("exit 0");
    EXPECT_EQ(rank.process().AwaitEnd(), 0);
  }
  for (const std::vector<std::string>& tensors :
       {std::vector<std::string>{"v:int64:4", "w:float32:3x6"},
        {"v:int64:4", "w:float32:7x3"},
        {"v:int64:4", "w:float32:18"},
        {"v:int64:4", "w:int32:6x3"},
        {"v:int64:4", "w:float64:6x3"}}) {
    TestTrainer rank(site, OneRank(tensors));
    rank.Ok("fill 9");
    const Json answer = rank.Do("load a 0s");
    EXPECT_EQ(answer["ok"], false) << tensors[1];
    EXPECT_EQ(answer["code"], "INVALID_ARGUMENT") << answer.dump();
    EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr("\"w\""));
    EXPECT_EQ(rank.Do("check 9")["equal"], true) << "v too is as it was";
    rank.Ok("exit 0");
    rank.process().AwaitEnd();
  }
  TestTrainer rank(site, OneRank({"w:float32:6x3", "v:int64:4"}));
  rank.Ok("load a 0s");
  EXPECT_EQ(rank.Do("check 1")["equal"], true);
}

TEST(WrongLoad, OfANameThatIsNotThereNamesIt) {
  TestSite site;
  TestDaemon daemon(site);
  {
    TestTrainer rank(site, OneRank({"w:float32:6x3"}));
    Commit(rank, "a", 1);
    rank.Ok("exit 0");
    rank.process().AwaitEnd();
  }
  TestTrainer rank(site, OneRank({"w:float32:6x3", "not there:float32:2"}));
  rank.Ok("fill 9");
  const Json answer = rank.Do("load a 0s");
  EXPECT_EQ(answer["code"], "NOT_FOUND") << answer.dump();
  EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr("not there"));
  EXPECT_EQ(rank.Do("check 9")["equal"], true);
}

// Two ranks with these rows of a tensor of 16; how the save of rank 0 ends.
v1::Failure SaveRows(const TestSite& site, std::vector<std::pair<uint64_t, uint64_t>> first,
                     std::vector<std::pair<uint64_t, uint64_t>> second) {
  RawRank ranks[] = {RawRank({.socket = site.socket(), .rank = 0, .world_size = 2}),
                     RawRank({.socket = site.socket(), .rank = 1, .world_size = 2})};
  for (RawRank& rank : ranks) EXPECT_TRUE(rank.Hello().has_welcome());
  EXPECT_TRUE(ranks[0].Save(ranks[0].token(), "bad", 0, PlanOf("w", first), true).granted);
  const RawRank::SaveEnd other =
      ranks[1].Save(ranks[1].token(), "bad", 1, PlanOf("w", second), false);
  const RawRank::SaveEnd end = ranks[0].AwaitSaveEnd();
  EXPECT_EQ(end.failure.message(), other.failure.message());
  for (RawRank& rank : ranks) {
    v1::CloseSessionReply reply;
    rank.stub().CloseSession(RawRank::Context(rank.token()).get(), {}, &reply);
  }
  return end.failure;
}

TEST(WrongChunks, ThatOverlapOrLeaveAHoleBetweenRanksFailTheAttemptNamingTheTensor) {
  TestSite site;
  TestDaemon daemon(site);
  v1::Failure failure = SaveRows(site, {{0, 10}}, {{8, 8}});
  EXPECT_EQ(failure.phase(), "plan") << failure.DebugString();
  EXPECT_THAT(failure.message(), HasSubstr("\"w\""));
  failure = SaveRows(site, {{0, 8}}, {{9, 7}});
  EXPECT_EQ(failure.phase(), "plan") << failure.DebugString();
  EXPECT_THAT(failure.message(), HasSubstr("\"w\""));
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
  TestTrainer rank(site, OneRank({"w:float32:16x16"}));
  Commit(rank, "good", 1);
}

TEST(WrongChunks, OfOneRankAreRefusedNamingTheTensor) {
  TestSite site;
  TestDaemon daemon(site);
  RawRank rank({.socket = site.socket()});
  ASSERT_TRUE(rank.Hello().has_welcome());
  RawRank::SaveEnd end = rank.Save(rank.token(), "bad", 0, PlanOf("w", {{0, 9}, {8, 8}}), false);
  EXPECT_EQ(end.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.status.error_message(), HasSubstr("\"w\""));
  end = rank.Save(rank.token(), "bad", 0, PlanOf("w", {{0, 17}}), false);
  EXPECT_EQ(end.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.status.error_message(), HasSubstr("\"w\""));
  end = rank.Save(rank.token(), "bad", 0, PlanOf("w", {{0, 15}}), false);
  EXPECT_EQ(end.failure.phase(), "plan") << end.failure.DebugString();
  EXPECT_THAT(end.failure.message(), HasSubstr("\"w\""));
}

TEST(WrongNames, OneThatComesTwiceIsRefusedOnBothSides) {
  TestSite site;
  TestDaemon daemon(site);
  {
    TestTrainer trainer(site, OneRank({"w:float32:4", "w:float32:4"}));
    const Json answer = trainer.Do("save bad 1");
    EXPECT_EQ(answer["code"], "INVALID_ARGUMENT") << answer.dump();
    EXPECT_THAT(answer["message"].get<std::string>(),
                AllOf(HasSubstr("\"w\""), HasSubstr("twice")));
    trainer.Ok("exit 0");
    trainer.process().AwaitEnd();
  }
  RawRank rank({.socket = site.socket()});
  ASSERT_TRUE(rank.Hello().has_welcome());
  v1::PlanPart plan = PlanOf("w", {{0, 16}});
  plan.MergeFrom(PlanOf("w", {{0, 16}}));
  const RawRank::SaveEnd end = rank.Save(rank.token(), "bad", 0, plan, false);
  EXPECT_EQ(end.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(end.status.error_message(), AllOf(HasSubstr("\"w\""), HasSubstr("twice")));
}

TEST(WrongToken, OfNobodyOrOfAnotherRankOpensNothing) {
  TestSite site;
  TestDaemon daemon(site);
  TestTrainer victim(site, {"--rank", "0", "--world-size", "2", "--tensor", "w:float32:16x16"});
  victim.Ok("fill 1");
  RawRank thief({.socket = site.socket(), .rank = 1, .world_size = 2});
  ASSERT_TRUE(thief.Hello().has_welcome());
  const RawRank::SaveEnd stolen = thief.Save(thief.token(), "a", 0, PlanOf("w", {{0, 16}}), false);
  EXPECT_EQ(stolen.status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(stolen.status.error_message(), AllOf(HasSubstr("rank 1"), HasSubstr("rank 0")));
  for (const std::string& token :
       {std::string("0123456789abcdef0123456789abcdef"), std::string(), thief.token().substr(1)}) {
    const RawRank::SaveEnd end = thief.Save(token, "a", 1, PlanOf("w", {{0, 16}}), false);
    EXPECT_EQ(end.status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << token;
    v1::CloseSessionReply closed;
    EXPECT_EQ(thief.stub().CloseSession(RawRank::Context(token).get(), {}, &closed).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
    auto context = RawRank::Context(token);
    v1::PrewarmReply warmed;
    auto prewarm = thief.stub().Prewarm(context.get(), &warmed);
    v1::PrewarmRequest plan;
    *plan.mutable_plan() = PlanOf("w", {{0, 16}});
    plan.mutable_plan()->set_last(true);
    prewarm->Write(plan);
    prewarm->WritesDone();
    EXPECT_EQ(prewarm->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
    context = RawRank::Context(token);
    auto load = thief.stub().Load(context.get());
    v1::LoadRequest begin;
    begin.mutable_begin()->set_checkpoint_id("a");
    load->Write(begin);
    v1::LoadRequest wants;
    wants.mutable_wants()->set_last(true);
    load->Write(wants);
    v1::LoadReply reply;
    while (load->Read(&reply)) EXPECT_TRUE(reply.has_failed()) << reply.DebugString();
    EXPECT_EQ(load->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
  // The victim is not harmed.
  const CommandResult status = Ckptctl(site, {"status"});
  EXPECT_EQ(status.json["sessions"].size(), 2u);
  EXPECT_EQ(status.json["attempts"].size(), 0u);
}

TEST(WrongRank, OneThatIsHeldByALivingProcessIsRefusedNamingBoth) {
  TestSite site;
  TestDaemon daemon(site);
  TestTrainer first(site, OneRank({"w:float32:4"}));
  first.Ok("fill 1");
  TestTrainer second(site, OneRank({"w:float32:4"}));
  EXPECT_EQ(second.process().AwaitEnd(), 9);
  Commit(first, "a", 1);
}

TEST(WrongProtocol, IsRefusedNamingBoth) {
  TestSite site;
  TestDaemon daemon(site);
  RawRank rank({.socket = site.socket(), .protocol = 99});
  const v1::SideReply reply = rank.Hello();
  EXPECT_EQ(reply.error().code(), "FAILED_PRECONDITION");
  EXPECT_THAT(reply.error().message(), AllOf(HasSubstr("99"), HasSubstr("1")));
}

TEST(SecondDaemon, OnTheSocketOrNodeNameIsRefusedNamingTheFirst) {
  TestSite site;
  TestDaemon first(site);
  ASSERT_TRUE(first.ready());
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof(host) - 1), 0);
  const auto names_it = AllOf(HasSubstr(absl::StrCat("pid ", first.pid())), HasSubstr(host));
  TestDaemon same_socket(site, {.root = site.folder() + "/root2", .node = "node-b"});
  EXPECT_EQ(same_socket.process().AwaitEnd(), 9);
  EXPECT_THAT(same_socket.Log(), AllOf(names_it, HasSubstr(site.socket())));
  TestDaemon same_node(site, {.socket = site.folder() + "/s2"});
  EXPECT_EQ(same_node.process().AwaitEnd(), 9);
  EXPECT_THAT(same_node.Log(), AllOf(names_it, HasSubstr("node-a")));
  // The first one still serves; another node may use the root.
  TestTrainer rank(site, OneRank({"w:float32:4"}));
  Commit(rank, "a", 1);
  TestDaemon other(site, {.socket = site.folder() + "/s3", .node = "node-b"});
  EXPECT_TRUE(other.ready()) << other.Log();
  EXPECT_EQ(ListedIds(site), std::vector<std::string>{"a"});
}

TEST(WrongRoot, OneThatCannotBeWrittenIsExitCode5NamingIt) {
  TestSite site;
  // Nobody makes folders there, not even root.
  const std::string root = "/sys/ckptd-root";
  TestDaemon daemon(site, {.root = root});
  EXPECT_EQ(daemon.process().AwaitEnd(), 5);
  EXPECT_THAT(daemon.Log(), HasSubstr(root));
}

TEST(WrongRoot, OneBelowAFileIsAnErrorNamingIt) {
  TestSite site;
  WriteTextFile(site.folder() + "/file", "x");
  const std::string root = site.folder() + "/file/root";
  TestDaemon daemon(site, {.root = root});
  EXPECT_NE(daemon.process().AwaitEnd().value_or(0), 0);
  EXPECT_THAT(daemon.Log(), HasSubstr(root));
  EXPECT_EQ(ReadTextFile(site.folder() + "/file"), "x");
}

TEST(WrongRoot, OneOfAnotherUserIsExitCode5) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  TestSite site;
  ASSERT_EQ(::mkdir(site.root().c_str(), 0500), 0);
  TestDaemon daemon(site);
  EXPECT_EQ(daemon.process().AwaitEnd(), 5) << daemon.Log();
}

TEST(WrongSocketPath, Over104BytesIsRefusedWithItsLength) {
  TestSite site;
  const std::string longest =
      site.folder() + "/" + std::string(104 - site.folder().size() - 1, 's');
  TestDaemon daemon(site, {.socket = longest + "s"});
  EXPECT_EQ(daemon.process().AwaitEnd(), 2);
  EXPECT_THAT(daemon.Log(), AllOf(HasSubstr("105"), HasSubstr(longest + "s")));
  TestDaemon fits(site, {.socket = longest});
  EXPECT_TRUE(fits.ready()) << fits.Log();
  const CommandResult health = RunProgram({kCkptctlBinary, "--socket", longest, "health"});
  EXPECT_EQ(health.exit_code, 0) << health.err;
  const CommandResult refused = RunProgram({kCkptctlBinary, "--socket", longest + "s", "health"});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("105"));
}

}  // namespace
}  // namespace ckptd
