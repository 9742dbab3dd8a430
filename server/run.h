// RunDaemon: a whole daemon process, from its configuration to its exit code. What ckptd and its
// test double share.
#ifndef CKPTD_SERVER_RUN_H_
#define CKPTD_SERVER_RUN_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "server/daemon.h"
#include "server/settings.h"

namespace ckptd {

// Ends the process once SIGTERM or SIGINT has drained the daemon (a second one ends it at once).
// Exit codes: 0; 9 for a held socket or node name; 5 for what may not be written; 2 for a
// configuration that this machine cannot give; else 1. Call it before any thread is started.
int RunDaemon(Daemon::Options options, Logger& logger);

// Handles --help, --version, --check-config, --print-config and errors: the exit code, or nullopt
// to go on and run. `extra_help` lists the same settings as ParseConfig() was given.
std::optional<int> AnswerWithoutRunning(const absl::StatusOr<Config>& config,
                                        const Surroundings& surroundings,
                                        const std::vector<Setting>& extra = {});

}  // namespace ckptd

#endif  // CKPTD_SERVER_RUN_H_
