#include "tests/client/cli/run_tool.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/base/check.h"

namespace ckptd {
namespace {

constexpr char kBinary[] = "client/cli/ckptctl";

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string ReadWhole(int fd) {
  std::string text;
  char part[4096];
  off_t offset = 0;
  while (true) {
    ssize_t size = ::pread(fd, part, sizeof part, offset);
    if (size <= 0) return text;
    text.append(part, size);
    offset += size;
  }
}

}  // namespace

RunningTool::RunningTool(const std::vector<std::string>& arguments,
                         const std::vector<std::string>& variables) {
  out_fd_ = ::memfd_create("out", MFD_CLOEXEC);
  err_fd_ = ::memfd_create("err", MFD_CLOEXEC);
  CKPT_CHECK(out_fd_ >= 0 && err_fd_ >= 0, "memory for the tool's output");
  std::vector<std::string> argv = {kBinary};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  std::vector<std::string> envp = variables;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out_fd_, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err_fd_, STDERR_FILENO);
  int error = ::posix_spawn(&pid_, kBinary, &actions, nullptr, Pointers(argv).data(),
                            Pointers(envp).data());
  ::posix_spawn_file_actions_destroy(&actions);
  CKPT_CHECK(error == 0, "the tool starts");
}

RunningTool::~RunningTool() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(out_fd_);
  ::close(err_fd_);
}

std::string RunningTool::OutSoFar() const { return ReadWhole(out_fd_); }

ToolResult RunningTool::Wait() {
  int status = 0;
  CKPT_CHECK(::waitpid(pid_, &status, 0) == pid_, "the tool is waited for once");
  pid_ = -1;
  ToolResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.out = ReadWhole(out_fd_);
  result.err = ReadWhole(err_fd_);
  return result;
}

ToolResult RunTool(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables) {
  RunningTool tool(arguments, variables);
  return tool.Wait();
}

std::string LastLine(const std::string& text) {
  if (text.empty()) return "";
  size_t end = text.find_last_not_of('\n') + 1;
  size_t begin = text.rfind('\n', end - 1);
  return text.substr(begin == text.npos ? 0 : begin + 1,
                     end - (begin == text.npos ? 0 : begin + 1));
}

}  // namespace ckptd
