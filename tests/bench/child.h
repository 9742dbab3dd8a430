// Child processes of the benchmark, controlled by lines over pipes, and what the kernel counts of
// them.
#ifndef CKPTD_TESTS_BENCH_CHILD_H_
#define CKPTD_TESTS_BENCH_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/base/unique_fd.h"

namespace ckptd::bench {

// One running program; for one thread. It does not outlive this process.
class Child {
 public:
  // `arguments[0]` is the program, looked for in PATH. Its stdin and stdout are pipes; its stderr
  // is appended to the file `log`, or ours if that is empty.
  static absl::StatusOr<std::unique_ptr<Child>> Start(std::vector<std::string> arguments,
                                                      const std::string& log);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();  // SIGKILL, unless its end was seen.

  pid_t pid() const { return pid_; }
  bool Running();

  absl::Status Send(const std::string& line);
  // The next line, without its end; blocks. Unavailable if the child has ended.
  absl::StatusOr<std::string> Read();
  std::string ReadAll();  // Until the child closes its stdout.

  void Signal(int signal) const;
  int AwaitEnd();  // The exit code, or minus the signal that ended it.

 private:
  Child(pid_t pid, UniqueFd in, UniqueFd out);

  const pid_t pid_;
  UniqueFd in_;
  UniqueFd out_;
  std::string buffer_;
  bool ended_ = false;
  int end_ = 0;
};

// User and system time of all threads of a process.
absl::StatusOr<double> CpuSeconds(pid_t pid);

// Anonymous resident memory: without shared memory and files.
absl::StatusOr<uint64_t> AnonymousBytes(pid_t pid);

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_CHILD_H_
