#include "client/cli/render_text.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/table.h"
#include "storage/base/units.h"
#include "storage/plan/box.h"
#include "storage/plan/dtype.h"

namespace ckptd {
namespace {

constexpr size_t kValueBytesMax = 60;

std::string Count(uint64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string Percent(uint64_t part, uint64_t whole) {
  // Rounded down: 100% only when it is whole.
  return whole == 0 ? "0%" : absl::StrCat(static_cast<int>(100.0 * part / whole), "%");
}

std::string Age(bool known, int64_t unix_ns, absl::Time now) {
  return known ? HumanAge(now - absl::FromUnixNanos(unix_ns)) : "-";
}

std::string TimeText(int64_t unix_ns, absl::Time now) {
  if (unix_ns == 0) return "unknown";
  absl::Time time = absl::FromUnixNanos(unix_ns);
  return absl::StrCat(HumanAge(now - time), " ago (",
                      absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()), ")");
}

std::string VerifiedText(const v1::Checkpoint& checkpoint, absl::Time now) {
  if (!checkpoint.has_verified()) return "never verified";
  return absl::StrCat(checkpoint.verified().ok() ? "verified " : "DAMAGED, found ",
                      Age(true, checkpoint.verified().at_unix_ns(), now), " ago");
}

std::string FailureText(const v1::Failure& failure) {
  std::vector<std::string> where;
  if (failure.has_rank()) where.push_back(absl::StrCat("rank ", failure.rank()));
  if (!failure.node().empty()) where.push_back(absl::StrCat("node ", failure.node()));
  if (!failure.phase().empty()) where.push_back(absl::StrCat("phase ", failure.phase()));
  return absl::StrCat(absl::StrJoin(where, ", "), where.empty() ? "" : ": ", failure.message(),
                      " (", failure.code(), ")");
}

std::string Id(const v1::Attempt& attempt) {
  return attempt.checkpoint_id().empty() ? attempt.attempt() : attempt.checkpoint_id();
}

uint64_t SizeOf(const v1::Attempt& attempt) {
  return attempt.planned_bytes() > 0 ? attempt.planned_bytes() : attempt.written_bytes();
}

std::string AttemptAge(const v1::Attempt& attempt, absl::Time now) {
  if (attempt.has_ended_unix_ns()) return Age(true, attempt.ended_unix_ns(), now);
  return Age(attempt.has_begun_unix_ns(), attempt.begun_unix_ns(), now);
}

std::string Step(const v1::Attempt& attempt) {
  return attempt.world_size() > 0 ? absl::StrCat(attempt.step()) : "-";
}

// A row with what it is sorted by; attempts that still wait for admission have no sequence and come
// last.
struct Row {
  std::tuple<bool, uint64_t, std::string> order;
  std::string job;
  std::string root;  // Label; may be unknown.
  std::vector<std::string> texts;
};

std::string Rows(std::vector<Row> rows, int indent) {
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.order < b.order; });
  std::set<std::string> jobs;
  std::set<std::string> roots;
  for (const Row& row : rows) {
    jobs.insert(row.job);
    if (!row.root.empty()) roots.insert(row.root);
  }
  std::vector<std::string> titles = {"ID", ">STEP", "STATE", ">SIZE", ">AGE", "DETAIL"};
  if (roots.size() > 1) titles.insert(titles.begin(), "ROOT");
  if (jobs.size() > 1) titles.insert(titles.begin(), "JOB");
  Table table(titles);
  for (Row& row : rows) {
    if (roots.size() > 1) row.texts.insert(row.texts.begin(), row.root.empty() ? "-" : row.root);
    if (jobs.size() > 1) row.texts.insert(row.texts.begin(), row.job);
    table.Add(std::move(row.texts));
  }
  return table.Text(indent);
}

Row AttemptRow(const v1::Attempt& attempt, absl::Time now) {
  return {{attempt.sequence() == 0, attempt.sequence(), attempt.attempt()},
          attempt.job(),
          attempt.root(),
          {Id(attempt), Step(attempt), attempt.state(), HumanSize(SizeOf(attempt)),
           AttemptAge(attempt, now), AttemptDetail(attempt)}};
}

