#include "client/cli/run.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/daemon_source.h"
#include "client/cli/doctor.h"
#include "client/cli/exit_code.h"
#include "client/cli/folder_source.h"
#include "client/cli/render_json.h"
#include "client/cli/render_text.h"
#include "client/cli/watch.h"
#include "proto/ckptd/version.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr absl::Duration kWatchTimeout = absl::Seconds(2);
constexpr absl::Duration kHealthPeriod = absl::Milliseconds(100);
constexpr absl::Duration kVersionTimeout = absl::Seconds(2);

// How a verb ended.
struct End {
  End(absl::Status why) : status(std::move(why)), exit_code(ExitCodeOf(status.code())) {}
  End(absl::Status why, int code) : status(std::move(why)), exit_code(code) {}

  absl::Status status;
  int exit_code;
};

absl::Time Now() { return SystemClock().Wall(); }

DaemonSource::Options DaemonOptions(const Options& options) {
  DaemonSource::Options daemon{options.socket, options.socket_origin, options.timeout};
  if (options.timeout_given) daemon.verify_timeout = options.timeout;
  return daemon;
}

absl::StatusOr<std::unique_ptr<DaemonSource>> Daemon(const Options& options) {
  return DaemonSource::Connect(DaemonOptions(options));
}

// What verbs that need no daemon read.
absl::StatusOr<std::unique_ptr<Source>> AnySource(const Options& options) {
  if (options.root.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
    return daemon;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<FolderSource> folder,
                   FolderSource::Open(options.root, options.verb == Verb::kVerify));
  return folder;
}

End List(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::ListReply reply, source->List(options.job, options.all));
  terminal.out << (options.json ? ListJson(reply) : ListText(reply, Now()));
  return absl::OkStatus();
}

End Latest(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::Checkpoint checkpoint, source->Latest(options.job));
  terminal.out << (options.json ? CheckpointJson(checkpoint) : absl::StrCat(checkpoint.id(), "\n"));
  return absl::OkStatus();
}

End Show(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::ShowReply reply, source->Show(options.job, options.ids.front()));
  terminal.out << (options.json ? ShowJson(reply) : ShowText(reply, Now()));
  return absl::OkStatus();
}

End Describe(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::DescribeReply reply,
                   source->Describe(options.job, options.ids.front(), options.tensor_glob));
  terminal.out << (options.json ? DescribeJson(reply) : DescribeText(reply));
  return absl::OkStatus();
}

End Verify(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(std::vector<v1::VerifyReply> replies, source->Verify(options.job, options.ids));
  if (replies.empty()) terminal.err << "ckptctl: nothing to verify\n";
  terminal.out << (options.json ? VerifyJson(replies) : VerifyText(replies));
  if (auto* folder = dynamic_cast<FolderSource*>(source.get())) {
    for (const std::string& warning : folder->warnings()) {
      terminal.err << "ckptctl: warning: " << warning << "\n";
    }
  }
  std::vector<std::string> damaged;
  for (const v1::VerifyReply& reply : replies) {
    if (!reply.ok()) damaged.push_back(reply.id());
  }
  if (damaged.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("damaged: ", absl::StrJoin(damaged, ", ")));
}

End Status(const Options& options, Terminal& terminal) {
  if (options.watch) {
    DaemonSource::Options daemon = DaemonOptions(options);
    if (!options.timeout_given) daemon.timeout = kWatchTimeout;
    return WatchStatus(daemon, options.json, terminal);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  ASSIGN_OR_RETURN(v1::StatusReply reply, daemon->Status());
  terminal.out << (options.json ? StatusJson(reply) : StatusText(reply, Now()));
  return absl::OkStatus();
}

// What has become of a save that was waited for in vain, and what it was waited for.
absl::Status NotReached(const Options& options, const absl::Status& timeout) {
  const std::string& id = options.ids.front();
  std::string what = absl::StrCat("\"", id, "\" was not ", options.state, " within ",
                                  ckptd::FormatDuration(options.timeout));
  Options quick = options;
  quick.timeout = kVersionTimeout;
  absl::StatusOr<std::unique_ptr<DaemonSource>> daemon = Daemon(quick);
  absl::StatusOr<v1::StatusReply> reply = timeout;
  if (daemon.ok()) reply = (*daemon)->Status();
  if (!reply.ok()) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": ", reply.status().message()));
  }
  for (const v1::Attempt& attempt : reply->attempts()) {
    if (attempt.checkpoint_id() != id) continue;
    if (!options.job.empty() && attempt.job() != options.job) continue;
    std::string detail = AttemptDetail(attempt);
    return absl::DeadlineExceededError(absl::StrCat(
        what, ": it is ", attempt.state(), detail.empty() ? "" : absl::StrCat(", ", detail)));
  }
  return absl::DeadlineExceededError(absl::StrCat(what, ": it is not in flight any more"));
}

End Wait(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  absl::StatusOr<v1::Attempt> reached =
      daemon->Wait(options.job, options.ids.front(), options.state);
  if (absl::IsDeadlineExceeded(reached.status())) return NotReached(options, reached.status());
  ASSIGN_OR_RETURN(v1::Attempt attempt, std::move(reached));
  v1::ShowReply shown;
  *shown.mutable_attempt() = attempt;
  terminal.out << (options.json ? AttemptJson(attempt) : ShowText(shown, Now()));
  if (attempt.state() != "failed" && attempt.state() != "unknown") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(options.ids.front(), " is ", attempt.state(), ": ", AttemptDetail(attempt)));
}

