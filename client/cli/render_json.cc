#include "client/cli/render_json.h"

#include <cstdint>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "storage/plan/dtype.h"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;

std::string Document(const Json& json, bool one_line = false) {
  return json.dump(one_line ? -1 : 2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

template <typename Number>
Json NumberOrNull(bool known, Number number) {
  return known ? Json(number) : Json(nullptr);
}

Json Time(bool known, int64_t unix_ns) {
  if (!known) return nullptr;
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::FromUnixNanos(unix_ns),
                          absl::UTCTimeZone());
}

template <typename Values>
Json List(const Values& values) {
  Json list = Json::array();
  for (const auto& value : values) list.push_back(value);
  return list;
}

// Each message by `convert`.
template <typename Messages, typename Convert>
Json Each(const Messages& messages, Convert convert) {
  Json list = Json::array();
  for (const auto& message : messages) list.push_back(convert(message));
  return list;
}

Json FailureJson(const v1::Failure& failure) {
  return Json{{"code", failure.code()},
              {"message", failure.message()},
              {"rank", NumberOrNull(failure.has_rank(), failure.rank())},
              {"node", TextOrNull(failure.node())},
              {"phase", TextOrNull(failure.phase())}};
}

Json FileJson(const v1::FileStatus& file) {
  return Json{{"name", file.name()},
              {"bytes", file.bytes()},
              {"rank", NumberOrNull(file.has_rank(), file.rank())},
              {"node", TextOrNull(file.node())}};
}

Json CheckpointObject(const v1::Checkpoint& checkpoint) {
  Json verified;
  if (checkpoint.has_verified()) {
    verified = Json{{"at", Time(true, checkpoint.verified().at_unix_ns())},
                    {"ok", checkpoint.verified().ok()}};
  }
  return Json{
      {"job", checkpoint.job()},
      {"id", checkpoint.id()},
      {"step", checkpoint.step()},
      {"sequence", checkpoint.sequence()},
      {"attempt", checkpoint.attempt()},
      {"state", "committed"},
      {"world_size", checkpoint.world_size()},
      {"nodes", List(checkpoint.nodes())},
      {"tensors", checkpoint.tensors()},
      {"items", checkpoint.items()},
      {"bytes", checkpoint.bytes()},
      {"files", checkpoint.files()},
      {"begun", Time(checkpoint.begun_unix_ns() != 0, checkpoint.begun_unix_ns())},
      {"committed", Time(checkpoint.committed_unix_ns() != 0, checkpoint.committed_unix_ns())},
      {"path", checkpoint.path()},
      {"verified", std::move(verified)}};
}

Json RankObject(const v1::RankStatus& rank) {
  return Json{{"rank", rank.rank()},
              {"node", TextOrNull(rank.node())},
              {"pid", NumberOrNull(rank.pid() != 0, rank.pid())},
              {"state", rank.state()},
              {"planned_bytes", rank.planned_bytes()},
              {"staged_bytes", rank.staged_bytes()},
              {"written_bytes", rank.written_bytes()}};
}

Json AttemptObject(const v1::Attempt& attempt) {
  // Without a daemon nobody knows what was planned and staged; without its record, not even the
  // step.
  bool unattended = attempt.state() == "unknown" && attempt.ranks().empty();
  bool readable = attempt.world_size() > 0;
  return Json{{"job", attempt.job()},
              {"id", TextOrNull(attempt.checkpoint_id())},
              {"step", NumberOrNull(readable, attempt.step())},
              {"sequence", NumberOrNull(attempt.sequence() != 0, attempt.sequence())},
              {"attempt", TextOrNull(attempt.attempt())},
              {"incarnation", NumberOrNull(readable, attempt.incarnation())},
              {"world_size", NumberOrNull(readable, attempt.world_size())},
              {"root", TextOrNull(attempt.root())},
              {"state", attempt.state()},
              {"planned_bytes", NumberOrNull(!unattended, attempt.planned_bytes())},
              {"staged_bytes", NumberOrNull(!unattended, attempt.staged_bytes())},
              {"written_bytes", attempt.written_bytes()},
              {"ranks", Each(attempt.ranks(), RankObject)},
              {"ranks_missing", List(attempt.ranks_missing())},
              {"nodes_missing", List(attempt.nodes_missing())},
              {"begun", Time(attempt.has_begun_unix_ns(), attempt.begun_unix_ns())},
              {"ended", Time(attempt.has_ended_unix_ns(), attempt.ended_unix_ns())},
              {"error", attempt.has_error() ? FailureJson(attempt.error()) : Json(nullptr)}};
}

Json DamagedObject(const v1::DamagedCheckpoint& damaged) {
  return Json{{"job", damaged.job()},
              {"id", damaged.id()},
              {"path", damaged.path()},
              {"error", FailureJson(damaged.error())}};
}

Json TensorObject(const v1::StoredTensor& tensor) {
  int dtype = static_cast<int>(tensor.dtype());
  Json chunks = Each(tensor.chunks(), [](const v1::StoredChunk& chunk) {
    return Json{{"offsets", List(chunk.box().offsets())},
                {"sizes", List(chunk.box().sizes())},
                {"file", chunk.file()},
                {"file_offset", chunk.file_offset_bytes()},
                {"bytes", chunk.bytes()}};
  });
  return Json{{"name", tensor.name()},
              {"dtype", IsDType(dtype) ? Json(std::string(Info(static_cast<DType>(dtype)).name))
                                       : Json(nullptr)},
              {"shape", List(tensor.shape())},
              {"rank_local", NumberOrNull(tensor.has_rank_local(), tensor.rank_local())},
              {"chunks", std::move(chunks)}};
}

Json ItemObject(const v1::ItemEntry& item) {
  bool inlined = item.value().size() == item.bytes();
  std::string kind = "bytes";
  Json value;
  if (item.kind() == v1::ITEM_KIND_JSON) {
    kind = "json";
    if (inlined) value = Json::parse(item.value(), nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) value = nullptr;
  } else if (item.kind() == v1::ITEM_KIND_TEXT) {
    kind = "text";
    if (inlined) value = item.value();
  } else if (inlined) {
    value = absl::Base64Escape(item.value());
  }
  return Json{{"name", item.name()},
              {"kind", kind},
              {"bytes", item.bytes()},
              {"value", std::move(value)},
              {"rank_local", NumberOrNull(item.has_rank(), item.rank())}};
}

Json DaemonObject(const v1::DaemonStatus& daemon) {
  return Json{{"version", daemon.version()},   {"pid", daemon.pid()},
              {"uid", daemon.uid()},           {"node", daemon.node()},
              {"socket", daemon.socket()},     {"listen", TextOrNull(daemon.listen())},
              {"uptime_s", daemon.uptime_s()}, {"state", daemon.state()}};
}

Json MemoryObject(const v1::MemoryStatus& memory) {
  return Json{{"arena_bytes", memory.arena_bytes()},
              {"arena_limit_bytes", memory.arena_limit_bytes()},
              {"huge_pages", memory.huge_pages()},
              {"warnings", List(memory.warnings())}};
}

Json RootObject(const v1::RootStatus& root) {
  return Json{{"label", root.label()},
              {"path", root.path()},
              {"state", root.state()},
              {"reason", TextOrNull(root.reason())},
              {"file_system", TextOrNull(root.file_system())},
              {"free_bytes", NumberOrNull(root.has_free_bytes(), root.free_bytes())},
              {"io", TextOrNull(root.io())},
              {"io_reason", TextOrNull(root.io_reason())},
              {"direct", root.direct()},
              {"fixed_buffers", root.fixed_buffers()}};
}

Json SessionObject(const v1::SessionStatus& session) {
  return Json{{"job", session.job()},    {"incarnation", session.incarnation()},
              {"rank", session.rank()},  {"world_size", session.world_size()},
              {"pid", session.pid()},    {"arena_bytes", session.arena_bytes()},
              {"state", session.state()}};
}

Json LoadObject(const v1::LoadStatus& load) {
  return Json{{"job", load.job()},
              {"id", load.id()},
              {"rank", load.rank()},
              {"total_bytes", load.total_bytes()},
              {"done_bytes", load.done_bytes()}};
}

Json VerifyObject(const v1::VerifyReply& reply) {
  Json errors = Each(reply.errors(), [](const v1::VerifyError& error) {
    return Json{{"file", TextOrNull(error.file())},
                {"tensor", TextOrNull(error.tensor())},
                {"offset", error.offset()},
                {"bytes", error.bytes()},
                {"message", error.message()}};
  });
  return Json{{"job", reply.job()},
              {"id", reply.id()},
              {"ok", reply.ok()},
              {"bytes", reply.bytes()},
              {"errors", std::move(errors)}};
}

Json VersionObject(const v1::VersionReply& version) {
  return Json{{"version", version.version()},
              {"commit", TextOrNull(version.commit())},
              {"protocol", version.protocol()}};
}

Json StatusObject(const v1::StatusReply& reply) {
  return Json{{"daemon", DaemonObject(reply.daemon())},
              {"memory", MemoryObject(reply.memory())},
              {"roots", Each(reply.roots(), RootObject)},
              {"sessions", Each(reply.sessions(), SessionObject)},
              {"attempts", Each(reply.attempts(), AttemptObject)},
              {"loads", Each(reply.loads(), LoadObject)},
              {"failures", Each(reply.failures(), AttemptObject)}};
}

Json ProgressObject(const v1::Attempt& attempt, const Progress& progress) {
  Json rate;
  Json left;
  if (progress.bytes_per_s) rate = static_cast<int64_t>(*progress.bytes_per_s);
  if (progress.left) left = absl::ToDoubleSeconds(*progress.left);
  return Json{{"job", attempt.job()},
              {"id", TextOrNull(attempt.checkpoint_id())},
              {"attempt", TextOrNull(attempt.attempt())},
              {"planned_bytes", attempt.planned_bytes()},
              {"written_bytes", attempt.written_bytes()},
              {"rate_bytes", std::move(rate)},
              {"left_s", std::move(left)}};
}

}  // namespace

