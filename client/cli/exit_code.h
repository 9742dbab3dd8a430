// The exit codes of ckptctl, which scripts rely on.
#ifndef CKPTD_CLIENT_CLI_EXIT_CODE_H_
#define CKPTD_CLIENT_CLI_EXIT_CODE_H_

#include "absl/status/status.h"

namespace ckptd {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNothingThere = 3;
inline constexpr int kExitUnreachable = 4;
inline constexpr int kExitPermission = 5;
inline constexpr int kExitIntegrity = 6;
inline constexpr int kExitNotCommitted = 7;
inline constexpr int kExitTimeout = 8;
inline constexpr int kExitHeld = 9;
inline constexpr int kExitInterrupted = 130;

// What a status means, where the verb does not say otherwise.
int ExitCodeOf(absl::StatusCode code);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_EXIT_CODE_H_
