// The command line of ckptctl.
#ifndef CKPTD_CLIENT_CLI_OPTIONS_H_
#define CKPTD_CLIENT_CLI_OPTIONS_H_

#include <sys/types.h>

#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/ckptd/default_paths.h"

namespace ckptd {

enum class Verb {
  kList,
  kStatus,
  kShow,
  kDescribe,
  kVerify,
  kLatest,
  kWait,
  kDelete,
  kHealth,
  kDoctor,
  kVersion,
};

struct Options {
  Verb verb = Verb::kList;
  std::string socket;         // Absolute; set unless a folder is read.
  std::string socket_origin;  // Why this socket, for the error.
  // Absolute: read this folder, without a daemon. Always set for doctor, which has a socket too.
  std::string root;
  std::string root_label;  // Of the daemon's roots, this one alone; empty: all.
  std::string job;         // Empty: the only one, or all.
  bool json = false;
  absl::Duration timeout;
  bool timeout_given = false;

  std::vector<std::string> ids;  // The verb's positional arguments.
  bool all = false;              // list: failed attempts too; verify: every checkpoint.
  bool watch = false;            // status
  std::string tensor_glob;       // describe
  std::string state;             // wait: "staged", "durable" or "committed".
  bool yes = false;              // delete
  bool allow_newest = false;     // delete
  absl::Duration wait;           // health: how long to wait for it.
};

// What to print instead of doing anything.
struct HelpRequest {
  std::string text;
};

// `arguments` are without the program's name. InvalidArgument for a wrong command line. Takes the
// socket from --socket, CKPTD_SOCKET or the default of the uid, and the job of a verb about one job
// from --job or CKPTD_JOB.
absl::StatusOr<std::variant<Options, HelpRequest>> ParseOptions(
    const std::vector<std::string>& arguments, const Variables& variables, uid_t uid);

// Whether the arguments ask for JSON, also where they do not parse.
bool AsksForJson(const std::vector<std::string>& arguments);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_OPTIONS_H_
