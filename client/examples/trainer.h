// Trainer: one rank that trains (in a known way), saves and loads, and says on stdout what happens,
// one JSON object a line.
#ifndef CKPTD_CLIENT_EXAMPLES_TRAINER_H_
#define CKPTD_CLIENT_EXAMPLES_TRAINER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/options.h"
#include "client/cpp/session.h"
#include "client/examples/trainer_json.h"
#include "client/examples/trainer_state.h"

namespace ckptd {

struct TrainerOptions {
  SessionOptions session;
  TrainerState::Options state;
  bool deferred = false;
  CloseMode close = CloseMode::kWait;
  std::string load;  // "latest", an id, or empty.
  uint64_t steps = 0;
  uint64_t save_every = 1;
  absl::Duration step_time;
};

// Commands come from one thread; events may come from the session's threads meanwhile.
class Trainer {
 public:
  // `print` gets a line at a time, without its line break; never two at once.
  Trainer(TrainerOptions options, std::function<void(const std::string&)> print);
  ~Trainer();

  absl::Status Open();

  // Steps and saves as the options say, beginning behind what was loaded; waits for the saves'
  // outcomes and closes.
  void Loop();

  // One command line; the answer is printed. False once the trainer shall end (exit).
  bool Command(const std::string& line);

  // That of the first operation that failed; 0 if none did.
  int exit_code() const;

 private:
  struct Answer {
    absl::Status status;
    JsonObject fields = {};
  };
  // A save that began, or that was refused.
  struct Save {
    std::optional<SaveHandle> handle;
    absl::Status refused;
  };

  Answer Execute(const std::string& verb, const std::string& rest);
  Answer Fill(const std::string& step);
  Answer Prewarm();
  Answer SaveCommand(const std::string& rest);
  Answer Wait(const std::string& rest);
  Answer Cancel(const std::string& id);
  Answer LoadCommand(const std::string& rest);
  Answer Check(const std::string& step);
  Answer Latest();
  Answer Scribble();
  Answer Fork(const std::string& duration);
  Answer Close();

  void Do(const std::string& verb, const std::string& rest);
  void PrintEvent(const std::string& event, JsonValue id, JsonValue step, JsonValue seconds,
                  const absl::Status& status);
  void Print(const JsonObject& object);
  void NoteFailure(const absl::Status& status);

  const TrainerOptions options_;
  const std::function<void(const std::string&)> print_;
  std::optional<TrainerState> state_;
  std::unique_ptr<Session> session_;
  uint64_t step_ = 0;                  // That the tensors have.
  std::map<std::string, Save> saves_;  // The last one of each id.
  std::vector<ItemValue> loaded_items_;
  uint64_t loads_ = 0;
  bool exiting_ = false;

  mutable std::mutex mutex_;
  int exit_code_ = 0;  // Guarded by mutex_; printing is, too.
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_EXAMPLES_TRAINER_H_
