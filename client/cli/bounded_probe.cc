#include "client/cli/bounded_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_split.h"
#include "storage/base/check.h"
#include "storage/base/clock.h"

namespace ckptd {
namespace {

constexpr size_t kFields = 5;

// Five texts of a check, each with a zero byte behind it.
void Send(int fd, const HostCheck& check) {
  std::string text;
  for (const std::string& field : {check.name, std::string(check.needed ? "needed" : ""),
                                   std::string(check.ok ? "ok" : ""), check.value, check.advice}) {
    text += field;
    text += '\0';
  }
  // Far smaller than a pipe; a reader that is gone has nothing to be told.
  (void)!::write(fd, text.data(), text.size());
}

std::vector<HostCheck> Parse(const std::string& text) {
  std::vector<std::string> fields = absl::StrSplit(text, '\0');
  std::vector<HostCheck> checks;
  for (size_t i = 0; i + kFields < fields.size(); i += kFields) {
    checks.push_back({fields[i], fields[i + 1] == "needed", fields[i + 2] == "ok", fields[i + 3],
                      fields[i + 4]});
  }
  return checks;
}

void LeaveTheTerminal() {
  for (int number : {SIGINT, SIGHUP, SIGPIPE}) ::signal(number, SIG_IGN);
  int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
}

}  // namespace

BoundedProbe::BoundedProbe(const std::function<void(const Emit&)>& probe) {
  int ends[2];
  CKPT_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "there is a pipe");
  results_ = UniqueFd(ends[0]);
  UniqueFd send(ends[1]);
  pid_ = ::fork();
  CKPT_CHECK(pid_ >= 0, "there is room for a process");
  if (pid_ > 0) return;
  LeaveTheTerminal();
  probe([fd = send.get()](const HostCheck& check) { Send(fd, check); });
  ::_exit(0);
}

std::vector<HostCheck> BoundedProbe::Collect(absl::Duration deadline) {
  std::string text;
  while (true) {
    absl::Duration left = deadline - SystemClock().Monotonic();
    pollfd entry = {results_.get(), POLLIN, 0};
    int wait_ms =
        static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0, 1 << 30));
    if (::poll(&entry, 1, wait_ms) <= 0) return Parse(text);
    char part[4096];
    ssize_t size = ::read(results_.get(), part, sizeof part);
    if (size <= 0) break;
    text.append(part, static_cast<size_t>(size));
  }
  ::waitpid(pid_, nullptr, 0);
  return Parse(text);
}

}  // namespace ckptd
