// The trainer: a rank to try the daemon with, and to test it.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "client/cli/exit_code.h"
#include "client/examples/trainer.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

struct Flags {
  TrainerOptions trainer;
  bool from_stdin = false;
};

template <typename Value>
void AddChoice(CLI::App& app, const std::string& name, Value& value,
               const std::map<std::string, Value>& choices, const std::string& help) {
  app.add_option(name, value, help)->transform(CLI::CheckedTransformer(choices));
}

void AddDuration(CLI::App& app, const std::string& name, absl::Duration& value,
                 const std::string& help) {
  const auto check = [](const std::string& text) {
    return std::string(ParseDuration(text).status().message());  // Empty if it is one.
  };
  const auto assign = [&value](const std::string& text) { value = *ParseDuration(text); };
  app.add_option_function<std::string>(name, assign, help)->check(check);
}

void AddFlags(CLI::App& app, Flags& flags) {
  SessionOptions& session = flags.trainer.session;
  TrainerOptions& trainer = flags.trainer;
  app.add_option("--socket", session.client.socket, "The daemon's");
  app.add_option("--job", session.job, "Its name");
  app.add_option("--rank", session.rank, "This rank");
  app.add_option("--world-size", session.world_size, "Ranks of the job");
  app.add_option("--incarnation", session.incarnation, "New at every start of the job");
  app.add_option("--root-label", session.root, "Where the daemon stores");
  app.add_option("--threads", session.threads, "That copy")->check(CLI::PositiveNumber);
  app.add_flag("--deferred", trainer.deferred, "Saves return before they are staged");
  AddChoice(app, "--on-existing", session.on_existing,
            {{"refuse", OnExisting::kRefuse}, {"replace", OnExisting::kReplace}},
            "What a save of an existing id does");
  AddChoice(app, "--on-overlap", session.on_overlap,
            {{"wait", OnOverlap::kWait}, {"reject", OnOverlap::kReject}},
            "What a save does while too many are in flight");
  AddChoice(app, "--replicas", session.replicas,
            {{"error", Replicas::kError}, {"lowest_rank", Replicas::kLowestRank}},
            "What happens if replicas differ");
  AddDuration(app, "--join-timeout", session.join_timeout, "For the other ranks, such as 10s");
  AddChoice(
      app, "--close", trainer.close,
      {{"wait", CloseMode::kWait}, {"detach", CloseMode::kDetach}, {"abort", CloseMode::kAbort}},
      "What closing does with saves in flight");
  app.add_option("--model", trainer.state.model, "A safetensors file to train");
  app.add_option("--tensor", trainer.state.tensors, "NAME:DTYPE:3x5[:split=D|:replicated|:local]");
  app.add_option("--item", trainer.state.items, "NAME=JSON");
  app.add_option("--load", trainer.load, "latest, or an id");
  app.add_option("--steps", trainer.steps, "To train");
  app.add_option("--save-every", trainer.save_every, "Steps")->check(CLI::PositiveNumber);
  AddDuration(app, "--step-time", trainer.step_time, "Of a step, such as 100ms");
  app.add_flag("--stdin", flags.from_stdin, "Do what standard input says, a command a line");
}

void PrintLine(const std::string& line) {
  // One write a line: other programs read it while we run.
  const std::string text = line + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

int Run(const Flags& flags) {
  Trainer trainer(flags.trainer, PrintLine);
  if (absl::Status opened = trainer.Open(); !opened.ok()) {
    std::cerr << "trainer: " << opened.message() << "\n";
    return trainer.exit_code();
  }
  if (!flags.from_stdin) {
    trainer.Loop();
    return trainer.exit_code();
  }
  std::string line;
  while (std::getline(std::cin, line)) {
    if (trainer.Command(line)) continue;
    // As a process that just ends: without a goodbye to the daemon.
    _exit(trainer.exit_code());
  }
  return trainer.exit_code();
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  CLI::App app("One rank that trains, saves and loads; prints JSON lines.");
  ckptd::Flags flags;
  ckptd::AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? ckptd::kExitOk : ckptd::kExitUsage;
  }
  return ckptd::Run(flags);
}
