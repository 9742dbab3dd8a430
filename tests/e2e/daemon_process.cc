#include "tests/e2e/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "storage/base/check.h"

namespace ckptd {

DaemonProcess::DaemonProcess(std::vector<std::string> flags, std::string binary)
    : flags_(std::move(flags)), binary_(std::move(binary)) {
  char folder[] = "/tmp/ckptd-test-XXXXXX";  // TEST_TMPDIR is too long for a Unix socket.
  CKPT_CHECK(mkdtemp(folder) != nullptr, "a test may write to /tmp");
  socket_folder_ = folder;
  socket_ = socket_folder_ + "/ckptd.sock";
  Start();
}

DaemonProcess::~DaemonProcess() {
  if (pid_ != 0) Kill();
  std::filesystem::remove_all(socket_folder_);
}

void DaemonProcess::Start() {
  CKPT_CHECK(pid_ == 0, "one daemon at a time");
  std::vector<std::string> arguments = {binary_, "--socket", socket_, "--root", root_.path()};
  arguments.insert(arguments.end(), flags_.begin(), flags_.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::string log = socket_folder_ + "/log";
  pid_ = vfork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(fd, STDERR_FILENO);
    execv(binary_.c_str(), argv.data());
    _exit(127);
  }
  CKPT_CHECK(pid_ > 0, "a test may start processes");
}

int DaemonProcess::Wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void DaemonProcess::Kill() {
  Signal(SIGKILL);
  Wait();
}

int DaemonProcess::Terminate() {
  Signal(SIGTERM);
  return Wait();
}

void DaemonProcess::Signal(int signal) { kill(pid_, signal); }

std::string DaemonProcess::Log() const {
  std::ifstream file(socket_folder_ + "/log");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace ckptd
