#include "client/cli/several_roots.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What one root holds, of any jobs; or why it cannot be read.
struct Content {
  absl::Status status;
  std::vector<v1::Checkpoint> checkpoints;
  std::vector<v1::Attempt> attempts;
};

v1::Checkpoint Saved(const std::string& job, const std::string& id, uint64_t sequence) {
  v1::Checkpoint checkpoint;
  checkpoint.set_job(job);
  checkpoint.set_id(id);
  checkpoint.set_sequence(sequence);
  return checkpoint;
}

v1::Attempt Tried(const std::string& job, const std::string& id, uint64_t sequence) {
  v1::Attempt attempt;
  attempt.set_job(job);
  attempt.set_checkpoint_id(id);
  attempt.set_sequence(sequence);
  return attempt;
}

class FakeSource : public Source {
 public:
  explicit FakeSource(const Content& content) : content_(content) {}

  absl::StatusOr<v1::ListReply> List(const std::string& job, bool) override {
    if (!content_.status.ok()) return content_.status;
    v1::ListReply reply;
    for (const auto& known : content_.checkpoints) {
      if (job.empty() || known.job() == job) *reply.add_checkpoints() = known;
    }
    for (const auto& known : content_.attempts) {
      if (job.empty() || known.job() == job) *reply.add_attempts() = known;
    }
    bool none = reply.checkpoints().empty() && reply.attempts().empty();
    if (none && !job.empty()) return absl::NotFoundError("no job");
    return reply;
  }
  absl::StatusOr<v1::Checkpoint> Latest(const std::string& job) override {
    if (!content_.status.ok()) return content_.status;
    for (auto known = content_.checkpoints.rbegin(); known != content_.checkpoints.rend(); ++known)
      if (known->job() == job) return *known;
    return absl::NotFoundError("no checkpoint");
  }
  absl::StatusOr<v1::ShowReply> Show(const std::string& job, const std::string& name) override {
    if (!content_.status.ok()) return content_.status;
    v1::ShowReply reply;
    for (const auto& known : content_.checkpoints) {
      if (known.job() == job && known.id() == name) *reply.mutable_checkpoint() = known;
    }
    if (reply.has_checkpoint()) return reply;
    for (const auto& known : content_.attempts) {
      if (known.job() == job && known.checkpoint_id() == name) *reply.mutable_attempt() = known;
    }
    if (reply.has_attempt()) return reply;
    return absl::NotFoundError("no checkpoint");
  }
  absl::StatusOr<v1::DescribeReply> Describe(const std::string& job, const std::string& id,
                                             const std::string&) override {
    absl::StatusOr<v1::ShowReply> shown = Show(job, id);
    if (!shown.ok()) return shown.status();
    v1::DescribeReply reply;
    *reply.mutable_checkpoint() = shown->checkpoint();
    return reply;
  }
  absl::StatusOr<std::vector<v1::VerifyReply>> Verify(
      const std::string& job, const std::vector<std::string>& ids) override {
    absl::StatusOr<v1::ListReply> list = List(job, false);
    if (!list.ok()) return list.status();
    std::vector<v1::VerifyReply> replies;
    for (const auto& known : list->checkpoints()) {
      if (!ids.empty() && known.id() != ids.front()) continue;
      replies.emplace_back().set_id(known.id());
      replies.back().set_bytes(known.sequence());
      replies.back().set_ok(true);
    }
    return replies;
  }

 private:
  const Content content_;
};

SeveralRoots Make(const Content& a, const Content& b) {
  std::vector<SeveralRoots::Root> roots;
  roots.push_back({"a", "/a", std::make_unique<FakeSource>(a)});
  roots.push_back({"b", "/b", std::make_unique<FakeSource>(b)});
  return SeveralRoots(std::move(roots));
}

std::vector<std::string> IdsOf(const v1::ListReply& reply) {
  std::vector<std::string> ids;
  for (const v1::Checkpoint& checkpoint : reply.checkpoints()) ids.push_back(checkpoint.id());
  return ids;
}

const Content kHangs{absl::DeadlineExceededError("no answer"), {}, {}};

TEST(SeveralRoots, TogetherListAllInTheOrderOfTheSequence) {
  SeveralRoots roots = Make({{}, {Saved("j", "one", 1), Saved("j", "three", 3)}, {}},
                            {{}, {Saved("j", "two", 2)}, {}});
  EXPECT_THAT(IdsOf(*roots.List("", false)), ElementsAre("one", "two", "three"));
  EXPECT_EQ(roots.Latest("")->id(), "three");
  EXPECT_EQ(roots.Show("", "two")->checkpoint().id(), "two");
  EXPECT_EQ(roots.Describe("", "two", "")->checkpoint().id(), "two");
  EXPECT_EQ(roots.Verify("", {})->size(), 3u);
  EXPECT_EQ(roots.Verify("", {"three", "two"})->size(), 2u);
  EXPECT_EQ(roots.Find("", "two")->root, "b");
  EXPECT_TRUE(absl::IsNotFound(roots.Show("", "four").status()));
  EXPECT_TRUE(absl::IsNotFound(roots.Describe("", "four", "").status()));
  EXPECT_TRUE(absl::IsNotFound(roots.Verify("", {"four"}).status()));
  EXPECT_TRUE(absl::IsNotFound(roots.FindToDelete("", {"one", "four"}).status()));
  EXPECT_TRUE(roots.Unread().ok());
  EXPECT_THAT(roots.warnings(), IsEmpty());
}

