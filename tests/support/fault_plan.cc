#include "tests/support/fault_plan.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

using Kind = FaultAction::Kind;

constexpr absl::string_view kOperations[] = {"open",     "create", "write", "read",   "fsync",
                                             "fsyncdir", "rename", "mkdir", "unlink", "allocate",
                                             "truncate", "stat",   "list"};
constexpr absl::string_view kAnyOperation = "op";

struct NamedAction {
  absl::string_view name;
  Kind kind;
  absl::string_view argument;  // "" if it takes none.
  bool at_point;
  bool transfers_only;
  absl::string_view what;
};
constexpr NamedAction kActions[] = {
    {"error", Kind::kError, "ERRNO", false, false, "fails with this errno (EIO, ENOSPC, 28 …)"},
    {"short", Kind::kShort, "BYTES", false, true, "the transfer moves at most so many bytes"},
    {"flip", Kind::kFlip, "BYTE", false, true,
     "this byte of the transfer is inverted (the last if it is shorter)"},
    {"rate", Kind::kRate, "SIZE", false, true,
     "the transfers of this rule move so many bytes a second"},
    {"delay", Kind::kDelay, "D", true, false, "waits before it goes on"},
    {"hang", Kind::kHang, "", true, false, "never goes on"},
    {"stop", Kind::kStop, "", true, false, "SIGSTOP to this process, before"},
    {"kill", Kind::kKill, "", true, false, "SIGKILL to this process, before"},
    {"kill-after", Kind::kKillAfter, "", false, false, "SIGKILL to this process, when it is done"},
};

bool IsOperation(absl::string_view name) {
  return name == kAnyOperation ||
         std::find(std::begin(kOperations), std::end(kOperations), name) != std::end(kOperations);
}

bool IsPoint(absl::string_view name) {
  const std::vector<absl::string_view>& points = FaultPoints();
  return std::find(points.begin(), points.end(), name) != points.end();
}

// "EIO" or "5".
absl::StatusOr<int> ParseErrno(absl::string_view text) {
  constexpr int kErrnoMax = 4095;
  int error = 0;
  if (absl::SimpleAtoi(text, &error) && error > 0 && error <= kErrnoMax) return error;
  for (int candidate = 1; candidate < 200; ++candidate) {
    const char* name = ::strerrorname_np(candidate);
    if (name != nullptr && text == name) return candidate;
  }
  return absl::InvalidArgumentError(absl::StrCat("no errno \"", text, "\""));
}

