// What a client takes from its environment: where the daemon is, and which rank of which job it is
// itself. Pure functions of options and variables.
#ifndef CKPTD_CLIENT_CPP_ENVIRONMENT_H_
#define CKPTD_CLIENT_CPP_ENVIRONMENT_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/options.h"
#include "proto/ckptd/default_paths.h"

namespace ckptd::inline client {

// A socket to try, and for error messages where its path came from.
struct SocketCandidate {
  std::string path;
  std::string origin;  // "argument", "CKPTD_SOCKET", "the default of uid 0" …
};

// The sockets to try, in order: the argument, or CKPTD_SOCKET, or the defaults of this uid.
// InvalidArgument for a path that is too long, with its length.
absl::StatusOr<std::vector<SocketCandidate>> SocketCandidates(const std::string& argument,
                                                              const Variables& variables,
                                                              uid_t uid);

struct Identity {
  std::string job;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string incarnation;  // Empty: of a job of several processes that nobody gave one.
};

// The rules of SessionOptions. The incarnation comes from the launcher where it gives one that is
// new at every start; a job of one process gets a random one. InvalidArgument says what is missing
// or contradicts.
absl::StatusOr<Identity> ResolveIdentity(const SessionOptions& options, const Variables& variables);

// 128 random bits as 32 hexadecimal digits.
std::string RandomToken();

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_ENVIRONMENT_H_
