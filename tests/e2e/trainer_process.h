// The trainer example as a process of its own, driven by commands.
#ifndef CKPTD_TESTS_E2E_TRAINER_PROCESS_H_
#define CKPTD_TESTS_E2E_TRAINER_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ckptd {

// For one thread at a time. Tests run from the top of their runfiles.
class TrainerProcess {
 public:
  explicit TrainerProcess(std::vector<std::string> flags);
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;
  ~TrainerProcess();  // Kills it if it still runs.

  // Writes a command without waiting.
  void Send(const std::string& command);
  // The next answer to a command; events before it are kept. Null at the end of the output.
  nlohmann::json Answer();
  nlohmann::json Do(const std::string& command);
  const std::vector<nlohmann::json>& events() const { return events_; }

  void Kill();
  // Closes its input, reads the rest of its output, waits; the exit code.
  int Finish();
  pid_t pid() const { return pid_; }

 private:
  nlohmann::json NextLine();

  pid_t pid_ = 0;
  FILE* input_ = nullptr;  // Of the process.
  FILE* output_ = nullptr;
  std::vector<nlohmann::json> events_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_E2E_TRAINER_PROCESS_H_