TEST(SeveralRoots, AJobIsTheOnlyOneOfAllOfThemOrNamed) {
  SeveralRoots roots = Make({{}, {Saved("j", "one", 1)}, {}}, {{}, {}, {Tried("k", "two", 2)}});
  absl::Status several = roots.Latest("").status();
  EXPECT_TRUE(absl::IsInvalidArgument(several)) << several;
  EXPECT_THAT(std::string(several.message()), HasSubstr("j, k"));
  EXPECT_TRUE(absl::IsInvalidArgument(roots.FindToDelete("", {"one"}).status()));
  EXPECT_EQ(roots.Latest("j")->id(), "one");
  EXPECT_EQ(roots.Find("k", "two")->root, "b");
  EXPECT_TRUE(absl::IsNotFound(roots.List("l", false).status()));
  SeveralRoots empty = Make({}, {});
  EXPECT_TRUE(absl::IsNotFound(empty.Latest("").status()));
  EXPECT_TRUE(empty.List("", false).ok());
}

TEST(SeveralRoots, AnIdThatTwoHoldIsTheNewestWhereItIsReadAndNeverDeleted) {
  SeveralRoots roots =
      Make({{}, {Saved("j", "x", 7)}, {}}, {{}, {Saved("j", "x", 5)}, {Tried("j", "x", 9)}});
  EXPECT_EQ(roots.Show("j", "x")->checkpoint().sequence(), 7u);
  ASSERT_EQ(roots.warnings().size(), 1u);
  EXPECT_THAT(roots.warnings()[0],
              AllOf(HasSubstr("is that of root \"a\" (/a)"),
                    HasSubstr("another in root \"b\" (/b)"), HasSubstr("--root-label")));
  EXPECT_EQ(roots.Describe("j", "x", "")->checkpoint().sequence(), 7u);
  EXPECT_EQ(roots.Verify("j", {"x"})->front().bytes(), 7u);
  EXPECT_EQ(roots.Find("j", "x")->root, "a");
  absl::Status refused = roots.FindToDelete("j", {"x"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("root \"a\" (/a)"), HasSubstr("root \"b\" (/b)"),
                    HasSubstr("nothing is deleted"), HasSubstr("--root-label")));
}

TEST(SeveralRoots, WhatIsDeletedIsFoundWhereItIs) {
  SeveralRoots roots = Make({{}, {Saved("j", "one", 1)}, {Tried("j", "two", 3)}},
                            {{}, {Saved("j", "two", 2)}, {Tried("j", "three", 4)}});
  auto doomed = roots.FindToDelete("", {"two", "one", "two", "three"});
  ASSERT_TRUE(doomed.ok()) << doomed.status();
  ASSERT_EQ(doomed->size(), 3u);
  EXPECT_EQ((*doomed)[0].id, "two");
  EXPECT_EQ((*doomed)[0].place.root, "b");
  EXPECT_EQ((*doomed)[0].place.job, "j");
  EXPECT_EQ((*doomed)[1].place.root, "a");
  EXPECT_EQ((*doomed)[2].place.root, "b");
}

TEST(SeveralRoots, OneThatCannotBeReadTakesNothingFromTheOthers) {
  SeveralRoots roots = Make(kHangs, {{}, {Saved("j", "one", 1)}, {}});
  EXPECT_THAT(IdsOf(*roots.List("", false)), ElementsAre("one"));
  EXPECT_EQ(roots.Latest("")->id(), "one");
  EXPECT_EQ(roots.Show("", "one")->checkpoint().id(), "one");
  EXPECT_EQ(roots.Verify("", {})->size(), 1u);
  EXPECT_THAT(roots.warnings(), ElementsAre("not read: root \"a\" (/a): no answer"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(roots.Unread()));
  // What is not found may be there.
  EXPECT_TRUE(absl::IsDeadlineExceeded(roots.Show("j", "two").status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(roots.Find("j", "two").status()));
  EXPECT_TRUE(absl::IsDeadlineExceeded(roots.List("k", false).status()));
  // And so may another of that name.
  absl::Status refused = roots.FindToDelete("j", {"one"}).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("root \"a\" (/a)"), HasSubstr("--root-label")));
}

TEST(SeveralRoots, NoneThatCanBeReadIsAnErrorThatNamesAll) {
  SeveralRoots roots = Make(kHangs, {absl::UnavailableError("root \"b\" (/b): is late"), {}, {}});
  absl::Status status = roots.List("", false).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_EQ(status.message(), "root \"a\" (/a): no answer; root \"b\" (/b): is late");
}

TEST(SeveralRoots, DamageOfOneIsToldBesideTheAnswerOfAnother) {
  SeveralRoots roots =
      Make({{}, {Saved("j", "one", 1)}, {}}, {absl::DataLossError("torn"), {}, {}});
  EXPECT_EQ(roots.Show("j", "one")->checkpoint().id(), "one");
  EXPECT_THAT(roots.warnings(), ElementsAre("root \"b\" (/b): torn"));
  EXPECT_TRUE(absl::IsDataLoss(roots.Show("j", "two").status()));
}

}  // namespace
}  // namespace ckptd