absl::Status ParseArgument(absl::string_view text, FaultAction& action) {
  switch (action.kind) {
    case Kind::kError: {
      ASSIGN_OR_RETURN(action.error, ParseErrno(text));
      return absl::OkStatus();
    }
    case Kind::kDelay: {
      ASSIGN_OR_RETURN(action.delay, ParseDuration(text));
      return absl::OkStatus();
    }
    case Kind::kShort:
    case Kind::kRate: {
      ASSIGN_OR_RETURN(action.bytes, ParseSize(text));
      if (action.bytes == 0) return absl::InvalidArgumentError("at least 1 is needed");
      return absl::OkStatus();
    }
    case Kind::kFlip: {
      ASSIGN_OR_RETURN(action.bytes, ParseSize(text));
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
}

absl::StatusOr<FaultAction> ParseAction(absl::string_view text, const FaultRule& rule) {
  std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  auto found = std::find_if(std::begin(kActions), std::end(kActions),
                            [&](const NamedAction& action) { return action.name == parts.first; });
  if (found == std::end(kActions)) {
    return absl::InvalidArgumentError(absl::StrCat("no action \"", parts.first, "\""));
  }
  if (found->argument.empty() != (parts.first == text)) {
    return absl::InvalidArgumentError(found->argument.empty()
                                          ? absl::StrCat(found->name, " takes nothing after it")
                                          : absl::StrCat(found->name, " needs :", found->argument));
  }
  if (rule.is_point && !found->at_point) {
    return absl::InvalidArgumentError("a point takes delay, hang, stop and kill only");
  }
  if (found->transfers_only && rule.where != "write" && rule.where != "read") {
    return absl::InvalidArgumentError(absl::StrCat(found->name, " is for write and read only"));
  }
  FaultAction action;
  action.kind = found->kind;
  RETURN_IF_ERROR(ParseArgument(parts.second, action));
  return action;
}

// Cuts "@N" or "@N+" off the end of `where`. An "@" that no number follows belongs to the path.
absl::Status ParseCount(absl::string_view& where, FaultRule& rule) {
  size_t at = where.rfind('@');
  if (at == where.npos) return absl::OkStatus();
  absl::string_view count = where.substr(at + 1);
  bool onwards = absl::ConsumeSuffix(&count, "+");
  uint64_t first = 0;
  bool number = !count.empty() && std::all_of(count.begin(), count.end(), absl::ascii_isdigit) &&
                absl::SimpleAtoi(count, &first);
  if (!number && where.find(':') < at) return absl::OkStatus();
  if (!number || first == 0) {
    return absl::InvalidArgumentError(absl::StrCat("no count \"", where.substr(at), "\""));
  }
  rule.first = first;
  rule.only_first = !onwards;
  where = where.substr(0, at);
  return absl::OkStatus();
}

absl::StatusOr<FaultRule> ParseRule(absl::string_view text) {
  FaultRule rule;
  rule.text = std::string(text);
  size_t equals = text.rfind('=');
  if (equals == text.npos) return absl::InvalidArgumentError("no \"=ACTION\"");
  absl::string_view where = text.substr(0, equals);
  RETURN_IF_ERROR(ParseCount(where, rule));
  std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(where, absl::MaxSplits(':', 1));
  rule.where = std::string(parts.first);
  rule.path_part = std::string(parts.second);
  rule.is_point = IsPoint(parts.first);
  if (!rule.is_point && !IsOperation(parts.first)) {
    return absl::InvalidArgumentError(absl::StrCat("no operation or point \"", parts.first, "\""));
  }
  if (rule.is_point && parts.first != where) {
    return absl::InvalidArgumentError("a point has no path");
  }
  ASSIGN_OR_RETURN(rule.action, ParseAction(text.substr(equals + 1), rule));
  return rule;
}

}  // namespace

absl::string_view FaultOperationName(FaultOperation operation) {
  return kOperations[static_cast<size_t>(operation)];
}

const std::vector<absl::string_view>& FaultPoints() {
  static const auto& points =
      *new std::vector<absl::string_view>{"session-opened",   "admitted",
                                          "minted",           "record-synced",
                                          "joined",           "planned",
                                          "first-seal",       "rank-staged",
                                          "all-staged",       "first-write",
                                          "shard-complete",   "shard-synced",
                                          "fragment-synced",  "folder-synced",
                                          "durable-sent",     "all-durable",
                                          "manifest-written", "manifest-renamed",
                                          "commit-before",    "commit-renamed",
                                          "commit-synced",    "told",
                                          "abort-before",     "abort-renamed",
                                          "abort-synced",     "load-planned",
                                          "load-read",        "load-done",
                                          "settle-begun",     "settle-done"};
  return points;
}

absl::StatusOr<std::vector<FaultRule>> ParseFaultPlan(absl::string_view plan) {
  std::vector<FaultRule> rules;
  for (absl::string_view text : absl::StrSplit(plan, absl::ByAnyChar(";\n"))) {
    text = absl::StripAsciiWhitespace(text);
    if (text.empty()) continue;
    absl::StatusOr<FaultRule> rule = ParseRule(text);
    if (!rule.ok()) {
      return WithContext(rule.status(), absl::StrCat("fault rule \"", text, "\""));
    }
    rules.push_back(*std::move(rule));
  }
  return rules;
}

std::string FaultListText() {
  std::string text = "RULE = WHERE[@N[+]]=ACTION\n\noperations (each perhaps :TEXT of the path)\n";
  for (absl::string_view name : kOperations) absl::StrAppend(&text, "  ", name, "\n");
  absl::StrAppend(&text, "  ", kAnyOperation, "  any of them, counted together\n\npoints\n");
  for (absl::string_view name : FaultPoints()) absl::StrAppend(&text, "  ", name, "\n");
  text += "\nactions\n";
  for (const NamedAction& action : kActions) {
    absl::StrAppend(&text, "  ", action.name, action.argument.empty() ? "" : ":", action.argument,
                    "  ", action.what, action.at_point ? " (points too)" : "",
                    action.transfers_only ? " (write and read)" : "", "\n");
  }
  return text;
}

absl::StatusOr<std::unique_ptr<FaultInjector>> FaultInjector::Create(const Options& options) {
  ASSIGN_OR_RETURN(std::vector<FaultRule> rules, ParseFaultPlan(options.plan));
  UniqueFd log;
  if (!options.log_file.empty()) {
    log =
        UniqueFd(::open(options.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) {
      return ErrnoStatus(errno, absl::StrCat("open fault log ", options.log_file));
    }
  }
  auto injector =
      std::unique_ptr<FaultInjector>(new FaultInjector(options.plan_file, std::move(log)));
  for (FaultRule& rule : rules) injector->rules_.push_back({.rule = std::move(rule)});
  injector->plan_rules_ = rules.size();
  if (!options.plan_file.empty()) {
    if (::stat(options.plan_file.c_str(), &injector->file_seen_) == 0) {
      RETURN_IF_ERROR(injector->ReadFile());
    }
  }
  return injector;
}

// Replaces the file's rules by those that it holds now.
absl::Status FaultInjector::ReadFile() {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(plan_file_.c_str(), "re"), &std::fclose);
  std::string content;
  if (file != nullptr) {
    char block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof(block), file.get())) > 0;) {
      content.append(block, n);
    }
  } else if (errno != ENOENT) {
    return ErrnoStatus(errno, absl::StrCat("read fault file ", plan_file_));
  }
  absl::StatusOr<std::vector<FaultRule>> rules = ParseFaultPlan(content);
  if (!rules.ok()) return WithContext(rules.status(), plan_file_);
  rules_.resize(plan_rules_);
  for (FaultRule& rule : *rules) rules_.push_back({.rule = std::move(rule)});
  return absl::OkStatus();
}

