#include "client/cli/run.h"

#include <algorithm>
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
#include "client/cli/several_roots.h"
#include "client/cli/watch.h"
#include "proto/ckptd/version.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr absl::Duration kWatchTimeout = absl::Seconds(2);
constexpr absl::Duration kHealthPeriod = absl::Milliseconds(100);
constexpr absl::Duration kLookTimeout = absl::Seconds(10);
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
  daemon.root = options.root_label;
  return daemon;
}

absl::StatusOr<std::unique_ptr<DaemonSource>> Daemon(const Options& options) {
  return DaemonSource::Connect(DaemonOptions(options));
}

absl::StatusOr<std::unique_ptr<DaemonSource>> DaemonAt(const Options& options,
                                                       const std::string& label) {
  DaemonSource::Options daemon = DaemonOptions(options);
  daemon.root = label;
  return DaemonSource::Connect(daemon);
}

// Null if there is one to ask, which need not be named: the daemon has no other, or it is named.
absl::StatusOr<std::unique_ptr<SeveralRoots>> AllRoots(const Options& options,
                                                       const v1::StatusReply& status) {
  if (!options.root_label.empty() || status.roots_size() < 2) return nullptr;
  std::vector<SeveralRoots::Root> roots;
  for (const v1::RootStatus& root : status.roots()) {
    ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, DaemonAt(options, root.label()));
    roots.push_back({root.label(), root.path(), std::move(daemon)});
  }
  return std::make_unique<SeveralRoots>(std::move(roots));
}

// What verbs that need no daemon read.
absl::StatusOr<std::unique_ptr<Source>> AnySource(const Options& options) {
  if (!options.root.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<FolderSource> folder,
                     FolderSource::Open(options.root, options.verb == Verb::kVerify));
    return folder;
  }
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  if (!options.root_label.empty()) return daemon;
  ASSIGN_OR_RETURN(v1::StatusReply status, daemon->Status());
  ASSIGN_OR_RETURN(std::unique_ptr<SeveralRoots> all, AllRoots(options, status));
  if (all == nullptr) return daemon;
  return all;
}

void PrintWarnings(const Source& source, Terminal& terminal) {
  for (const std::string& warning : source.warnings()) {
    terminal.err << "ckptctl: warning: " << warning << "\n";
  }
}

End List(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::ListReply reply, source->List(options.job, options.all));
  PrintWarnings(*source, terminal);
  terminal.out << (options.json ? ListJson(reply) : ListText(reply, Now()));
  return absl::OkStatus();
}

End Latest(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::Checkpoint checkpoint, source->Latest(options.job));
  PrintWarnings(*source, terminal);
  terminal.out << (options.json ? CheckpointJson(checkpoint) : absl::StrCat(checkpoint.id(), "\n"));
  return absl::OkStatus();
}

End Show(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::ShowReply reply, source->Show(options.job, options.ids.front()));
  PrintWarnings(*source, terminal);
  terminal.out << (options.json ? ShowJson(reply) : ShowText(reply, Now()));
  return absl::OkStatus();
}

End Describe(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(v1::DescribeReply reply,
                   source->Describe(options.job, options.ids.front(), options.tensor_glob));
  PrintWarnings(*source, terminal);
  terminal.out << (options.json ? DescribeJson(reply) : DescribeText(reply));
  return absl::OkStatus();
}

End Verify(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<Source> source, AnySource(options));
  ASSIGN_OR_RETURN(std::vector<v1::VerifyReply> replies, source->Verify(options.job, options.ids));
  if (replies.empty()) terminal.err << "ckptctl: nothing to verify\n";
  terminal.out << (options.json ? VerifyJson(replies) : VerifyText(replies));
  PrintWarnings(*source, terminal);
  std::vector<std::string> damaged;
  for (const v1::VerifyReply& reply : replies) {
    if (!reply.ok()) damaged.push_back(reply.id());
  }
  // Who asks whether all are well must not hear so of a part.
  if (damaged.empty()) return options.ids.empty() ? source->Unread() : absl::OkStatus();
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

// Where what is waited for is: in flight, which every root is asked of alike, or in a folder.
absl::StatusOr<SeveralRoots::Place> WhereToWait(const Options& options, DaemonSource& daemon,
                                                Terminal& terminal) {
  const std::string& id = options.ids.front();
  SeveralRoots::Place asked{options.job, options.root_label};
  if (!options.root_label.empty()) return asked;
  ASSIGN_OR_RETURN(v1::StatusReply status, daemon.Status());
  Options look = options;
  look.timeout = std::min(options.timeout, kLookTimeout);
  ASSIGN_OR_RETURN(std::unique_ptr<SeveralRoots> all, AllRoots(look, status));
  if (all == nullptr) return asked;
  for (const v1::Attempt& attempt : status.attempts()) {
    if (attempt.checkpoint_id() == id && attempt.job() == options.job)
      return SeveralRoots::Place{attempt.job(), attempt.root()};
  }
  ASSIGN_OR_RETURN(SeveralRoots::Place place, all->Find(options.job, id));
  PrintWarnings(*all, terminal);
  return place;
}

End Wait(const Options& options, Terminal& terminal) {
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  absl::StatusOr<SeveralRoots::Place> place = WhereToWait(options, *daemon, terminal);
  if (absl::IsDeadlineExceeded(place.status())) return NotReached(options, place.status());
  if (!place.ok()) return place.status();
  ASSIGN_OR_RETURN(daemon, DaemonAt(options, place->root));
  absl::StatusOr<v1::Attempt> reached =
      daemon->Wait(place->job, options.ids.front(), options.state);
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

// Of several roots, each id where it is.
absl::StatusOr<v1::DeleteReply> DeleteEach(const Options& options, SeveralRoots& roots) {
  ASSIGN_OR_RETURN(std::vector<SeveralRoots::Doomed> doomed,
                   roots.FindToDelete(options.job, options.ids));
  v1::DeleteReply all;
  for (const SeveralRoots::Doomed& one : doomed) {
    ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, DaemonAt(options, one.place.root));
    absl::StatusOr<v1::DeleteReply> reply =
        daemon->Delete(one.place.job, {one.id}, options.allow_newest);
    if (!reply.ok() && all.deleted().empty()) return reply.status();
    if (!reply.ok()) {
      return absl::Status(reply.status().code(),
                          absl::StrCat(reply.status().message(),
                                       "; deleted before: ", absl::StrJoin(all.deleted(), ", ")));
    }
    all.MergeFrom(*reply);
  }
  return all;
}

absl::StatusOr<v1::DeleteReply> DeleteAll(const Options& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<DaemonSource> daemon, Daemon(options));
  if (options.root_label.empty()) {
    ASSIGN_OR_RETURN(v1::StatusReply status, daemon->Status());
    ASSIGN_OR_RETURN(std::unique_ptr<SeveralRoots> all, AllRoots(options, status));
    if (all != nullptr) return DeleteEach(options, *all);
  }
  return daemon->Delete(options.job, options.ids, options.allow_newest);
}

End Delete(const Options& options, Terminal& terminal) {
  RETURN_IF_ERROR(Daemon(options).status());
  RETURN_IF_ERROR(Confirm(options, terminal));
  absl::StatusOr<v1::DeleteReply> reply = DeleteAll(options);
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
