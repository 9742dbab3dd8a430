// A real ckptd for tests: its own process, socket folder and root.
#ifndef CKPTD_TESTS_E2E_DAEMON_PROCESS_H_
#define CKPTD_TESTS_E2E_DAEMON_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace ckptd {

// For one thread at a time. Tests run from the top of their runfiles.
class DaemonProcess {
 public:
  // Starts `binary` with these flags besides --socket and --root.
  explicit DaemonProcess(std::vector<std::string> flags = {}, std::string binary = "server/ckptd");
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;
  ~DaemonProcess();  // Kills it and removes its folders.

  void Start();     // Again, after Kill() or Terminate(). Returns at once; clients wait.
  void Kill();      // SIGKILL, and waits for the end.
  int Terminate();  // SIGTERM; the exit code.
  void Signal(int signal);

  const std::string& socket() const { return socket_; }
  const std::string& root() const { return root_.path(); }
  pid_t pid() const { return pid_; }
  std::string Log() const;

 private:
  int Wait();

  const std::vector<std::string> flags_;
  const std::string binary_;
  TempFolder root_;
  std::string socket_folder_;
  std::string socket_;
  pid_t pid_ = 0;  // 0: does not run.
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_E2E_DAEMON_PROCESS_H_
