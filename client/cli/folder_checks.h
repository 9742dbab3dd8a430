// What the file systems of a root and of a socket's folder allow. Every call may hang with its file
// system.
#ifndef CKPTD_CLIENT_CLI_FOLDER_CHECKS_H_
#define CKPTD_CLIENT_CLI_FOLDER_CHECKS_H_

#include <string>

#include "client/cli/bounded_probe.h"
#include "client/cli/host_check.h"

namespace ckptd {

// file_system, direct_io, rename, fsync, locks of a root; `root` is absolute. Nothing is left
// there.
void CheckRoot(const std::string& root, const BoundedProbe::Emit& emit);

// Whether a daemon answers at this path, or could listen there.
HostCheck CheckSocket(const std::string& socket);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_FOLDER_CHECKS_H_
