// Carries out one verb.
#ifndef CKPTD_CLIENT_CLI_RUN_H_
#define CKPTD_CLIENT_CLI_RUN_H_

#include <ostream>

#include "absl/status/status.h"
#include "client/cli/options.h"
#include "client/cli/terminal.h"

namespace ckptd {

// Returns the exit code; what failed is on `terminal.err`.
int Run(const Options& options, Terminal& terminal);

// Writes why something failed, as text or as the line of JSON that scripts read.
void ReportError(const absl::Status& status, int exit_code, bool json, std::ostream& err);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_RUN_H_
