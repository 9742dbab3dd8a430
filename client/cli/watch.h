// `ckptctl status --watch`: the daemon's status again and again, through its restarts.
#ifndef CKPTD_CLIENT_CLI_WATCH_H_
#define CKPTD_CLIENT_CLI_WATCH_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cli/daemon_source.h"
#include "client/cli/terminal.h"

namespace ckptd {

inline constexpr absl::Duration kWatchPeriod = absl::Seconds(1);

// Ends when `terminal.out` cannot be written, or with an error other than that no daemon answers:
// that is shown, and tried again. A look that takes longer than the period delays the next one, and
// none is made up for. `daemon.timeout` bounds each.
absl::Status WatchStatus(const DaemonSource::Options& daemon, bool json, Terminal& terminal);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_WATCH_H_