End RunDoctor(const Options& options, Terminal& terminal) {
  std::vector<HostCheck> checks = Doctor({options.root, options.socket, options.timeout});
  terminal.out << (options.json ? DoctorJson(checks) : DoctorText(checks));
  std::vector<std::string> missing = MissingNeeds(checks);
  if (missing.empty()) return absl::OkStatus();
  return {absl::FailedPreconditionError(
              absl::StrCat("missing, and needed: ", absl::StrJoin(missing, " "))),
          kExitFailed};
}

absl::Status Confirm(const Options& options, Terminal& terminal) {
  if (options.yes) return absl::OkStatus();
  if (!terminal.interactive) {
    return absl::InvalidArgumentError("delete needs --yes where nobody can be asked");
  }
  terminal.err << "Delete " << absl::StrJoin(options.ids, ", ") << "? [y/N] " << std::flush;
  std::string answer;
  std::getline(terminal.in, answer);
  if (answer == "y" || answer == "yes") return absl::OkStatus();
  return absl::CancelledError("nothing is deleted");
}

// Which of the two: the newest, which is held back, or one that is not there yet.
bool IsInFlight(const absl::Status& refused) {
  return absl::StrContains(refused.message(), "not committed yet");
}

End Delete(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  RETURN_IF_ERROR(Confirm(options, terminal));
  absl::StatusOr<v1::DeleteReply> reply =
      daemon->Delete(options.job, options.ids, options.allow_newest);
  if (absl::IsFailedPrecondition(reply.status()) && !IsInFlight(reply.status()))
    return {reply.status(), kExitHeld};
  if (!reply.ok()) return reply.status();
  if (options.json) {
    terminal.out << DeletedJson(*reply);
  } else {
    for (const std::string& id : reply->deleted()) terminal.out << "deleted " << id << "\n";
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Serving(const Options& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  return daemon->Serving();
}

End Health(const Options& options, Terminal& terminal) {
  absl::Duration end = SystemClock().Monotonic() + options.wait;
  absl::StatusOr<bool> serving = Serving(options);
  while ((!serving.ok() || !*serving) && SystemClock().Monotonic() < end) {
    absl::SleepFor(kHealthPeriod);
    serving = Serving(options);
  }
  if (!serving.ok()) return serving.status();
  if (options.json) {
    terminal.out << HealthJson(*serving);
  } else {
    terminal.out << (*serving ? "serving\n" : "not serving\n");
  }
  if (*serving) return absl::OkStatus();
  return {absl::UnavailableError("the daemon is not serving"), kExitFailed};
}

// Answers without a daemon too.
End Version(const Options& options, Terminal& terminal) {
  v1::VersionReply own;
  own.set_version(kVersion);
  own.set_protocol(kProtocolVersion);
  absl::StatusOr<v1::VersionReply> reply = absl::UnavailableError("not asked");
  if (options.root.empty()) {
    Options quick = options;
    if (!options.timeout_given) quick.timeout = kVersionTimeout;
    absl::StatusOr<std::unique_ptr<DaemonSource>> daemon = Daemon(quick);
    reply = daemon.ok() ? (*daemon)->Version() : daemon.status();
  }
  if (options.json) {
    terminal.out << VersionJson(own, reply.ok() ? &*reply : nullptr);
    return absl::OkStatus();
  }
  terminal.out << "ckptctl " << kVersion << ", protocol " << kProtocolVersion << "\n";
  if (reply.ok()) {
    terminal.out << "ckptd   " << reply->version() << ", protocol " << reply->protocol() << "\n";
  } else if (options.root.empty()) {
    terminal.out << "ckptd   unknown: " << std::string(reply.status().message()) << "\n";
  }
  return absl::OkStatus();
}

End RunVerb(const Options& options, Terminal& terminal) {
  switch (options.verb) {
    case Verb::kList:
      return List(options, terminal);
    case Verb::kStatus:
      return Status(options, terminal);
    case Verb::kShow:
      return Show(options, terminal);
    case Verb::kDescribe:
      return Describe(options, terminal);
    case Verb::kVerify:
      return Verify(options, terminal);
    case Verb::kLatest:
      return Latest(options, terminal);
    case Verb::kWait:
      return Wait(options, terminal);
    case Verb::kDelete:
      return Delete(options, terminal);
    case Verb::kHealth:
      return Health(options, terminal);
    case Verb::kDoctor:
      return RunDoctor(options, terminal);
    case Verb::kVersion:
      return Version(options, terminal);
  }
  return absl::InternalError("no such verb");
}

}  // namespace

void ReportError(const absl::Status& status, int exit_code, bool json, std::ostream& err) {
  std::string message(status.message());
  if (json) {
    err << ErrorJson(CodeName(status.code()), exit_code, message);
  } else {
    err << "ckptctl: " << message << "\n";
  }
}

int Run(const Options& options, Terminal& terminal) {
  End end = RunVerb(options, terminal);
  terminal.out.flush();
  if (end.exit_code == kExitOk && !terminal.out) {
    end = End(absl::DataLossError("standard output cannot be written"), kExitFailed);
  }
  if (end.exit_code != kExitOk) {
    ReportError(end.status, end.exit_code, options.json, terminal.err);
  }
  return end.exit_code;
}

}  // namespace ckptd