void FaultInjector::ReadFileIfChanged() {
  if (plan_file_.empty()) return;
  struct stat now = {};
  if (::stat(plan_file_.c_str(), &now) != 0) now = {};
  if (now.st_ino == file_seen_.st_ino && now.st_size == file_seen_.st_size &&
      now.st_mtim.tv_sec == file_seen_.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == file_seen_.st_mtim.tv_nsec) {
    return;
  }
  file_seen_ = now;
  absl::Status read = ReadFile();
  if (!read.ok()) std::fprintf(stderr, "%s\n", std::string(read.message()).c_str());
}

std::optional<FaultAction> FaultInjector::Match(absl::string_view name, bool is_point,
                                                absl::string_view path) {
  std::lock_guard<std::mutex> lock(mutex_);
  ReadFileIfChanged();
  uint64_t passed = is_point ? ++passed_[std::string(name)] : 0;
  std::optional<FaultAction> action;
  for (auto& [rule, matches] : rules_) {
    if (rule.is_point != is_point ||
        (rule.where != name && (is_point || rule.where != kAnyOperation)) ||
        !absl::StrContains(path, rule.path_part)) {
      continue;
    }
    uint64_t n = ++matches;
    bool fires = rule.only_first ? n == rule.first : n >= rule.first;
    if (!fires || action.has_value()) continue;
    action = rule.action;
    action->rule = rule.text;
    Log(name, is_point ? passed : n, &rule, is_point, path);
  }
  if (is_point && !action.has_value()) Log(name, passed, nullptr, is_point, path);
  return action;
}

// One write, so that lines stay whole and are there if the process is killed next.
void FaultInjector::Log(absl::string_view name, uint64_t n, const FaultRule* rule, bool is_point,
                        absl::string_view path) {
  if (!log_.valid()) return;
  nlohmann::ordered_json line;
  line["point"] = std::string(name);
  line["n"] = n;
  line["rule"] = rule != nullptr ? nlohmann::ordered_json(rule->text) : nlohmann::ordered_json();
  line["path"] = is_point ? nlohmann::ordered_json() : nlohmann::ordered_json(std::string(path));
  std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (::write(log_.get(), text.data(), text.size()) < 0) std::perror("fault log");
}

std::optional<FaultAction> FaultInjector::OnOperation(FaultOperation operation,
                                                      absl::string_view path) {
  return Match(FaultOperationName(operation), false, path);
}

void FaultInjector::OnPoint(absl::string_view point) {
  CKPT_CHECK(IsPoint(point), "the point is one of FaultPoints()");
  std::optional<FaultAction> action = Match(point, true, "");
  if (!action.has_value()) return;
  switch (action->kind) {
    case Kind::kDelay:
      absl::SleepFor(action->delay);
      return;
    case Kind::kHang:
      HangForEver();
    case Kind::kStop:
      StopSelf();
      return;
    case Kind::kKill:
      KillSelf();
    default:
      CKPT_CHECK(false, "a point has no other action");
  }
}

void HangForEver() {
  while (true) ::pause();
}

void StopSelf() { ::raise(SIGSTOP); }

void KillSelf() {
  while (true) ::kill(::getpid(), SIGKILL);
}

}  // namespace ckptd
