// Runs ckptctl as a user does.
#ifndef CKPTD_TESTS_CLIENT_CLI_RUN_TOOL_H_
#define CKPTD_TESTS_CLIENT_CLI_RUN_TOOL_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ckptd {

struct ToolResult {
  int exit_code = -1;  // -1: killed by a signal.
  std::string out;
  std::string err;
};

// The built binary in the runfiles of the test, with an environment of `variables` ("NAME=VALUE")
// alone.
ToolResult RunTool(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables = {});

// The same in two steps: a running tool, and its end.
class RunningTool {
 public:
  RunningTool(const std::vector<std::string>& arguments, const std::vector<std::string>& variables);
  RunningTool(const RunningTool&) = delete;
  RunningTool& operator=(const RunningTool&) = delete;
  ~RunningTool();

  pid_t pid() const { return pid_; }
  std::string OutSoFar() const;
  ToolResult Wait();

 private:
  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
};

// The last line of a text that ends in a line end.
std::string LastLine(const std::string& text);

}  // namespace ckptd

#endif  // CKPTD_TESTS_CLIENT_CLI_RUN_TOOL_H_
