// What the kernel, the container and the machine allow this process. Nothing here touches a root.
#ifndef CKPTD_CLIENT_CLI_HOST_CHECKS_H_
#define CKPTD_CLIENT_CLI_HOST_CHECKS_H_

#include <vector>

#include "client/cli/host_check.h"

namespace ckptd {

// io_uring, fixed_buffers, memlock, huge_pages, memory: by the daemon's own code, for this process.
// Another one, of another user or container, may be allowed something else.
std::vector<HostCheck> CheckHost();

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_HOST_CHECKS_H_
