#include "client/cli/options.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/ckptd/version.h"
#include "storage/base/nearest.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr char kExitCodeText[] =
    "Exit codes: 0 ok, 1 failed, 2 usage, 3 nothing there, 4 daemon unreachable, 5 permission,\n"
    "6 integrity, 7 not committed, 8 timeout, 9 held or the newest, 130 interrupted.";

// Options as texts, before they are checked.
struct Raw {
  Options options;
  std::string output = "table";
  std::string timeout = "10s";
  std::string wait = "0";
  std::string id;
};

CLI::App* AddVerb(CLI::App& app, Raw& raw, Verb verb, const std::string& name,
                  const std::string& help, const std::string& example) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->fallthrough();  // The common options may stand behind the verb.
  sub->footer(absl::StrCat("Example: ckptctl ", example));
  sub->callback([&raw, verb] { raw.options.verb = verb; });
  return sub;
}

void AddReadingVerbs(CLI::App& app, Raw& raw) {
  Options& options = raw.options;
  CLI::App* list =
      AddVerb(app, raw, Verb::kList, "list",
              "Checkpoints, and attempts in flight, in the order they began", "list --all");
  list->add_flag("--all", options.all, "failed attempts too");
  AddVerb(app, raw, Verb::kLatest, "latest", "Id of the newest committed checkpoint",
          "--root /mnt/checkpoints latest");
  CLI::App* show = AddVerb(app, raw, Verb::kShow, "show",
                           "One checkpoint or attempt with its ranks and files", "show step-100");
  show->add_option("id", raw.id, "a checkpoint's id or an attempt's name")->required();
  CLI::App* describe = AddVerb(app, raw, Verb::kDescribe, "describe",
                               "Names, types, shapes and places of what is stored",
                               "describe step-100 --tensor 'encoder.*'");
  describe->add_option("id", raw.id, "a checkpoint's id")->required();
  describe->add_option("--tensor", options.tensor_glob,
                       "only names that match this pattern (* ? [a-z])");
  CLI::App* verify = AddVerb(app, raw, Verb::kVerify, "verify",
                             "Read everything and compare it with the checksums (default: all)",
                             "verify step-100 step-200");
  CLI::Option* ids = verify->add_option("ids", options.ids, "checkpoint ids");
  verify->add_flag("--all", options.all, "every checkpoint")->excludes(ids);
}

void AddDaemonVerbs(CLI::App& app, Raw& raw) {
  Options& options = raw.options;
  CLI::App* status =
      AddVerb(app, raw, Verb::kStatus, "status",
              "The daemon, its memory, roots, sessions, attempts and failures", "status --watch");
  status->add_flag("--watch", options.watch, "again every second, until interrupted");
  CLI::App* wait = AddVerb(app, raw, Verb::kWait, "wait",
                           "Wait (--timeout) until a save has got so far, or has failed",
                           "--timeout 5m wait step-100 --for committed");
  wait->add_option("id", raw.id, "a checkpoint's id")->required();
  wait->add_option("--for", options.state, "staged, durable or committed [committed]")
      ->check(CLI::IsMember({"staged", "durable", "committed"}));
  CLI::App* remove = AddVerb(app, raw, Verb::kDelete, "delete", "Delete checkpoints",
                             "delete step-100 step-200 --yes");
  remove->add_option("ids", options.ids, "checkpoint ids")->required();
  remove->add_flag("--yes", options.yes, "do not ask");
  remove->add_flag("--allow-newest", options.allow_newest, "the newest one too");
  CLI::App* health = AddVerb(app, raw, Verb::kHealth, "health", "Whether the daemon is serving",
                             "health --wait 30s");
  health->add_option("--wait", raw.wait, "how long to wait until it is");
  AddVerb(app, raw, Verb::kDoctor, "doctor",
          "What this host allows a daemon, how to allow more, what it costs to do without.\n"
          "Run it as the daemon runs: its user, its container. Exit code 1 if something is missing "
          "without which nothing is saved",
          "doctor --root /mnt/checkpoints");
  AddVerb(app, raw, Verb::kVersion, "version", "Versions of this tool and of the daemon",
          "version -o json");
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  std::string text = absolute.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

bool NeedsDaemon(Verb verb) {
  return verb == Verb::kStatus || verb == Verb::kWait || verb == Verb::kDelete ||
         verb == Verb::kHealth;
}

bool IsAboutOneJob(const Options& options) {
  switch (options.verb) {
    case Verb::kLatest:
    case Verb::kShow:
    case Verb::kDescribe:
    case Verb::kWait:
    case Verb::kDelete:
      return true;
    case Verb::kVerify:
      return !options.ids.empty();
    default:
      return false;
  }
}

absl::Status SetSocket(const Variables& variables, uid_t uid, Options& options) {
  auto variable = variables.find("CKPTD_SOCKET");
  if (!options.socket.empty()) {
    options.socket_origin = "--socket";
  } else if (variable != variables.end() && !variable->second.empty()) {
    options.socket = variable->second;
    options.socket_origin = "$CKPTD_SOCKET";
  } else {
    DefaultPath path = DefaultSocket(variables, uid);
    options.socket = path.path;
    options.socket_origin = path.origin;
  }
  options.socket = Absolute(options.socket);
  return WithContext(CheckSocketPath(options.socket), options.socket_origin);
}

absl::Status SetRoot(const Variables& variables, uid_t uid, Options& options) {
  if (options.root.empty()) {
    DefaultPath path = DefaultRoot(variables, uid);
    if (path.path.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("name a folder with --root: ", path.origin));
    }
    options.root = path.path;
  }
  options.root = Absolute(options.root);
  return absl::OkStatus();
}

