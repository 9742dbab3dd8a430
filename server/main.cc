// ckptd: the checkpoint daemon of one node. Flags: --help; what it does: README.md.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/config.h"
#include "server/log.h"
#include "server/run.h"

int main(int argc, char** argv) {
  ckptd::Surroundings surroundings = ckptd::Surroundings::OfThisProcess();
  auto config = ckptd::ParseConfig(std::vector<std::string>(argv + 1, argv + argc), surroundings);
  if (std::optional<int> code = ckptd::AnswerWithoutRunning(config, surroundings)) return *code;
  ckptd::Logger logger(config->log_level, config->log_format);
  return ckptd::RunDaemon({*std::move(config), nullptr, nullptr}, logger);
}
