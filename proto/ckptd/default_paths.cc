#include "proto/ckptd/default_paths.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

// Empty counts as absent, as the XDG rules say.
std::string ValueOf(const Variables& variables, const std::string& name) {
  auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

}  // namespace

Variables ProcessVariables() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    absl::string_view text = *entry;
    size_t equal = text.find('=');
    if (equal == text.npos) continue;
    variables.emplace(std::string(text.substr(0, equal)), std::string(text.substr(equal + 1)));
  }
  return variables;
}

DefaultPath DefaultSocket(const Variables& variables, uid_t uid) {
  if (uid == 0) return {"/run/ckptd/ckptd.sock", "the default of uid 0"};
  std::string runtime = ValueOf(variables, "XDG_RUNTIME_DIR");
  if (!runtime.empty()) return {absl::StrCat(runtime, "/ckptd/ckptd.sock"), "$XDG_RUNTIME_DIR"};
  return {absl::StrCat("/tmp/ckptd-", uid, "/ckptd.sock"),
          absl::StrCat("the default of uid ", uid)};
}

DefaultPath DefaultRoot(const Variables& variables, uid_t uid) {
  if (uid == 0) return {"/var/lib/ckptd", "the default of uid 0"};
  std::string state = ValueOf(variables, "XDG_STATE_HOME");
  if (!state.empty()) return {absl::StrCat(state, "/ckptd"), "$XDG_STATE_HOME"};
  std::string home = ValueOf(variables, "HOME");
  if (home.empty()) return {"", "no $XDG_STATE_HOME and no $HOME"};
  return {absl::StrCat(home, "/.local/state/ckptd"), "$HOME"};
}

absl::Status CheckSocketPath(absl::string_view path) {
  if (path.empty()) return absl::InvalidArgumentError("the socket path is empty");
  if (path.size() <= kSocketPathBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the socket path has ", path.size(),
                                                 " bytes, more than the ", kSocketPathBytesMax,
                                                 " possible: ", path));
}

std::string SideSocketPath(absl::string_view socket) { return absl::StrCat(socket, ".fd"); }
std::string SocketLockPath(absl::string_view socket) { return absl::StrCat(socket, ".lock"); }

}  // namespace ckptd
