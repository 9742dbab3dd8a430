// How fast the saves in flight are written, from two looks at the daemon.
#ifndef CKPTD_CLIENT_CLI_PROGRESS_H_
#define CKPTD_CLIENT_CLI_PROGRESS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/ckptd/v1/admin.pb.h"

namespace ckptd {

struct Progress {
  std::optional<double> bytes_per_s;   // Written since the last look; unknown at the first one.
  std::optional<absl::Duration> left;  // Until all is written, at that rate.
};

class ProgressMeter {
 public:
  // One for each of the reply's attempts, in their order. `now` is of the monotonic clock.
  std::vector<Progress> Update(const v1::StatusReply& reply, absl::Duration now);

 private:
  struct Look {
    absl::Duration at;
    uint64_t written_bytes;
  };
  std::map<std::string, Look> last_;  // By job, id and attempt.
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_PROGRESS_H_
