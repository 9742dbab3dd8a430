// Source answers what is on a root, or on all of a daemon: the daemon, or the folder itself.
#ifndef CKPTD_CLIENT_CLI_SOURCE_H_
#define CKPTD_CLIENT_CLI_SOURCE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"

namespace ckptd {

// `job` may be empty: for List and Verify it means all, for the others the only one there is
// (InvalidArgument, naming them, if there are several). Blocking; for one thread.
class Source {
 public:
  virtual ~Source() = default;

  // `failed`: failed attempts too.
  virtual absl::StatusOr<v1::ListReply> List(const std::string& job, bool failed) = 0;

  // NotFound if nothing is there; FailedPrecondition if only unfinished ones are.
  virtual absl::StatusOr<v1::Checkpoint> Latest(const std::string& job) = 0;

  // A checkpoint by id, or an attempt by its name or id, with its files.
  virtual absl::StatusOr<v1::ShowReply> Show(const std::string& job, const std::string& name) = 0;

  // `glob` may be empty: all.
  virtual absl::StatusOr<v1::DescribeReply> Describe(const std::string& job, const std::string& id,
                                                     const std::string& glob) = 0;

  // `ids` may be empty: all.
  virtual absl::StatusOr<std::vector<v1::VerifyReply>> Verify(
      const std::string& job, const std::vector<std::string>& ids) = 0;

  // For people: what the answers so far leave out, and what else went wrong.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Why something that was asked for could not be read, while answers came from elsewhere.
  virtual absl::Status Unread() const { return absl::OkStatus(); }

 protected:
  void Warn(std::string text) { warnings_.push_back(std::move(text)); }

 private:
  std::vector<std::string> warnings_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_SOURCE_H_
