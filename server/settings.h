// What can be configured: one value each in Config, one entry each in the table, from which flags,
// keys of the file, variables, help and --print-config all follow.
#ifndef CKPTD_SERVER_SETTINGS_H_
#define CKPTD_SERVER_SETTINGS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/ckptd/default_paths.h"
#include "server/log.h"

namespace ckptd {

enum class IoEngine { kAuto, kUring, kPosix };
enum class Choice { kAuto, kOn, kOff };

struct RootConfig {
  std::string label;
  std::string path;  // Absolute.
};

// One of the two is set.
struct ArenaLimit {
  uint32_t percent = 0;  // Of the memory that is available to the daemon; 1-100.
  uint64_t bytes = 0;
};

// What the program is asked to do.
enum class ProgramAction { kRun, kHelp, kVersion, kCheckConfig, kPrintConfig };

// A setting as --print-config shows it.
struct SettingValue {
  std::string flag;  // Without "--".
  std::string text;
  std::string origin;  // "default", "ckptd.toml", "$CKPTD_NODE", "--node".
};

// Every value is checked and within its limits.
struct Config {
  ProgramAction action = ProgramAction::kRun;

  std::string config_file;
  std::string socket;
  std::vector<RootConfig> roots;  // At least one; labels and paths differ.
  std::string node;

  IoEngine io = IoEngine::kAuto;
  Choice direct = Choice::kAuto;
  Choice fixed_buffers = Choice::kAuto;
  Choice huge_pages = Choice::kAuto;
  uint64_t block_bytes = 0;  // A power of two, 1 MiB to 1 GiB.
  ArenaLimit arena_limit;
  uint64_t read_window_bytes = 0;

  uint32_t max_inflight_attempts = 0;  // Per job; at least 1.
  uint32_t keep_last = 0;              // 0: all.
  uint32_t recheck_every = 0;          // Every N-th block after its write; 0: none.

  absl::Duration join_timeout;
  absl::Duration attempt_timeout;
  absl::Duration admit_timeout;
  absl::Duration peer_lost_timeout;
  absl::Duration reattach_timeout;
  absl::Duration root_visible_timeout;
  absl::Duration settle_timeout;
  absl::Duration drain_timeout;
  absl::Duration trash_grace;

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kAuto;

  std::vector<SettingValue> settings;  // Of the whole table, in its order.
  std::vector<std::string> warnings;   // To be logged.
};

// One line of the table.
struct Setting {
  std::string group;
  std::string flag;   // "block-size"; the key is block_size, the variable CKPTD_BLOCK_SIZE.
  std::string value;  // For help: "SIZE", "auto|on|off"; empty: a switch without value, flag only.
  std::string default_text;  // Read by the same setter; of a switch, and where nothing is set by
                             // default: "".
  std::string help;
  bool repeated = false;
  bool flag_only = false;  // Neither in the file nor a variable.

  // Called once per setting with the texts of the source that wins. The error says what is wrong
  // with the value; the caller adds where it came from.
  std::function<absl::Status(const std::vector<std::string>& texts, Config& config)> set;
};

// What the defaults depend on.
struct Surroundings {
  Variables variables;
  uid_t uid = 0;
  std::string host_name;
  std::string working_folder;  // Relative paths start here.

  static Surroundings OfThisProcess();
};

std::vector<Setting> NodeSettings(const Surroundings& surroundings);

// "block_size" and "CKPTD_BLOCK_SIZE" of "block-size".
std::string KeyOf(absl::string_view flag);
std::string VariableOf(absl::string_view flag);

}  // namespace ckptd

#endif  // CKPTD_SERVER_SETTINGS_H_