Row CheckpointRow(const v1::Checkpoint& checkpoint, absl::Time now) {
  return {
      {false, checkpoint.sequence(), checkpoint.attempt()},
      checkpoint.job(),
      checkpoint.root(),
      {checkpoint.id(), absl::StrCat(checkpoint.step()), "committed", HumanSize(checkpoint.bytes()),
       Age(checkpoint.committed_unix_ns() != 0, checkpoint.committed_unix_ns(), now),
       absl::StrCat(Count(checkpoint.world_size(), "rank"), ", ", Count(checkpoint.files(), "file"),
                    ", ", VerifiedText(checkpoint, now))}};
}

template <typename Attempts>
std::string AttemptRows(const Attempts& attempts, absl::Time now) {
  std::vector<Row> rows;
  for (const v1::Attempt& attempt : attempts) rows.push_back(AttemptRow(attempt, now));
  return Rows(std::move(rows), 2);
}

// "  what    value" lines.
class Facts {
 public:
  void Add(absl::string_view name, absl::string_view value) {
    absl::StrAppendFormat(&text_, "  %-10s  %s\n", name, Printable(value));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

template <typename Files>
std::string FilesText(const Files& files) {
  if (files.empty()) return "";
  Table table({"FILE", ">SIZE", ">RANK", "NODE"});
  for (const v1::FileStatus& file : files) {
    table.Add({file.name(), HumanSize(file.bytes()),
               file.has_rank() ? absl::StrCat(file.rank()) : "-", file.node()});
  }
  return absl::StrCat("\n", table.Text(2));
}

std::string CheckpointText(const v1::Checkpoint& checkpoint, absl::Time now) {
  Facts facts;
  facts.Add("step", absl::StrCat(checkpoint.step()));
  facts.Add("attempt", checkpoint.attempt());
  facts.Add("begun", TimeText(checkpoint.begun_unix_ns(), now));
  facts.Add("committed", TimeText(checkpoint.committed_unix_ns(), now));
  facts.Add(
      "size",
      absl::StrCat(HumanSize(checkpoint.bytes()), ": ", Count(checkpoint.tensors(), "tensor"), ", ",
                   Count(checkpoint.items(), "item"), ", ", Count(checkpoint.files(), "file")));
  facts.Add("ranks",
            absl::StrCat(checkpoint.world_size(), " on ", absl::StrJoin(checkpoint.nodes(), ", ")));
  facts.Add("verified", VerifiedText(checkpoint, now));
  facts.Add("path", checkpoint.path());
  return absl::StrCat("checkpoint ", Printable(checkpoint.id()), " of job ",
                      Printable(checkpoint.job()), "\n", facts.text(),
                      FilesText(checkpoint.file_list()));
}

std::string AttemptText(const v1::Attempt& attempt, absl::Time now) {
  Facts facts;
  facts.Add("checkpoint", attempt.checkpoint_id());
  facts.Add("step", Step(attempt));
  facts.Add("state", attempt.state());
  if (attempt.has_begun_unix_ns()) facts.Add("begun", TimeText(attempt.begun_unix_ns(), now));
  if (attempt.has_ended_unix_ns()) facts.Add("ended", TimeText(attempt.ended_unix_ns(), now));
  facts.Add("size", HumanSize(SizeOf(attempt)));
  facts.Add("ranks", absl::StrCat(attempt.world_size()));
  facts.Add(attempt.has_error() ? "error" : "progress", AttemptDetail(attempt));
  Table ranks({">RANK", "NODE", ">PID", "STATE", ">PLANNED", ">STAGED", ">WRITTEN"});
  for (const v1::RankStatus& rank : attempt.ranks()) {
    ranks.Add({absl::StrCat(rank.rank()), rank.node(),
               rank.pid() == 0 ? "-" : absl::StrCat(rank.pid()), rank.state(),
               HumanSize(rank.planned_bytes()), HumanSize(rank.staged_bytes()),
               HumanSize(rank.written_bytes())});
  }
  return absl::StrCat("attempt ", attempt.attempt().empty() ? "(waiting)" : attempt.attempt(),
                      " of job ", Printable(attempt.job()), "\n", facts.text(),
                      ranks.empty() ? "" : absl::StrCat("\n", ranks.Text(2)),
                      FilesText(attempt.files()));
}

std::string ValueText(const v1::ItemEntry& item) {
  if (item.kind() == v1::ITEM_KIND_BYTES || item.value().size() != item.bytes()) return "";
  if (item.value().size() <= kValueBytesMax) return item.value();
  size_t end = kValueBytesMax;
  while (end > 0 && (item.value()[end] & 0xc0) == 0x80) --end;  // Not inside a character.
  return absl::StrCat(item.value().substr(0, end), "…");
}

std::string IoText(const v1::RootStatus& root) {
  std::string text = root.io();
  if (root.direct()) absl::StrAppend(&text, ", direct");
  if (root.fixed_buffers()) absl::StrAppend(&text, ", fixed buffers");
  return absl::StrCat(text, " (", root.io_reason(), ")");
}

std::string HeadText(const v1::StatusReply& reply) {
  const v1::DaemonStatus& daemon = reply.daemon();
  const v1::MemoryStatus& memory = reply.memory();
  std::string text = absl::StrCat(
      "ckptd ", daemon.version(), ", ", daemon.state(), ", pid ", daemon.pid(), ", uid ",
      daemon.uid(), ", node ", Printable(daemon.node()), ", up ",
      HumanAge(absl::Seconds(daemon.uptime_s())), "\n  socket ", Printable(daemon.socket()),
      daemon.listen().empty() ? "" : absl::StrCat(", listens on ", daemon.listen()), "\n  arenas ",
      HumanSize(memory.arena_bytes()), " of at most ", HumanSize(memory.arena_limit_bytes()),
      memory.huge_pages() ? ", 2 MiB pages" : "", "\n");
  for (const std::string& warning : memory.warnings()) {
    absl::StrAppend(&text, "  warning: ", Printable(warning), "\n");
  }
  return text;
}

// A line for each job: thousands of ranks are no reason for more.
std::string SessionsText(const v1::StatusReply& reply) {
  struct Job {
    uint64_t arena_bytes = 0;
    uint32_t alive = 0;
    uint32_t world_size = 0;
    std::vector<uint32_t> lost;
  };
  std::map<std::pair<std::string, std::string>, Job> jobs;
  for (const v1::SessionStatus& session : reply.sessions()) {
    Job& job = jobs[{session.job(), session.incarnation()}];
    job.arena_bytes += session.arena_bytes();
    job.world_size = session.world_size();
    if (session.state() == "alive") {
      ++job.alive;
    } else {
      job.lost.push_back(session.rank());
    }
  }
  if (jobs.empty()) return "";
  Table table({"SESSIONS", ">ALIVE", ">OF", ">ARENAS", "LOST RANKS"});
  for (const auto& [key, job] : jobs) {
    table.Add({key.first, absl::StrCat(job.alive), absl::StrCat(job.world_size),
               HumanSize(job.arena_bytes), job.lost.empty() ? "-" : absl::StrJoin(job.lost, " ")});
  }
  return absl::StrCat("\n", table.Text(2));
}

std::string RateText(const Progress& progress) {
  if (!progress.bytes_per_s) return "-";
  return absl::StrCat(HumanSize(static_cast<uint64_t>(*progress.bytes_per_s)), "/s");
}

std::string InFlightRows(const v1::StatusReply& reply, absl::Time now,
                         const std::vector<Progress>* progress) {
  if (progress == nullptr) return AttemptRows(reply.attempts(), now);
  Table table(
      {"JOB", "ID", ">STEP", "STATE", ">AGE", ">WRITTEN", ">OF", ">RATE", ">LEFT", "DETAIL"});
  for (int i = 0; i < reply.attempts_size(); ++i) {
    const v1::Attempt& attempt = reply.attempts(i);
    const Progress& own = (*progress)[i];
    table.Add({attempt.job(), Id(attempt), Step(attempt), attempt.state(), AttemptAge(attempt, now),
               HumanSize(attempt.written_bytes()), HumanSize(attempt.planned_bytes()),
               RateText(own), own.left ? HumanAge(*own.left) : "-", AttemptDetail(attempt)});
  }
  return table.Text(2);
}

std::string FailuresText(const v1::StatusReply& reply, absl::Time now) {
  constexpr int kShown = 5;
  int count = reply.failures_size();
  if (count == 0) return "";
  int hidden = std::max(0, count - kShown);
  std::vector<v1::Attempt> shown(reply.failures().begin() + hidden, reply.failures().end());
  return absl::StrCat(
      "\nfailed", hidden == 0 ? "" : absl::StrCat(" (and ", hidden, " before: ckptctl list --all)"),
      "\n", AttemptRows(shown, now));
}

}  // namespace

std::string HumanAge(absl::Duration age) {
  int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(age));
  if (seconds < 100) return absl::StrCat(seconds, "s");
  if (seconds < 100 * 60) return absl::StrCat(seconds / 60, "m");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, "h");
  return absl::StrCat(seconds / (24 * 3600), "d");
}

