// One thing that `ckptctl doctor` has looked at.
#ifndef CKPTD_CLIENT_CLI_HOST_CHECK_H_
#define CKPTD_CLIENT_CLI_HOST_CHECK_H_

#include <string>

namespace ckptd {

struct HostCheck {
  std::string name;     // A script's word for it: "io_uring", "rename" …
  bool needed = false;  // Nothing is saved without it; the others make it faster or safer.
  bool ok = false;
  std::string value = {};   // What was found.
  std::string advice = {};  // How to have it, and what it costs to do without; empty: none.
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_HOST_CHECK_H_
