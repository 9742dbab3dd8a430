// DaemonSource asks a daemon over its Unix socket.
//
// Errors are those of the daemon. Unavailable, naming the socket and where its path came from, if
// none answers there; PermissionDenied if the socket may not be used; DeadlineExceeded after the
// time-out.
#ifndef CKPTD_CLIENT_CLI_DAEMON_SOURCE_H_
#define CKPTD_CLIENT_CLI_DAEMON_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cli/source.h"

namespace ckptd {

class DaemonSource : public Source {
 public:
  struct Options {
    std::string socket;         // Absolute.
    std::string socket_origin;  // For the error.
    absl::Duration timeout;     // Of each call but Verify().
    absl::Duration verify_timeout = absl::InfiniteDuration();
    std::string root = {};  // Label; empty: the first.
  };

  static absl::StatusOr<std::unique_ptr<DaemonSource>> Connect(const Options& options);
  ~DaemonSource() override;

  absl::StatusOr<v1::ListReply> List(const std::string& job, bool failed) override;
  absl::StatusOr<v1::Checkpoint> Latest(const std::string& job) override;
  absl::StatusOr<v1::ShowReply> Show(const std::string& job, const std::string& name) override;
  absl::StatusOr<v1::DescribeReply> Describe(const std::string& job, const std::string& id,
                                             const std::string& glob) override;
  absl::StatusOr<std::vector<v1::VerifyReply>> Verify(const std::string& job,
                                                      const std::vector<std::string>& ids) override;

  // What only a daemon can do.
  absl::StatusOr<v1::StatusReply> Status();
  absl::StatusOr<v1::VersionReply> Version();
  // `state`: "staged", "durable" or "committed".
  absl::StatusOr<v1::Attempt> Wait(const std::string& job, const std::string& id,
                                   const std::string& state);
  absl::StatusOr<v1::DeleteReply> Delete(const std::string& job,
                                         const std::vector<std::string>& ids, bool allow_newest);
  // The health service's answer for the whole daemon.
  absl::StatusOr<bool> Serving();

 private:
  struct Stubs;
  DaemonSource(Options options, std::unique_ptr<Stubs> stubs);

  const Options options_;
  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_DAEMON_SOURCE_H_