std::string AttemptDetail(const v1::Attempt& attempt) {
  if (attempt.has_error()) return FailureText(attempt.error());
  if (attempt.state() == "unknown") {
    return absl::StrCat("unfinished, shards of ", HumanSize(attempt.written_bytes()));
  }
  std::vector<std::string> parts;
  if (attempt.planned_bytes() > 0) {
    parts.push_back(
        absl::StrCat("staged ", Percent(attempt.staged_bytes(), attempt.planned_bytes())));
    parts.push_back(
        absl::StrCat("written ", Percent(attempt.written_bytes(), attempt.planned_bytes())));
  }
  if (!attempt.ranks_missing().empty()) {
    parts.push_back(absl::StrCat("missing ranks ", absl::StrJoin(attempt.ranks_missing(), " ")));
  }
  if (!attempt.nodes_missing().empty()) {
    parts.push_back(absl::StrCat("missing nodes ", absl::StrJoin(attempt.nodes_missing(), " ")));
  }
  return absl::StrJoin(parts, ", ");
}

std::string ListText(const v1::ListReply& reply, absl::Time now) {
  std::vector<Row> rows;
  for (const v1::DamagedCheckpoint& damaged : reply.damaged()) {
    rows.push_back({{false, 0, damaged.id()},
                    damaged.job(),
                    "",
                    {damaged.id(), "-", "DAMAGED", "-", "-", FailureText(damaged.error())}});
  }
  for (const v1::Checkpoint& checkpoint : reply.checkpoints()) {
    rows.push_back(CheckpointRow(checkpoint, now));
  }
  for (const v1::Attempt& attempt : reply.attempts()) rows.push_back(AttemptRow(attempt, now));
  if (rows.empty()) return "nothing there\n";
  return Rows(std::move(rows), 0);
}

