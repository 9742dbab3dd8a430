#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/run.h"
#include "proto/ckptd/default_paths.h"

namespace ckptd {
namespace {

// Handlers: only what a signal may do.
void Die(const char* message, int exit_code) {
  // Nothing can be done about a terminal that is gone.
  if (::write(STDERR_FILENO, message, std::strlen(message)) < 0) ::_exit(exit_code);
  ::_exit(exit_code);
}
void InterruptedText(int) { Die("\nckptctl: interrupted\n", kExitInterrupted); }
void InterruptedJson(int) {
  Die("{\"code\":\"CANCELLED\",\"exit\":130,\"message\":\"interrupted\"}\n", kExitInterrupted);
}
constexpr char kNoAnswer[] = "ckptctl: the folder did not answer in time\n";
constexpr char kNoAnswerJson[] =
    "{\"code\":\"DEADLINE_EXCEEDED\",\"exit\":8,"
    "\"message\":\"the folder did not answer in time\"}\n";

// A folder is read by calls that hang for as long as its file system does; a thread that hangs so
// runs no handler, but the end of its process ends it too. So another thread minds the time, and
// takes the interrupt.
void LimitFolder(const Options& options) {
  if (options.root.empty() || options.verb == Verb::kDoctor) return;  // It has its own limits.
  bool endless = options.verb == Verb::kVerify && !options.timeout_given;
  if (options.timeout <= absl::ZeroDuration()) endless = true;
  absl::Duration limit = endless ? absl::InfiniteDuration() : options.timeout;
  std::thread([limit, text = options.json ? kNoAnswerJson : kNoAnswer] {
    absl::SleepFor(limit);
    Die(text, kExitTimeout);
  }).detach();
  sigset_t interrupt;
  ::sigemptyset(&interrupt);
  ::sigaddset(&interrupt, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &interrupt, nullptr);
}

int Main(const std::vector<std::string>& arguments) {
  bool json = AsksForJson(arguments);
  ::signal(SIGINT, json ? InterruptedJson : InterruptedText);
  absl::StatusOr<std::variant<Options, HelpRequest>> parsed =
      ParseOptions(arguments, ProcessVariables(), ::geteuid());
  if (!parsed.ok()) {
    ReportError(parsed.status(), kExitUsage, json, std::cerr);
    return kExitUsage;
  }
  if (auto* help = std::get_if<HelpRequest>(&*parsed)) {
    std::cout << help->text;
    return kExitOk;
  }
  const Options& options = std::get<Options>(*parsed);
  LimitFolder(options);
  bool interactive = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  Terminal terminal{std::cin, std::cout, std::cerr, interactive, ::isatty(STDOUT_FILENO) == 1};
  return Run(options, terminal);
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  return ckptd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
