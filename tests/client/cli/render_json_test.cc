#include "client/cli/render_json.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;
using testing::ElementsAre;

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

const std::vector<std::string> kCheckpointKeys = {
    "job",     "id",    "step",  "sequence", "attempt", "state",     "world_size", "nodes",
    "tensors", "items", "bytes", "files",    "begun",   "committed", "path",       "verified"};
const std::vector<std::string> kAttemptKeys = {"job",           "id",
                                               "step",          "sequence",
                                               "attempt",       "incarnation",
                                               "world_size",    "root",
                                               "state",         "planned_bytes",
                                               "staged_bytes",  "written_bytes",
                                               "ranks",         "ranks_missing",
                                               "nodes_missing", "begun",
                                               "ended",         "error"};

v1::Checkpoint SomeCheckpoint() {
  v1::Checkpoint checkpoint;
  checkpoint.set_job("llm");
  checkpoint.set_id("step-100");
  checkpoint.set_step(100);
  checkpoint.set_sequence(7);
  checkpoint.set_attempt("7-00c0ffee00c0ffee");
  checkpoint.set_world_size(2);
  checkpoint.add_nodes("a");
  checkpoint.set_tensors(3);
  checkpoint.set_items(1);
  checkpoint.set_bytes(uint64_t{1} << 60);
  checkpoint.set_files(2);
  checkpoint.set_begun_unix_ns(1'700'000'000'123'456'789);
  checkpoint.set_committed_unix_ns(1'700'000'001'000'000'000);
  checkpoint.set_path("/r/llm/checkpoints/step-100");
  return checkpoint;
}

v1::Attempt SomeAttempt() {
  v1::Attempt attempt;
  attempt.set_job("llm");
  attempt.set_checkpoint_id("step-110");
  attempt.set_step(110);
  attempt.set_sequence(8);
  attempt.set_attempt("8-00c0ffee00c0ffee");
  attempt.set_world_size(2);
  attempt.set_root("default");
  attempt.set_state("staging");
  attempt.set_planned_bytes(100);
  attempt.set_staged_bytes(50);
  v1::RankStatus& rank = *attempt.add_ranks();
  rank.set_rank(0);
  rank.set_state("staging");
  attempt.add_ranks_missing(1);
  return attempt;
}

TEST(RenderJson, ACheckpointHasTheDocumentedFields) {
  Json json = Json::parse(CheckpointJson(SomeCheckpoint()));
  EXPECT_EQ(Keys(json), kCheckpointKeys);
  EXPECT_EQ(json["state"], "committed");
  EXPECT_EQ(json["bytes"], uint64_t{1} << 60);
  EXPECT_EQ(json["files"], 2);
  EXPECT_EQ(json["begun"], "2023-11-14T22:13:20.123Z");
  EXPECT_EQ(json["committed"], "2023-11-14T22:13:21.000Z");
  EXPECT_TRUE(json["verified"].is_null());
  v1::Checkpoint verified = SomeCheckpoint();
  verified.mutable_verified()->set_ok(true);
  EXPECT_THAT(Keys(Json::parse(CheckpointJson(verified))["verified"]), ElementsAre("at", "ok"));
}

TEST(RenderJson, AnAttemptHasTheDocumentedFields) {
  Json json = Json::parse(AttemptJson(SomeAttempt()));
  EXPECT_EQ(Keys(json), kAttemptKeys);
  EXPECT_THAT(Keys(json["ranks"][0]), ElementsAre("rank", "node", "pid", "state", "planned_bytes",
                                                  "staged_bytes", "written_bytes"));
  EXPECT_TRUE(json["ranks"][0]["node"].is_null());
  EXPECT_TRUE(json["ranks"][0]["pid"].is_null());
  EXPECT_EQ(json["ranks_missing"], Json({1}));
  EXPECT_EQ(json["nodes_missing"], Json::array());
  EXPECT_TRUE(json["begun"].is_null());
  EXPECT_TRUE(json["error"].is_null());
}

TEST(RenderJson, AFailureSaysWhereAndWhy) {
  v1::Attempt attempt = SomeAttempt();
  attempt.set_state("failed");
  v1::Failure& error = *attempt.mutable_error();
  error.set_code("ABORTED");
  error.set_message("process 17 died");
  error.set_rank(0);
  error.set_phase("stage");
  Json json = Json::parse(AttemptJson(attempt))["error"];
  EXPECT_THAT(Keys(json), ElementsAre("code", "message", "rank", "node", "phase"));
  EXPECT_EQ(json["rank"], 0);
  EXPECT_TRUE(json["node"].is_null());
}

