#include "server/settings.h"

#include <unistd.h>

#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

using Setter = std::function<absl::Status(const std::vector<std::string>&, Config&)>;
template <typename Value>
using Named = std::vector<std::pair<std::string, Value>>;

constexpr uint64_t kBlockBytesMin = kMiB;
constexpr uint64_t kBlockBytesMax = kGiB;
constexpr char kChoices[] = "auto|on|off";

// The setter of a setting with one value.
template <typename Parse>
Setter One(Parse parse) {
  return [parse](const std::vector<std::string>& texts, Config& config) -> absl::Status {
    if (texts.size() != 1) return absl::InvalidArgumentError("takes one value");
    return parse(texts.front(), config);
  };
}

Setter Text(std::string Config::*field) {
  return One([field](const std::string& text, Config& config) {
    config.*field = text;
    return absl::OkStatus();
  });
}

Setter Size(uint64_t Config::*field, uint64_t min) {
  return One([field, min](const std::string& text, Config& config) -> absl::Status {
    ASSIGN_OR_RETURN(config.*field, ParseSize(text));
    if (config.*field >= min) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(text, " is less than ", FormatSize(min)));
  });
}

Setter Timeout(absl::Duration Config::*field) {
  return One([field](const std::string& text, Config& config) -> absl::Status {
    ASSIGN_OR_RETURN(config.*field, ParseDuration(text));
    return absl::OkStatus();
  });
}

Setter Count(uint32_t Config::*field, uint32_t min) {
  return One([field, min](const std::string& text, Config& config) -> absl::Status {
    if (!absl::SimpleAtoi(text, &(config.*field)) || config.*field < min) {
      return absl::InvalidArgumentError(
          absl::StrCat("not a whole number of at least ", min, ": \"", text, "\""));
    }
    return absl::OkStatus();
  });
}

template <typename Value>
Setter OneOf(Value Config::*field, Named<Value> names) {
  return One([field, names](const std::string& text, Config& config) -> absl::Status {
    std::vector<std::string> known;
    for (const auto& [name, value] : names) {
      if (name == text) {
        config.*field = value;
        return absl::OkStatus();
      }
      known.push_back(name);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is none of ", absl::StrJoin(known, ", ")));
  });
}

Setter ChoiceOf(Choice Config::*field) {
  return OneOf<Choice>(field,
                       {{"auto", Choice::kAuto}, {"on", Choice::kOn}, {"off", Choice::kOff}});
}

// A switch that says what to do; the first one given wins.
Setter Switch(ProgramAction action) {
  return [action](const std::vector<std::string>&, Config& config) {
    if (config.action == ProgramAction::kRun) config.action = action;
    return absl::OkStatus();
  };
}

absl::Status SetBlockSize(const std::string& text, Config& config) {
  ASSIGN_OR_RETURN(config.block_bytes, ParseSize(text));
  bool power_of_two = (config.block_bytes & (config.block_bytes - 1)) == 0;
  if (power_of_two && config.block_bytes >= kBlockBytesMin &&
      config.block_bytes <= kBlockBytesMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(text, " is not a power of two from ",
                                                 FormatSize(kBlockBytesMin), " to ",
                                                 FormatSize(kBlockBytesMax)));
}

absl::Status SetArenaLimit(const std::string& text, Config& config) {
  absl::string_view digits = text;
  config.arena_limit = ArenaLimit{};
  if (absl::ConsumeSuffix(&digits, "%")) {
    if (absl::SimpleAtoi(digits, &config.arena_limit.percent) && config.arena_limit.percent >= 1 &&
        config.arena_limit.percent <= 100) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not within 1% and 100%"));
  }
  ASSIGN_OR_RETURN(config.arena_limit.bytes, ParseSize(text));
  if (config.arena_limit.bytes > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("the limit is 0");
}

absl::Status SetRecheck(const std::string& text, Config& config) {
  absl::string_view every = text;
  if (text == "all" || text == "none") {
    config.recheck_every = text == "all" ? 1 : 0;
    return absl::OkStatus();
  }
  if (absl::ConsumePrefix(&every, "1/") && absl::SimpleAtoi(every, &config.recheck_every) &&
      config.recheck_every >= 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\" is none of all, none, 1/N (every N-th block)"));
}

std::string Absolute(const std::string& path, const Surroundings& surroundings) {
  std::filesystem::path whole = std::filesystem::path(surroundings.working_folder) / path;
  std::string text = whole.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

Setter Socket(const Surroundings& surroundings) {
  return One([surroundings](const std::string& text, Config& config) -> absl::Status {
    if (text.empty()) return absl::InvalidArgumentError("the socket path is empty");
    config.socket = Absolute(text, surroundings);
    return CheckSocketPath(config.socket);
  });
}

bool IsLabel(absl::string_view text) {
  if (text.empty() || text[0] == '.') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.';
  });
}

