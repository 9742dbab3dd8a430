#include "client/cli/render_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

v1::Checkpoint SomeCheckpoint(const std::string& job, uint64_t sequence) {
  v1::Checkpoint checkpoint;
  checkpoint.set_job(job);
  checkpoint.set_id("step-" + std::to_string(sequence));
  checkpoint.set_step(sequence);
  checkpoint.set_sequence(sequence);
  checkpoint.set_world_size(2);
  checkpoint.set_bytes(90'866'412);
  checkpoint.set_files(2);
  checkpoint.set_committed_unix_ns(absl::ToUnixNanos(kNow - absl::Minutes(5)));
  return checkpoint;
}

v1::Attempt SomeAttempt(uint64_t sequence, const std::string& state) {
  v1::Attempt attempt;
  attempt.set_job("llm");
  attempt.set_checkpoint_id("step-" + std::to_string(sequence));
  attempt.set_step(sequence);
  attempt.set_sequence(sequence);
  attempt.set_world_size(2);
  attempt.set_state(state);
  attempt.set_planned_bytes(1000);
  attempt.set_staged_bytes(999);
  attempt.set_written_bytes(250);
  return attempt;
}

TEST(RenderText, AListIsInTheOrderOfItsSequences) {
  v1::ListReply reply;
  *reply.add_checkpoints() = SomeCheckpoint("llm", 1);
  *reply.add_checkpoints() = SomeCheckpoint("llm", 3);
  *reply.add_attempts() = SomeAttempt(2, "staging");
  std::string text = ListText(reply, kNow);
  EXPECT_LT(text.find("step-1"), text.find("step-2"));
  EXPECT_LT(text.find("step-2"), text.find("step-3"));
  EXPECT_THAT(text, HasSubstr("86.7 MiB"));
  EXPECT_THAT(text, HasSubstr("5m"));
  EXPECT_THAT(text, HasSubstr("2 ranks, 2 files, never verified"));
  EXPECT_THAT(text, HasSubstr("staged 99%, written 25%"));
  EXPECT_THAT(text, Not(HasSubstr("JOB")));
}

TEST(RenderText, SeveralJobsAreTold) {
  v1::ListReply reply;
  *reply.add_checkpoints() = SomeCheckpoint("llm", 1);
  *reply.add_checkpoints() = SomeCheckpoint("vit", 1);
  EXPECT_THAT(ListText(reply, kNow), HasSubstr("JOB"));
  EXPECT_EQ(ListText(v1::ListReply(), kNow), "nothing there\n");
}

TEST(RenderText, SeveralRootsAreTold) {
  v1::ListReply reply;
  *reply.add_checkpoints() = SomeCheckpoint("llm", 1);
  *reply.add_checkpoints() = SomeCheckpoint("llm", 2);
  reply.mutable_checkpoints(0)->set_root("fast");
  reply.mutable_checkpoints(1)->set_root("fast");
  EXPECT_THAT(ListText(reply, kNow), Not(HasSubstr("ROOT")));
  reply.mutable_checkpoints(1)->set_root("big");
  EXPECT_THAT(ListText(reply, kNow), AllOf(HasSubstr("ROOT"), HasSubstr("big   step-2")));
}

TEST(RenderText, AFailureShowsRankNodePhaseAndReason) {
  v1::Attempt attempt = SomeAttempt(2, "failed");
  attempt.mutable_error()->set_rank(3);
  attempt.mutable_error()->set_node("a");
  attempt.mutable_error()->set_phase("stage");
  attempt.mutable_error()->set_message("process 17 died");
  attempt.mutable_error()->set_code("ABORTED");
  EXPECT_EQ(AttemptDetail(attempt), "rank 3, node a, phase stage: process 17 died (ABORTED)");
}

TEST(RenderText, MissingRanksAreNamed) {
  v1::Attempt attempt = SomeAttempt(2, "joining");
  attempt.set_planned_bytes(0);
  attempt.add_ranks_missing(1);
  attempt.add_ranks_missing(4);
  EXPECT_EQ(AttemptDetail(attempt), "missing ranks 1 4");
}

TEST(RenderText, ADamagedCheckpointIsNeverHidden) {
  v1::ListReply reply;
  reply.add_damaged()->set_id("broken");
  reply.mutable_damaged(0)->mutable_error()->set_message("MANIFEST.pb: checksum differs");
  EXPECT_THAT(ListText(reply, kNow), HasSubstr("DAMAGED"));
  EXPECT_THAT(ListText(reply, kNow), HasSubstr("checksum differs"));
}