TEST(RenderJson, WhatNobodyKnowsIsNull) {
  v1::Attempt waiting;
  waiting.set_job("llm");
  waiting.set_checkpoint_id("x");
  waiting.set_world_size(1);
  waiting.set_state("waiting");
  Json json = Json::parse(AttemptJson(waiting));
  EXPECT_TRUE(json["sequence"].is_null());
  EXPECT_TRUE(json["attempt"].is_null());
  EXPECT_TRUE(json["begun"].is_null());

  v1::Attempt unreadable;
  unreadable.set_attempt("8-00c0ffee00c0ffee");
  unreadable.set_state("unknown");
  json = Json::parse(AttemptJson(unreadable));
  EXPECT_EQ(Keys(json), kAttemptKeys);
  for (const char* key : {"id", "step", "world_size", "root", "planned_bytes", "staged_bytes"}) {
    EXPECT_TRUE(json[key].is_null()) << key;
  }
}

TEST(RenderJson, AListHasCheckpointsAttemptsAndWhatIsDamaged) {
  v1::ListReply reply;
  *reply.add_checkpoints() = SomeCheckpoint();
  *reply.add_attempts() = SomeAttempt();
  reply.add_damaged()->set_id("broken");
  Json json = Json::parse(ListJson(reply));
  EXPECT_THAT(Keys(json), ElementsAre("checkpoints", "attempts", "damaged"));
  EXPECT_EQ(Keys(json["checkpoints"][0]), kCheckpointKeys);
  EXPECT_EQ(Keys(json["attempts"][0]), kAttemptKeys);
  EXPECT_THAT(Keys(json["damaged"][0]), ElementsAre("job", "id", "path", "error"));
}

TEST(RenderJson, WhatIsShownHasItsFiles) {
  v1::ShowReply reply;
  *reply.mutable_checkpoint() = SomeCheckpoint();
  v1::FileStatus& file = *reply.mutable_checkpoint()->add_file_list();
  file.set_name("shard");
  file.set_rank(0);
  Json json = Json::parse(ShowJson(reply));
  EXPECT_EQ(Keys(json), kCheckpointKeys);
  EXPECT_THAT(Keys(json["files"][0]), ElementsAre("name", "bytes", "rank", "node"));

  v1::ShowReply attempt;
  *attempt.mutable_attempt() = SomeAttempt();
  std::vector<std::string> keys = kAttemptKeys;
  keys.push_back("files");
  EXPECT_EQ(Keys(Json::parse(ShowJson(attempt))), keys);
}