absl::StatusOr<Options> Checked(Raw& raw, const CLI::App& app, const Variables& variables,
                                uid_t uid) {
  Options& options = raw.options;
  options.json = raw.output == "json";
  options.timeout_given = app.get_option("--timeout")->count() > 0;
  absl::StatusOr<absl::Duration> timeout = ParseDuration(raw.timeout);
  if (!timeout.ok()) return WithContext(timeout.status(), "--timeout");
  options.timeout = *timeout;
  absl::StatusOr<absl::Duration> wait = ParseDuration(raw.wait);
  if (!wait.ok()) return WithContext(wait.status(), "--wait");
  options.wait = *wait;
  bool takes_one =
      options.verb == Verb::kShow || options.verb == Verb::kDescribe || options.verb == Verb::kWait;
  if (takes_one) options.ids = {raw.id};
  for (const std::string& id : options.ids) {
    if (id.empty()) return absl::InvalidArgumentError("an id is never empty");
  }
  if (options.state.empty()) options.state = "committed";
  auto job = variables.find("CKPTD_JOB");
  if (options.job.empty() && job != variables.end() && IsAboutOneJob(options)) {
    options.job = job->second;
  }
  if (options.verb == Verb::kDoctor) {
    RETURN_IF_ERROR(SetRoot(variables, uid, options));
  } else if (!options.root.empty()) {
    if (!options.socket.empty()) {
      return absl::InvalidArgumentError(
          "--root reads a folder without a daemon: it excludes --socket");
    }
    if (!options.root_label.empty()) {
      return absl::InvalidArgumentError(
          "--root reads a folder without a daemon: it excludes --root-label");
    }
    if (NeedsDaemon(options.verb)) {
      return absl::InvalidArgumentError(
          "this verb needs a daemon, and --root reads a folder without one");
    }
    options.root = Absolute(options.root);
    return std::move(options);
  }
  absl::Status socket = SetSocket(variables, uid, options);
  // The doctor says so itself, among the rest.
  if (!socket.ok() && options.verb != Verb::kDoctor) return socket;
  return std::move(options);
}

// CLI11 takes the arguments from the back, and one like "[a,b]" as a list of values; an id may look
// like that. The mark hides it.
constexpr char kMark = '\x01';

std::vector<std::string> ForCli11(const std::vector<std::string>& arguments) {
  std::vector<std::string> marked(arguments.rbegin(), arguments.rend());
  for (std::string& argument : marked) {
    if (!argument.empty() && argument.front() == '[' && argument.back() == ']') argument += kMark;
  }
  return marked;
}

void Unmark(Raw& raw) {
  Options& options = raw.options;
  std::vector<std::string*> texts = {&raw.id,       &options.socket,
                                     &options.root, &options.root_label,
                                     &options.job,  &options.tensor_glob};
  for (std::string& id : options.ids) texts.push_back(&id);
  for (std::string* text : texts) {
    if (!text->empty() && text->back() == kMark) text->pop_back();
  }
}

// CLI11 would only say that a verb is missing.
absl::Status UnknownVerb(const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    verbs.push_back(sub->get_name());
  }
  const std::string word = app.remaining().front();
  std::string nearest = LikelyMeant(word, verbs);
  return absl::InvalidArgumentError(
      absl::StrCat("no verb or option \"", word, "\"; ",
                   nearest.empty() ? "" : absl::StrCat("did you mean ", nearest, "? "),
                   "the verbs are ", absl::StrJoin(verbs, " ")));
}

}  // namespace

absl::StatusOr<std::variant<Options, HelpRequest>> ParseOptions(
    const std::vector<std::string>& arguments, const Variables& variables, uid_t uid) {
  CLI::App app("ckptctl: which checkpoints exist, in what state, and what failed and why.",
               "ckptctl");
  app.footer(kExitCodeText);
  app.set_version_flag("--version", absl::StrCat("ckptctl ", kVersion));
  app.require_subcommand(1);
  Raw raw;
  app.add_option("--socket", raw.options.socket,
                 absl::StrCat("the daemon's socket [$CKPTD_SOCKET, else ",
                              DefaultSocket(variables, uid).path, "]"));
  app.add_option("--root", raw.options.root,
                 "read this storage folder, without a daemon (list latest show describe verify); "
                 "doctor: look at this one");
  app.add_option("--root-label", raw.options.root_label,
                 "of a daemon with several roots, ask this one alone [all]");
  app.add_option("--job", raw.options.job, "job name; may be left out if there is one");
  app.add_option("-o,--output", raw.output, "table or json [table]")
      ->check(CLI::IsMember({"table", "json"}));
  app.add_option("--timeout", raw.timeout, "for each answer of the daemon or the folder [10s]");
  AddReadingVerbs(app, raw);
  AddDaemonVerbs(app, raw);
  try {
    app.parse(ForCli11(arguments));
  } catch (const CLI::CallForHelp&) {
    if (app.get_subcommands().empty()) return HelpRequest{app.help()};
    return HelpRequest{app.get_subcommands().front()->help("ckptctl")};
  } catch (const CLI::CallForVersion& request) {
    return HelpRequest{absl::StrCat(request.what(), "\n")};
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty() && !app.remaining().empty()) return UnknownVerb(app);
    return absl::InvalidArgumentError(absl::StrCat(error.what(), "; see ckptctl --help"));
  }
  Unmark(raw);
  ASSIGN_OR_RETURN(Options options, Checked(raw, app, variables, uid));
  return options;
}

bool AsksForJson(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "-ojson" || argument == "-o=json" || argument == "--output=json") return true;
    bool output = argument == "-o" || argument == "--output";
    if (output && i + 1 < arguments.size() && arguments[i + 1] == "json") return true;
  }
  return false;
}

}  // namespace ckptd