std::string ListJson(const v1::ListReply& reply) {
  return Document(Json{{"checkpoints", Each(reply.checkpoints(), CheckpointObject)},
                       {"attempts", Each(reply.attempts(), AttemptObject)},
                       {"damaged", Each(reply.damaged(), DamagedObject)}});
}

std::string CheckpointJson(const v1::Checkpoint& checkpoint) {
  return Document(CheckpointObject(checkpoint));
}

std::string AttemptJson(const v1::Attempt& attempt) { return Document(AttemptObject(attempt)); }

std::string ShowJson(const v1::ShowReply& reply) {
  Json json = reply.has_checkpoint() ? CheckpointObject(reply.checkpoint())
                                     : AttemptObject(reply.attempt());
  json["files"] = reply.has_checkpoint() ? Each(reply.checkpoint().file_list(), FileJson)
                                         : Each(reply.attempt().files(), FileJson);
  return Document(json);
}

std::string DescribeJson(const v1::DescribeReply& reply) {
  return Document(Json{{"tensors", Each(reply.tensors(), TensorObject)},
                       {"items", Each(reply.items(), ItemObject)}});
}

std::string VerifyJson(const std::vector<v1::VerifyReply>& replies) {
  bool ok = true;
  for (const v1::VerifyReply& reply : replies) ok = ok && reply.ok();
  return Document(Json{{"ok", ok}, {"checked", Each(replies, VerifyObject)}});
}