absl::Status AddRoot(const std::string& text, const Surroundings& surroundings, Config& config) {
  RootConfig root;
  absl::string_view path = text;
  size_t equal = text.find('=');
  // An equal sign in the path itself stands behind a slash.
  if (equal != text.npos && text.substr(0, equal).find('/') == text.npos) {
    root.label = text.substr(0, equal);
    path.remove_prefix(equal + 1);
    if (!IsLabel(root.label)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", root.label, "\" is no label (letters, digits, _ - .)"));
    }
  } else if (config.roots.empty()) {
    root.label = "default";
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("only the first root may be without a label: LABEL=", text));
  }
  if (path.empty()) return absl::InvalidArgumentError("the path is empty");
  root.path = Absolute(std::string(path), surroundings);
  for (const RootConfig& other : config.roots) {
    if (other.label == root.label) {
      return absl::InvalidArgumentError(absl::StrCat("two roots are labelled ", root.label, ": ",
                                                     other.path, " and ", root.path));
    }
    if (other.path == root.path) {
      return absl::InvalidArgumentError(
          absl::StrCat(root.path, " is given twice, as ", other.label, " and ", root.label));
    }
  }
  config.roots.push_back(std::move(root));
  return absl::OkStatus();
}

Setter Roots(const Surroundings& surroundings) {
  return [surroundings](const std::vector<std::string>& texts, Config& config) -> absl::Status {
    config.roots.clear();
    for (const std::string& text : texts) RETURN_IF_ERROR(AddRoot(text, surroundings, config));
    if (config.roots.empty()) return absl::InvalidArgumentError("no root");
    return absl::OkStatus();
  };
}

void AddPlace(const Surroundings& surroundings, std::vector<Setting>& table) {
  std::string group = "Where";
  table.push_back({group, "config", "FILE", "", "read settings from this TOML file", false, false,
                   Text(&Config::config_file)});
  table.push_back(
      {group, "socket", "PATH", DefaultSocket(surroundings.variables, surroundings.uid).path,
       "Unix socket for clients, at most 104 bytes", false, false, Socket(surroundings)});
  table.push_back({group, "root", "[LABEL=]PATH",
                   DefaultRoot(surroundings.variables, surroundings.uid).path,
                   "storage folder; may be repeated, each with its label (the first: default); in "
                   "the variable separated by ':'",
                   true, false, Roots(surroundings)});
  table.push_back({group, "node", "NAME", surroundings.host_name,
                   "name of this node, unique on its roots", false, false,
                   One([](const std::string& text, Config& config) {
                     config.node = text;
                     return CheckName("node name", text);
                   })});
}

void AddStorage(std::vector<Setting>& table) {
  std::string group = "Storage and memory";
  table.push_back(
      {group, "io", "auto|uring|posix", "auto", "how files are written and read", false, false,
       OneOf<IoEngine>(
           &Config::io,
           {{"auto", IoEngine::kAuto}, {"uring", IoEngine::kUring}, {"posix", IoEngine::kPosix}})});
  table.push_back({group, "direct", kChoices, "auto", "go around the page cache (O_DIRECT)", false,
                   false, ChoiceOf(&Config::direct)});
  table.push_back({group, "fixed-buffers", kChoices, "auto",
                   "register arenas with io_uring (needs locked memory)", false, false,
                   ChoiceOf(&Config::fixed_buffers)});
  table.push_back({group, "huge-pages", kChoices, "auto", "2 MiB pages for shared memory", false,
                   false, ChoiceOf(&Config::huge_pages)});
  table.push_back({group, "block-size", "SIZE", "16MiB",
                   "unit of staging and writing, a power of two from 1MiB to 1GiB", false, false,
                   One(SetBlockSize)});
  table.push_back({group, "arena-limit", "PERCENT|SIZE", "50%",
                   "memory for all arenas; PERCENT is of what is available, such as 50%", false,
                   false, One(SetArenaLimit)});
  table.push_back({group, "read-window", "SIZE", "256MiB", "memory for one load", false, false,
                   Size(&Config::read_window_bytes, kMiB)});
}

