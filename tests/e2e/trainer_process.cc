#include "tests/e2e/trainer_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "storage/base/check.h"

namespace ckptd {
namespace {

constexpr char kBinary[] = "client/examples/trainer";

}  // namespace

TrainerProcess::TrainerProcess(std::vector<std::string> flags) {
  flags.insert(flags.begin(), kBinary);
  std::vector<char*> argv;
  for (std::string& flag : flags) argv.push_back(flag.data());
  argv.push_back(nullptr);
  int to[2], from[2];
  CKPT_CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0, "a test may make pipes");
  pid_ = vfork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    execv(kBinary, argv.data());
    _exit(127);
  }
  CKPT_CHECK(pid_ > 0, "a test may start processes");
  close(to[0]);
  close(from[1]);
  input_ = fdopen(to[1], "w");
  output_ = fdopen(from[0], "r");
}

TrainerProcess::~TrainerProcess() {
  if (pid_ != 0) Kill();
  if (input_ != nullptr) std::fclose(input_);
  std::fclose(output_);
}

void TrainerProcess::Send(const std::string& command) {
  std::fprintf(input_, "%s\n", command.c_str());
  std::fflush(input_);
}

nlohmann::json TrainerProcess::NextLine() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t bytes = getline(&line, &capacity, output_);
  nlohmann::json parsed;
  if (bytes > 0) parsed = nlohmann::json::parse(line, line + bytes, nullptr, false);
  std::free(line);
  return parsed;
}

nlohmann::json TrainerProcess::Answer() {
  for (;;) {
    nlohmann::json line = NextLine();
    if (!line.is_object() || line.contains("cmd")) return line;
    events_.push_back(std::move(line));
  }
}

nlohmann::json TrainerProcess::Do(const std::string& command) {
  Send(command);
  return Answer();
}

void TrainerProcess::Kill() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

int TrainerProcess::Finish() {
  std::fclose(input_);
  input_ = nullptr;
  while (!Answer().is_null()) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace ckptd
