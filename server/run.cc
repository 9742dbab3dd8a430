#include "server/run.h"

#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "proto/ckptd/version.h"
#include "server/config.h"
#include "storage/base/unique_fd.h"

namespace ckptd {
namespace {

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAlreadyExists:
      return 9;
    case absl::StatusCode::kPermissionDenied:
      return 5;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return 2;
    default:
      return 1;
  }
}

// Waits for signals and for the drain they start.
void RunUntilStopped(Daemon& daemon, int signals, int drained) {
  bool draining = false;
  while (true) {
    pollfd entries[2] = {{signals, POLLIN, 0}, {drained, POLLIN, 0}};
    if (poll(entries, 2, -1) < 0) continue;
    if (entries[1].revents != 0) return;
    if (entries[0].revents == 0) continue;
    signalfd_siginfo info;
    (void)!read(signals, &info, sizeof info);
    if (std::exchange(draining, true)) return;
    daemon.Drain([drained] { eventfd_write(drained, 1); });
  }
}

// Every rank, shard and load takes descriptors; the soft limit is a default for programs that use
// select().
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Plans are made on one thread and freed on another: with a heap for each thread, as is the
// default, every one of them keeps what the largest plan took.
void KeepOneHeap() { mallopt(M_ARENA_MAX, 1); }

}  // namespace

int RunDaemon(Daemon::Options options, Logger& logger) {
  KeepOneHeap();
  RaiseDescriptorLimit();
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // A file-size limit is an error of one write, not the end.
  UniqueFd signals(signalfd(-1, &stop, SFD_CLOEXEC));
  UniqueFd drained(eventfd(0, EFD_CLOEXEC));
  for (const std::string& warning : options.config.warnings)
    logger.Warning("config", {{"warning", warning}});
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(std::move(options), logger);
  if (!daemon.ok()) {
    logger.Error("start.failed", {{"error", std::string(daemon.status().message())}});
    std::fflush(nullptr);
    _exit(ExitCode(daemon.status()));  // As below.
  }
  RunUntilStopped(**daemon, signals.get(), drained.get());
  (*daemon)->Close();
  logger.Info("stopped");
  // A root that hangs holds its workers for ever; what is durable is on disk, and the kernel takes
  // the rest back.
  std::fflush(nullptr);
  _exit(0);
}

std::optional<int> AnswerWithoutRunning(const absl::StatusOr<Config>& config,
                                        const Surroundings& surroundings,
                                        const std::vector<Setting>& extra) {
  if (!config.ok()) {
    std::fprintf(stderr, "ckptd: %s\n", std::string(config.status().message()).c_str());
    return 2;
  }
  switch (config->action) {
    case ProgramAction::kRun:
      return std::nullopt;
    case ProgramAction::kHelp:
      std::fputs(HelpText(surroundings, extra).c_str(), stdout);
      return 0;
    case ProgramAction::kVersion:
      std::printf("ckptd %s\n", kVersion);
      return 0;
    case ProgramAction::kCheckConfig:
      std::puts("the configuration is valid");
      return 0;
    case ProgramAction::kPrintConfig:
      std::fputs(PrintConfigText(*config).c_str(), stdout);
      return 0;
  }
  return 1;
}

}  // namespace ckptd
