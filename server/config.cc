#include "server/config.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/config_file.h"
#include "storage/base/nearest.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

// Variables that clients read; in a daemon's environment they are no mistake.
const char* const kClientVariables[] = {"CKPTD_SOCKET",      "CKPTD_JOB",
                                        "CKPTD_RANK",        "CKPTD_WORLD_SIZE",
                                        "CKPTD_INCARNATION", "CKPTD_COORDINATOR"};

struct Given {
  std::vector<std::string> texts;
  std::string origin;
  std::string place;  // For errors: the origin, in the file with the key.
};
using GivenByFlag = std::map<std::string, Given>;

const Setting* Find(const std::vector<Setting>& table, absl::string_view flag) {
  for (const Setting& setting : table) {
    if (setting.flag == flag) return &setting;
  }
  return nullptr;
}

absl::StatusOr<GivenByFlag> FromArguments(const std::vector<std::string>& arguments,
                                          const std::vector<Setting>& table) {
  GivenByFlag given;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (argument == "-h") argument = "--help";
    if (!absl::ConsumePrefix(&argument, "--") || argument.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", arguments[i], "\" is not a flag; see --help"));
    }
    size_t equal = argument.find('=');
    std::string flag(argument.substr(0, equal));
    const Setting* setting = Find(table, flag);
    if (setting == nullptr) {
      std::vector<std::string> known;
      for (const Setting& other : table) known.push_back(other.flag);
      return absl::InvalidArgumentError(
          absl::StrCat("unknown flag --", flag, "; did you mean --", Nearest(flag, known), "?"));
    }
    std::string text;
    if (setting->value.empty()) {
      if (equal != argument.npos) {
        return absl::InvalidArgumentError(absl::StrCat("--", flag, " takes no value"));
      }
    } else if (equal != argument.npos) {
      text = std::string(argument.substr(equal + 1));
    } else if (i + 1 < arguments.size()) {
      text = arguments[++i];
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " needs a value: ", setting->value));
    }
    Given& value = given[flag];
    if (!value.texts.empty() && !setting->repeated && !setting->value.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, " is given twice: ", value.texts.front(), " and ", text));
    }
    value.texts.push_back(text);
    value.origin = value.place = absl::StrCat("--", flag);
  }
  return given;
}

GivenByFlag FromVariables(const Variables& variables, const std::vector<Setting>& table,
                          std::vector<std::string>& warnings) {
  GivenByFlag given;
  std::map<std::string, const Setting*> by_variable;
  std::vector<std::string> known;
  for (const Setting& setting : table) {
    if (setting.flag_only) continue;
    known.push_back(VariableOf(setting.flag));
    by_variable[known.back()] = &setting;
  }
  for (const auto& [name, value] : variables) {
    if (!absl::StartsWith(name, "CKPTD_")) continue;
    auto found = by_variable.find(name);
    if (found != by_variable.end()) {
      const Setting& setting = *found->second;
      std::vector<std::string> texts = {value};
      if (setting.repeated) texts = absl::StrSplit(value, ':', absl::SkipEmpty());
      given[setting.flag] =
          Given{std::move(texts), absl::StrCat("$", name), absl::StrCat("$", name)};
    } else if (std::find(std::begin(kClientVariables), std::end(kClientVariables), name) ==
               std::end(kClientVariables)) {
      warnings.push_back(absl::StrCat("unknown variable ", name, " is ignored; did you mean ",
                                      Nearest(name, known), "?"));
    }
  }
  return given;
}

absl::StatusOr<GivenByFlag> FromFile(const std::string& path, const std::vector<Setting>& table) {
  GivenByFlag given;
  ASSIGN_OR_RETURN(std::vector<ConfigFileEntry> entries, ReadConfigFile(path));
  std::map<std::string, const Setting*> by_key;
  std::vector<std::string> known;
  for (const Setting& setting : table) {
    if (setting.flag_only || setting.flag == "config") continue;
    known.push_back(KeyOf(setting.flag));
    by_key[known.back()] = &setting;
  }
  for (auto& [key, texts] : entries) {
    auto found = by_key.find(key);
    if (found == by_key.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": unknown key ", key, "; did you mean ", Nearest(key, known), "?"));
    }
    given[found->second->flag] = Given{std::move(texts), path, absl::StrCat(path, ": ", key)};
  }
  return given;
}

// The winning texts of one setting; no texts: nothing is set.
Given Winner(const Setting& setting, const std::vector<const GivenByFlag*>& sources) {
  Given winner{{}, "default", absl::StrCat("the default of --", setting.flag)};
  if (!setting.default_text.empty()) winner.texts.push_back(setting.default_text);
  for (const GivenByFlag* source : sources) {
    auto found = source->find(setting.flag);
    if (found != source->end()) winner = found->second;
  }
  return winner;
}

