// From arguments, variables and file to one checked Config: default < file < variable < flag, for
// each setting apart.
#ifndef CKPTD_SERVER_CONFIG_H_
#define CKPTD_SERVER_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/settings.h"

namespace ckptd {

// `arguments` are without the program's name. `extra` are further settings, as the table has them;
// their setters keep values elsewhere. Reads the file of --config (or CKPTD_CONFIG), and nothing
// else.
//
// Errors: InvalidArgument, saying where the value came from; for an unknown flag or key with the
// nearest name that exists; what ReadConfigFile() answers. An unknown variable CKPTD_… that is not
// a client's is a warning. With --help or --version nothing else is looked at.
absl::StatusOr<Config> ParseConfig(const std::vector<std::string>& arguments,
                                   const Surroundings& surroundings,
                                   const std::vector<Setting>& extra = {});

// The text of --help: every setting with its default, by group.
std::string HelpText(const Surroundings& surroundings, const std::vector<Setting>& extra = {});

// The text of --print-config: a file that --config reads back, each line with its origin as a
// comment.
std::string PrintConfigText(const Config& config);

}  // namespace ckptd

#endif  // CKPTD_SERVER_CONFIG_H_