std::string ShowText(const v1::ShowReply& reply, absl::Time now) {
  return reply.has_checkpoint() ? CheckpointText(reply.checkpoint(), now)
                                : AttemptText(reply.attempt(), now);
}

std::string DescribeText(const v1::DescribeReply& reply) {
  std::string text;
  Table tensors({"TENSOR", "TYPE", "SHAPE", ">RANK", ">CHUNKS", ">SIZE"});
  for (const v1::StoredTensor& tensor : reply.tensors()) {
    uint64_t bytes = 0;
    for (const v1::StoredChunk& chunk : tensor.chunks()) bytes += chunk.bytes();
    int dtype = static_cast<int>(tensor.dtype());
    tensors.Add({tensor.name(),
                 IsDType(dtype) ? std::string(Info(static_cast<DType>(dtype)).name) : "?",
                 ShapeString(Shape(tensor.shape().begin(), tensor.shape().end())),
                 tensor.has_rank_local() ? absl::StrCat(tensor.rank_local()) : "all",
                 absl::StrCat(tensor.chunks_size()), HumanSize(bytes)});
  }
  if (!tensors.empty()) text = tensors.Text();
  Table items({"ITEM", "KIND", ">RANK", ">SIZE", "VALUE"});
  for (const v1::ItemEntry& item : reply.items()) {
    const char* kind = item.kind() == v1::ITEM_KIND_JSON   ? "json"
                       : item.kind() == v1::ITEM_KIND_TEXT ? "text"
                                                           : "bytes";
    items.Add({item.name(), kind, item.has_rank() ? absl::StrCat(item.rank()) : "all",
               HumanSize(item.bytes()), ValueText(item)});
  }
  if (!items.empty()) absl::StrAppend(&text, text.empty() ? "" : "\n", items.Text());
  return text.empty() ? "no tensor and no item\n" : text;
}

