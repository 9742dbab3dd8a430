// Client asks a daemon which checkpoints exist; Session (session.h) saves and loads them.
#ifndef CKPTD_CLIENT_CPP_CLIENT_H_
#define CKPTD_CLIENT_CPP_CLIENT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/checkpoint_info.h"
#include "client/cpp/options.h"

namespace ckptd::inline client {

// Thread-safe. Calls are bounded by ClientOptions::timeout. Unavailable names every socket that was
// tried and where its path came from. In a forked child every call is FailedPrecondition.
//
// `job` may be empty if the daemon knows one job only; `root` is a label, empty for the first.
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ClientOptions& options = {});
  ~Client();

  // Attempts in flight, and the failed ones if asked for.
  absl::StatusOr<CheckpointList> List(const std::string& job = "", bool failed = false,
                                      const std::string& root = "");

  // The newest committed checkpoint. Nothing if there is none at all; FailedPrecondition, naming
  // them, if there are only unfinished ones.
  absl::StatusOr<std::optional<CheckpointInfo>> Latest(const std::string& job = "",
                                                       const std::string& root = "");

  // Names, shapes and places, without data.
  absl::StatusOr<Description> Describe(const std::string& id, const std::string& job = "",
                                       const std::string& root = "");

  const std::string& socket() const;  // The one that answered.

 private:
  struct Parts;
  explicit Client(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_CLIENT_H_
