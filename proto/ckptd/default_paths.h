// Where daemon and clients meet when nobody says where: the same rules on both sides. Pure
// functions.
#ifndef CKPTD_PROTO_CKPTD_DEFAULT_PATHS_H_
#define CKPTD_PROTO_CKPTD_DEFAULT_PATHS_H_

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ckptd {

using Variables = std::map<std::string, std::string>;

// The variables of this process.
Variables ProcessVariables();

// A path and, for people, why it is this one: "$XDG_RUNTIME_DIR", "the default of uid 0" …
struct DefaultPath {
  std::string path;
  std::string origin;
};

// uid 0: /run/ckptd/ckptd.sock; others: $XDG_RUNTIME_DIR/ckptd/ckptd.sock, without that variable
// /tmp/ckptd-<uid>/ckptd.sock. Ignores CKPTD_SOCKET, which the callers treat as their own setting.
DefaultPath DefaultSocket(const Variables& variables, uid_t uid);

// uid 0: /var/lib/ckptd; others: $XDG_STATE_HOME/ckptd, without it $HOME/.local/state/ckptd;
// without both the path is empty.
DefaultPath DefaultRoot(const Variables& variables, uid_t uid);

// What the kernel takes, with room for ".fd" behind it.
inline constexpr size_t kSocketPathBytesMax = 104;

// InvalidArgument, with path and length, if the path is empty or too long.
absl::Status CheckSocketPath(absl::string_view path);

// Beside the socket.
std::string SideSocketPath(absl::string_view socket);
std::string SocketLockPath(absl::string_view socket);

}  // namespace ckptd

#endif  // CKPTD_PROTO_CKPTD_DEFAULT_PATHS_H_