std::string VerifyText(const std::vector<v1::VerifyReply>& replies) {
  std::string text;
  for (const v1::VerifyReply& reply : replies) {
    absl::StrAppend(&text, reply.ok() ? "ok       " : "DAMAGED  ", Printable(reply.id()), "  (job ",
                    Printable(reply.job()), ", ", HumanSize(reply.bytes()), " read)\n");
    for (const v1::VerifyError& error : reply.errors()) {
      absl::StrAppend(&text, "         ", Printable(error.file()), error.file().empty() ? "" : ": ",
                      Printable(error.message()));
      if (error.bytes() > 0) {
        absl::StrAppend(&text, ", bytes ", error.offset(), " to ", error.offset() + error.bytes());
      }
      if (!error.tensor().empty()) absl::StrAppend(&text, ", in ", Printable(error.tensor()));
      absl::StrAppend(&text, "\n");
    }
  }
  return text;
}

std::string DoctorText(const std::vector<HostCheck>& checks) {
  std::string text;
  for (const HostCheck& check : checks) {
    const char* verdict = check.ok ? "ok" : check.needed ? "MISSING" : "without";
    absl::StrAppendFormat(&text, "%-7s  %-13s  %s\n", verdict, check.name, Printable(check.value));
    if (check.advice.empty()) continue;
    for (absl::string_view part : absl::StrSplit(check.advice, "; ")) {
      absl::StrAppendFormat(&text, "%25s- %s\n", "", Printable(part));
    }
  }
  return text;
}

std::string StatusText(const v1::StatusReply& reply, absl::Time now,
                       const std::vector<Progress>* progress) {
  std::string text = HeadText(reply);
  Table roots({"ROOT", "STATE", "PATH", "FILE SYSTEM", ">FREE", "I/O"});
  for (const v1::RootStatus& root : reply.roots()) {
    roots.Add(
        {root.label(),
         root.reason().empty() ? root.state() : absl::StrCat(root.state(), ": ", root.reason()),
         root.path(), root.file_system(),
         root.has_free_bytes() ? HumanSize(root.free_bytes()) : "-", IoText(root)});
  }
  if (!roots.empty()) absl::StrAppend(&text, "\n", roots.Text(2));
  absl::StrAppend(&text, SessionsText(reply));
  if (!reply.attempts().empty()) {
    absl::StrAppend(&text, "\nin flight\n", InFlightRows(reply, now, progress));
  }
  Table loads({"LOAD", "ID", ">RANK", ">DONE", ">TOTAL"});
  for (const v1::LoadStatus& load : reply.loads()) {
    loads.Add({load.job(), load.id(), absl::StrCat(load.rank()), HumanSize(load.done_bytes()),
               HumanSize(load.total_bytes())});
  }
  if (!loads.empty()) absl::StrAppend(&text, "\n", loads.Text(2));
  absl::StrAppend(&text, FailuresText(reply, now));
  return text;
}

}  // namespace ckptd
