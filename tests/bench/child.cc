#include "tests/bench/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd::bench {
namespace {

absl::Status MakePipe(UniqueFd& read_end, UniqueFd& write_end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "make a pipe");
  read_end = UniqueFd(ends[0]);
  write_end = UniqueFd(ends[1]);
  return absl::OkStatus();
}

// Between fork and exec.
[[noreturn]] void Become(char* const* arguments, int in, int out, int err, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  if (err >= 0) dup2(err, STDERR_FILENO);
  execvp(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Child>> Child::Start(std::vector<std::string> arguments,
                                                    const std::string& log) {
  UniqueFd child_in, in, out, child_out, err;
  RETURN_IF_ERROR(MakePipe(child_in, in));
  RETURN_IF_ERROR(MakePipe(out, child_out));
  if (!log.empty()) {
    err = UniqueFd(open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!err.valid()) return ErrnoStatus(errno, absl::StrCat("open the log: ", log));
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork");
  if (pid == 0) Become(pointers.data(), child_in.get(), child_out.get(), err.get(), parent);
  return std::unique_ptr<Child>(new Child(pid, std::move(in), std::move(out)));
}

Child::Child(pid_t pid, UniqueFd in, UniqueFd out)
    : pid_(pid), in_(std::move(in)), out_(std::move(out)) {}

Child::~Child() {
  Signal(SIGKILL);
  AwaitEnd();
}

bool Child::Running() {
  if (ended_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return true;
  ended_ = true;
  end_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return false;
}

absl::Status Child::Send(const std::string& line) {
  const std::string text = line + "\n";
  if (write(in_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size())) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat("write to process ", pid_));
}

absl::StatusOr<std::string> Child::Read() {
  for (;;) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    char part[4096];
    const ssize_t got = read(out_.get(), part, sizeof part);
    if (got <= 0) return absl::UnavailableError(absl::StrCat("process ", pid_, " has ended"));
    buffer_.append(part, static_cast<size_t>(got));
  }
}

std::string Child::ReadAll() {
  std::string text;
  for (auto line = Read(); line.ok(); line = Read()) absl::StrAppend(&text, *line, "\n");
  return text + buffer_;
}

void Child::Signal(int signal) const {
  if (!ended_) kill(pid_, signal);
}

int Child::AwaitEnd() {
  if (ended_) return end_;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
  end_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return end_;
}

absl::StatusOr<double> CpuSeconds(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (const int error = clock_getcpuclockid(pid, &clock)) {
    return ErrnoStatus(error, absl::StrCat("find the clock of process ", pid));
  }
  if (clock_gettime(clock, &time) != 0) {
    return ErrnoStatus(errno, absl::StrCat("read the clock of process ", pid));
  }
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

absl::StatusOr<uint64_t> AnonymousBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar("\t "), absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() == 3 && words[0] == "RssAnon:" && absl::SimpleAtoi(words[1], &kib)) {
      return kib * kKiB;
    }
  }
  return absl::NotFoundError(absl::StrCat("no RssAnon of process ", pid));
}

}  // namespace ckptd::bench