std::vector<Setting> WholeTable(const Surroundings& surroundings,
                                const std::vector<Setting>& extra) {
  std::vector<Setting> table = NodeSettings(surroundings);
  table.insert(table.end(), extra.begin(), extra.end());
  return table;
}

// As a basic string of TOML.
std::string Quoted(absl::string_view text) {
  std::string quoted = "\"";
  for (char c : text) {
    if (c == '\\' || c == '"') quoted.push_back('\\');
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&quoted, "\\u%04X", static_cast<unsigned>(c));
    } else {
      quoted.push_back(c);
    }
  }
  return quoted + "\"";
}

}  // namespace

absl::StatusOr<Config> ParseConfig(const std::vector<std::string>& arguments,
                                   const Surroundings& surroundings,
                                   const std::vector<Setting>& extra) {
  const std::vector<Setting> table = WholeTable(surroundings, extra);
  Config config;
  ASSIGN_OR_RETURN(GivenByFlag flags, FromArguments(arguments, table));
  if (flags.count("help") != 0 || flags.count("version") != 0) {
    config.action = flags.count("help") != 0 ? ProgramAction::kHelp : ProgramAction::kVersion;
    return config;
  }
  GivenByFlag variables = FromVariables(surroundings.variables, table, config.warnings);
  GivenByFlag file;
  Given path = Winner(*Find(table, "config"), {&variables, &flags});
  if (!path.texts.empty()) {
    absl::StatusOr<GivenByFlag> read = FromFile(path.texts.front(), table);
    if (!read.ok()) return WithContext(read.status(), path.origin);
    file = *std::move(read);
  }
  for (const Setting& setting : table) {
    Given given = Winner(setting, {&file, &variables, &flags});
    if (given.texts.empty()) {
      if (setting.flag != "root") continue;
      return absl::InvalidArgumentError(
          "no --root given, and no default without $XDG_STATE_HOME or $HOME");
    }
    absl::Status status = setting.set(given.texts, config);
    if (!status.ok()) return WithContext(status, given.place);
    if (setting.value.empty()) continue;
    config.settings.push_back({setting.flag, absl::StrJoin(given.texts, ":"), given.origin});
  }
  return config;
}

std::string HelpText(const Surroundings& surroundings, const std::vector<Setting>& extra) {
  std::string text =
      "ckptd: takes checkpoints off the training processes of this node and writes them.\n\n"
      "Usage: ckptd [--root PATH] [FLAG…]\n\n"
      "Every flag is also a key of the TOML file (with _ for -) and a variable CKPTD_… (upper "
      "case,\n"
      "with _). A flag wins over a variable, a variable over the file.\n"
      "Durations: 250ms 10s 2m 1h. Sizes: 4096 64MiB 1GiB.\n";
  std::string group;
  for (const Setting& setting : WholeTable(surroundings, extra)) {
    if (setting.group != group) absl::StrAppend(&text, "\n", setting.group, ":\n");
    group = setting.group;
    std::string left =
        absl::StrCat("--", setting.flag, setting.value.empty() ? "" : " ", setting.value);
    std::string right = setting.help;
    if (!setting.default_text.empty()) absl::StrAppend(&right, " [", setting.default_text, "]");
    absl::StrAppendFormat(&text, "  %-39s %s\n", left, right);
  }
  absl::StrAppend(
      &text,
      "\nExit codes: 0 ok, 1 failed, 2 usage or configuration, 5 permission, 9 socket or "
      "node name held by another daemon.\n"
      "Example: ckptd --root /mnt/nvme/checkpoints --arena-limit 64GiB\n");
  return text;
}

std::string PrintConfigText(const Config& config) {
  std::string text;
  for (const SettingValue& setting : config.settings) {
    std::string value = Quoted(setting.text);
    if (setting.flag == "root") {
      std::vector<std::string> roots;
      for (const RootConfig& root : config.roots) {
        roots.push_back(Quoted(absl::StrCat(root.label, "=", root.path)));
      }
      value = absl::StrCat("[", absl::StrJoin(roots, ", "), "]");
    }
    // The file cannot name itself.
    absl::string_view lead = setting.flag == "config" ? "# " : "";
    absl::StrAppendFormat(&text, "%-50s # %s\n",
                          absl::StrCat(lead, KeyOf(setting.flag), " = ", value), setting.origin);
  }
  return text;
}

}  // namespace ckptd