TEST(RenderJson, ADescriptionHasTensorsAndItems) {
  v1::DescribeReply reply;
  v1::StoredTensor& tensor = *reply.add_tensors();
  tensor.set_name("w");
  tensor.set_dtype(4);
  tensor.add_shape(8);
  v1::StoredChunk& chunk = *tensor.add_chunks();
  chunk.mutable_box()->add_offsets(0);
  chunk.mutable_box()->add_sizes(8);
  chunk.set_file_offset_bytes(4096);
  auto add_item = [&reply](v1::ItemKind kind, const std::string& value, uint64_t bytes) {
    v1::ItemEntry& item = *reply.add_items();
    item.set_name("i");
    item.set_kind(kind);
    item.set_value(value);
    item.set_bytes(bytes);
  };
  add_item(v1::ITEM_KIND_JSON, "{\"lr\":0.1}", 10);
  add_item(v1::ITEM_KIND_TEXT, "abc", 3);
  add_item(v1::ITEM_KIND_BYTES, "\xff\xfe", 2);
  add_item(v1::ITEM_KIND_BYTES, "", 100'000);
  Json json = Json::parse(DescribeJson(reply));
  EXPECT_THAT(Keys(json), ElementsAre("tensors", "items"));
  EXPECT_THAT(Keys(json["tensors"][0]),
              ElementsAre("name", "dtype", "shape", "rank_local", "chunks"));
  EXPECT_EQ(json["tensors"][0]["dtype"], "bfloat16");
  EXPECT_TRUE(json["tensors"][0]["rank_local"].is_null());
  EXPECT_THAT(Keys(json["tensors"][0]["chunks"][0]),
              ElementsAre("offsets", "sizes", "file", "file_offset", "bytes"));
  EXPECT_THAT(Keys(json["items"][0]), ElementsAre("name", "kind", "bytes", "value", "rank_local"));
  EXPECT_EQ(json["items"][0]["kind"], "json");
  EXPECT_EQ(json["items"][0]["value"]["lr"], 0.1);
  EXPECT_EQ(json["items"][1]["value"], "abc");
  EXPECT_EQ(json["items"][2]["value"], "//4=");
  EXPECT_TRUE(json["items"][3]["value"].is_null());
}

TEST(RenderJson, AWatchIsAStatusALineWithProgressOrTheReasonForNone) {
  v1::StatusReply reply;
  *reply.add_attempts() = SomeAttempt();
  *reply.add_attempts() = SomeAttempt();
  std::string text =
      WatchJson(reply, {Progress{}, Progress{.bytes_per_s = 1000, .left = absl::Seconds(1.5)}});
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  Json json = Json::parse(text);
  EXPECT_TRUE(json["away"].is_null());
  EXPECT_THAT(Keys(json["progress"][0]), ElementsAre("job", "id", "attempt", "planned_bytes",
                                                     "written_bytes", "rate_bytes", "left_s"));
  EXPECT_TRUE(json["progress"][0]["rate_bytes"].is_null());
  EXPECT_TRUE(json["progress"][0]["left_s"].is_null());
  EXPECT_EQ(json["progress"][1]["rate_bytes"], 1000);
  EXPECT_EQ(json["progress"][1]["left_s"], 1.5);
  Json away = Json::parse(AwayJson("nobody there"));
  EXPECT_EQ(Keys(away), Keys(json));
  EXPECT_EQ(away["away"], "nobody there");
  EXPECT_TRUE(away["daemon"].is_null());
}

TEST(RenderJson, AChecksAdviceIsNullIfThereIsNone) {
  Json json = Json::parse(DoctorJson({{.name = "rename", .needed = true, .ok = true, .value = "v"},
                                      {.name = "io_uring", .value = "w", .advice = "a"}}));
  EXPECT_THAT(Keys(json["checks"][0]), ElementsAre("name", "ok", "value", "advice", "needed"));
  EXPECT_TRUE(json["checks"][0]["advice"].is_null());
  EXPECT_EQ(json["checks"][1]["advice"], "a");
  EXPECT_EQ(json["checks"][1]["ok"], false);
}

TEST(RenderJson, TheStatusHasTheDocumentedFields) {
  v1::StatusReply reply;
  reply.add_roots();
  reply.add_sessions();
  reply.add_loads();
  *reply.add_attempts() = SomeAttempt();
  *reply.add_failures() = SomeAttempt();
  Json json = Json::parse(StatusJson(reply));
  EXPECT_THAT(Keys(json), ElementsAre("daemon", "memory", "roots", "sessions", "attempts", "loads",
                                      "failures"));
  EXPECT_THAT(Keys(json["daemon"]), ElementsAre("version", "pid", "uid", "node", "socket", "listen",
                                                "uptime_s", "state"));
  EXPECT_THAT(Keys(json["memory"]),
              ElementsAre("arena_bytes", "arena_limit_bytes", "huge_pages", "warnings"));
  EXPECT_THAT(Keys(json["roots"][0]),
              ElementsAre("label", "path", "state", "reason", "file_system", "free_bytes", "io",
                          "io_reason", "direct", "fixed_buffers"));
  EXPECT_THAT(Keys(json["sessions"][0]), ElementsAre("job", "incarnation", "rank", "world_size",
                                                     "pid", "arena_bytes", "state"));
  EXPECT_THAT(Keys(json["loads"][0]),
              ElementsAre("job", "id", "rank", "total_bytes", "done_bytes"));
  EXPECT_EQ(Keys(json["attempts"][0]), kAttemptKeys);
  EXPECT_EQ(Keys(json["failures"][0]), kAttemptKeys);
}

TEST(RenderJson, AVerificationIsOkOnlyIfEverythingIs) {
  v1::VerifyReply good;
  good.set_ok(true);
  v1::VerifyReply bad;
  bad.add_errors()->set_message("checksum differs");
  EXPECT_EQ(Json::parse(VerifyJson({good}))["ok"], true);
  Json json = Json::parse(VerifyJson({good, bad}));
  EXPECT_EQ(json["ok"], false);
  EXPECT_THAT(Keys(json["checked"][1]), ElementsAre("job", "id", "ok", "bytes", "errors"));
  EXPECT_THAT(Keys(json["checked"][1]["errors"][0]),
              ElementsAre("file", "tensor", "offset", "bytes", "message"));
}

TEST(RenderJson, TheSmallOnes) {
  v1::DeleteReply deleted;
  deleted.add_deleted("a");
  EXPECT_EQ(Json::parse(DeletedJson(deleted)), Json::parse(R"({"deleted":["a"]})"));
  EXPECT_EQ(Json::parse(HealthJson(true)), Json::parse(R"({"state":"serving"})"));
  v1::VersionReply version;
  version.set_version("0.1.0");
  version.set_protocol(1);
  EXPECT_THAT(Keys(Json::parse(VersionJson(version, nullptr))),
              ElementsAre("version", "commit", "protocol", "daemon"));
  EXPECT_EQ(ErrorJson("NOT_FOUND", 3, "no \"x\""),
            "{\"code\":\"NOT_FOUND\",\"exit\":3,\"message\":\"no \\\"x\\\"\"}\n");
}

TEST(RenderJson, TextThatIsNotUtf8DoesNotBreakTheDocument) {
  v1::VerifyReply reply;
  reply.add_errors()->set_tensor("a\xff");
  EXPECT_FALSE(Json::parse(VerifyJson({reply}), nullptr, false).is_discarded());
}

}  // namespace
}  // namespace ckptd
