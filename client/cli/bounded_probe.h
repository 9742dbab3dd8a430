// BoundedProbe runs checks that may hang for as long as a file system does, in a process of their
// own.
//
// A process that hangs in a system call cannot be ended; it can be left alone. It then goes on by
// itself, without terminal and streams, so that what it has made is removed as soon as the file
// system answers.
#ifndef CKPTD_CLIENT_CLI_BOUNDED_PROBE_H_
#define CKPTD_CLIENT_CLI_BOUNDED_PROBE_H_

#include <sys/types.h>

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/host_check.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

class BoundedProbe {
 public:
  using Emit = std::function<void(const HostCheck&)>;

  // Starts `probe`, which calls its argument once for each check. This process has one thread.
  explicit BoundedProbe(const std::function<void(const Emit&)>& probe);

  // What was found until all was, or until `deadline` (of the monotonic clock). Called once.
  std::vector<HostCheck> Collect(absl::Duration deadline);

 private:
  pid_t pid_ = -1;
  UniqueFd results_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_BOUNDED_PROBE_H_