TEST(RenderText, StatusHasItsPartsOnlyIfThereIsSomething) {
  v1::StatusReply reply;
  reply.mutable_daemon()->set_version("0.1.0");
  reply.mutable_daemon()->set_state("serving");
  EXPECT_THAT(StatusText(reply, kNow), HasSubstr("ckptd 0.1.0, serving"));
  EXPECT_THAT(StatusText(reply, kNow), Not(HasSubstr("in flight")));
  *reply.add_attempts() = SomeAttempt(2, "writing");
  reply.mutable_memory()->add_warnings("little memory");
  EXPECT_THAT(StatusText(reply, kNow), HasSubstr("in flight"));
  EXPECT_THAT(StatusText(reply, kNow), HasSubstr("warning: little memory"));
}

TEST(RenderText, SessionsAreALineForEachJob) {
  v1::StatusReply reply;
  for (uint32_t rank = 0; rank < 1000; ++rank) {
    v1::SessionStatus& session = *reply.add_sessions();
    session.set_job("llm");
    session.set_rank(rank);
    session.set_world_size(1000);
    session.set_state(rank == 7 ? "lost" : "alive");
  }
  std::string text = StatusText(reply, kNow);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 10) << text;
  EXPECT_THAT(text, ContainsRegex("llm +999 +1000 +0 B +7"));
}

TEST(RenderText, FailuresAreTheNewestFive) {
  v1::StatusReply reply;
  for (uint64_t i = 1; i <= 8; ++i) {
    *reply.add_failures() = SomeAttempt(i, "failed");
    reply.mutable_failures()->rbegin()->set_checkpoint_id("id-" + std::to_string(i));
  }
  std::string text = StatusText(reply, kNow);
  EXPECT_THAT(text, AllOf(HasSubstr("and 3 before"), HasSubstr("id-4"), HasSubstr("id-8"),
                          Not(HasSubstr("id-3"))));
}

TEST(RenderText, AWatchShowsRateAndTimeToGo) {
  v1::StatusReply reply;
  *reply.add_attempts() = SomeAttempt(2, "writing");
  std::vector<Progress> unknown(1);
  EXPECT_THAT(StatusText(reply, kNow, &unknown), ContainsRegex("RATE +LEFT"));
  EXPECT_THAT(StatusText(reply, kNow, &unknown), ContainsRegex(" - +- "));
  std::vector<Progress> known = {{.bytes_per_s = 1 << 20, .left = absl::Seconds(7)}};
  EXPECT_THAT(StatusText(reply, kNow, &known), ContainsRegex("1 MiB/s +7s"));
}

TEST(RenderText, AMissingNeedStandsOut) {
  std::string text =
      DoctorText({{.name = "locks", .needed = true, .value = "none", .advice = "a; b"},
                  {.name = "io_uring", .value = "no"},
                  {.name = "fsync", .needed = true, .ok = true}});
  EXPECT_THAT(text, AllOf(HasSubstr("MISSING  locks"), HasSubstr("- a\n"), HasSubstr("- b\n"),
                          HasSubstr("without  io_uring"), HasSubstr("ok       fsync")));
}

TEST(RenderText, AgesAreShort) {
  EXPECT_EQ(HumanAge(absl::Seconds(-1)), "0s");
  EXPECT_EQ(HumanAge(absl::Seconds(90)), "90s");
  EXPECT_EQ(HumanAge(absl::Minutes(5)), "5m");
  EXPECT_EQ(HumanAge(absl::Hours(30)), "30h");
  EXPECT_EQ(HumanAge(absl::Hours(24 * 9)), "9d");
}

TEST(RenderText, LongValuesAreCutBetweenCharacters) {
  v1::DescribeReply reply;
  v1::ItemEntry& item = *reply.add_items();
  item.set_name("i");
  item.set_kind(v1::ITEM_KIND_TEXT);
  std::string value(59, 'x');
  value += "ü and more";
  item.set_value(value);
  item.set_bytes(value.size());
  EXPECT_THAT(DescribeText(reply), HasSubstr(std::string(59, 'x') + "…\n"));
}

}  // namespace
}  // namespace ckptd