std::string DeletedJson(const v1::DeleteReply& reply) {
  return Document(Json{{"deleted", List(reply.deleted())}});
}

std::string HealthJson(bool serving) {
  return Document(Json{{"state", serving ? "serving" : "not_serving"}});
}

std::string DoctorJson(const std::vector<HostCheck>& checks) {
  return Document(Json{{"checks", Each(checks, [](const HostCheck& check) {
                          return Json{{"name", check.name},
                                      {"ok", check.ok},
                                      {"value", check.value},
                                      {"advice", TextOrNull(check.advice)},
                                      {"needed", check.needed}};
                        })}});
}

std::string StatusJson(const v1::StatusReply& reply) { return Document(StatusObject(reply)); }

std::string WatchJson(const v1::StatusReply& reply, const std::vector<Progress>& progress) {
  Json json = StatusObject(reply);
  json["progress"] = Json::array();
  for (int i = 0; i < reply.attempts_size(); ++i) {
    json["progress"].push_back(ProgressObject(reply.attempts(i), progress[i]));
  }
  json["away"] = nullptr;
  return Document(json, /*one_line=*/true);
}

std::string AwayJson(absl::string_view why) {
  Json json = StatusObject(v1::StatusReply());
  json["daemon"] = nullptr;
  json["memory"] = nullptr;
  json["progress"] = Json::array();
  json["away"] = std::string(why);
  return Document(json, /*one_line=*/true);
}

std::string VersionJson(const v1::VersionReply& own, const v1::VersionReply* daemon) {
  Json json = VersionObject(own);
  json["daemon"] = daemon == nullptr ? Json(nullptr) : VersionObject(*daemon);
  return Document(json);
}

std::string ErrorJson(absl::string_view code, int exit_code, absl::string_view message) {
  return Document(
      Json{{"code", std::string(code)}, {"exit", exit_code}, {"message", std::string(message)}},
      /*one_line=*/true);
}

}  // namespace ckptd
