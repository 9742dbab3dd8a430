// `ckptctl doctor`: what this host allows a daemon, how to allow more, and what it costs to do
// without.
#ifndef CKPTD_CLIENT_CLI_DOCTOR_H_
#define CKPTD_CLIENT_CLI_DOCTOR_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/host_check.h"

namespace ckptd {

struct DoctorOptions {
  std::string root;    // Absolute; empty if there is no default either.
  std::string socket;  // Absolute.
  absl::Duration timeout;
};

// All checks, in the order of the documentation, whatever fails. Asks no daemon, needs no
// permission, leaves nothing behind. A file system that does not answer within the time-out fails
// its checks. This process has one thread when it is called.
std::vector<HostCheck> Doctor(const DoctorOptions& options);

// Names of those that are needed and not there.
std::vector<std::string> MissingNeeds(const std::vector<HostCheck>& checks);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_DOCTOR_H_