void AddAttempts(std::vector<Setting>& table) {
  std::string group = "Checkpoints";
  table.push_back({group, "max-inflight-attempts", "N", "2", "attempts in flight per job", false,
                   false, Count(&Config::max_inflight_attempts, 1)});
  table.push_back(
      {group, "keep-last", "N", "0",
       "after a commit keep the newest N checkpoints of the job and delete the rest; 0 keeps all",
       false, false, Count(&Config::keep_last, 0)});
  table.push_back({group, "recheck", "all|none|1/N", "all",
                   "blocks whose checksum is computed once more after the write", false, false,
                   One(SetRecheck)});
}

void AddTimeouts(std::vector<Setting>& table) {
  std::string group = "Time-outs (of progress, not of total length)";
  struct Line {
    const char* flag;
    const char* default_text;
    const char* help;
    absl::Duration Config::*field;
  };
  const Line lines[] = {
      {"join-timeout", "600s", "until every rank has joined an attempt", &Config::join_timeout},
      {"attempt-timeout", "600s", "an attempt without progress fails", &Config::attempt_timeout},
      {"admit-timeout", "120s", "a save waits for another one of its job", &Config::admit_timeout},
      {"peer-lost-timeout", "10s", "a silent client or daemon counts as lost",
       &Config::peer_lost_timeout},
      {"reattach-timeout", "10s", "after a restart, clients hand their arenas back",
       &Config::reattach_timeout},
      {"root-visible-timeout", "60s",
       "a folder made on another node is seen here (not used on one node)",
       &Config::root_visible_timeout},
      {"settle-timeout", "60s",
       "a new life of a job settles older attempts first (not used on one node)",
       &Config::settle_timeout},
      {"drain-timeout", "30s", "on SIGTERM, attempts in flight may finish", &Config::drain_timeout},
      {"trash-grace", "10m", "a deleted checkpoint keeps its bytes, less if a save needs the space",
       &Config::trash_grace},
  };
  for (const Line& line : lines) {
    table.push_back({group, line.flag, "DURATION", line.default_text, line.help, false, false,
                     Timeout(line.field)});
  }
}

void AddLog(std::vector<Setting>& table) {
  table.push_back({"Log", "log-level", "debug|info|warning|error", "info", "least level written",
                   false, false,
                   OneOf<LogLevel>(&Config::log_level, {{"debug", LogLevel::kDebug},
                                                        {"info", LogLevel::kInfo},
                                                        {"warning", LogLevel::kWarning},
                                                        {"error", LogLevel::kError}})});
  table.push_back({"Log", "log-format", "auto|text|json", "auto",
                   "auto: text on a terminal, JSON elsewhere", false, false,
                   OneOf<LogFormat>(&Config::log_format, {{"auto", LogFormat::kAuto},
                                                          {"text", LogFormat::kText},
                                                          {"json", LogFormat::kJson}})});
}

void AddSwitches(std::vector<Setting>& table) {
  std::string group = "Instead of running";
  table.push_back({group, "check-config", "", "", "check all settings and exit", false, true,
                   Switch(ProgramAction::kCheckConfig)});
  table.push_back({group, "print-config", "", "", "print all settings, each with its origin", false,
                   true, Switch(ProgramAction::kPrintConfig)});
  table.push_back({group, "version", "", "", "print the version", false, true,
                   Switch(ProgramAction::kVersion)});
  table.push_back(
      {group, "help", "", "", "print this text", false, true, Switch(ProgramAction::kHelp)});
}

}  // namespace

Surroundings Surroundings::OfThisProcess() {
  Surroundings surroundings;
  surroundings.variables = ProcessVariables();
  surroundings.uid = ::geteuid();
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) surroundings.host_name = name;
  std::error_code ignored;
  surroundings.working_folder = std::filesystem::current_path(ignored).string();
  return surroundings;
}

std::vector<Setting> NodeSettings(const Surroundings& surroundings) {
  std::vector<Setting> table;
  AddPlace(surroundings, table);
  AddStorage(table);
  AddAttempts(table);
  AddTimeouts(table);
  AddLog(table);
  AddSwitches(table);
  return table;
}

std::string KeyOf(absl::string_view flag) { return absl::StrReplaceAll(flag, {{"-", "_"}}); }

std::string VariableOf(absl::string_view flag) {
  return absl::StrCat("CKPTD_", absl::AsciiStrToUpper(KeyOf(flag)));
}

}  // namespace ckptd
