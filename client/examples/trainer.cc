#include "client/examples/trainer.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/exit_code.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

// The loop's patience with outcomes and with a checkpoint in flight; nobody waits in between.
constexpr absl::Duration kOutcomeTimeout = absl::Minutes(15);
constexpr absl::Duration kLoadTimeout = absl::Minutes(30);

absl::Status BadCommand(absl::string_view how) {
  return absl::InvalidArgumentError(absl::StrCat("the command is: ", how));
}

// Cuts the last word off; ids may hold spaces, what follows them does not.
std::string CutLastWord(std::string& text) {
  const size_t space = text.rfind(' ');
  std::string word = space == text.npos ? text : text.substr(space + 1);
  text.resize(space == text.npos ? 0 : space);
  return word;
}

absl::StatusOr<uint64_t> ParseStep(const std::string& text) {
  uint64_t step;
  if (absl::SimpleAtoi(text, &step)) return step;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no step"));
}

double NowSeconds() { return absl::ToDoubleSeconds(SystemClock().Monotonic()); }

}  // namespace

Trainer::Trainer(TrainerOptions options, std::function<void(const std::string&)> print)
    : options_(std::move(options)), print_(std::move(print)) {}

Trainer::~Trainer() { session_ = nullptr; }  // No event after the members are gone.

void Trainer::Print(const JsonObject& object) {
  std::lock_guard lock(mutex_);
  print_(ToJsonLine(object));
}

void Trainer::NoteFailure(const absl::Status& status) {
  if (status.ok()) return;
  std::lock_guard lock(mutex_);
  if (exit_code_ == 0) exit_code_ = ExitCodeOf(status.code());
}

int Trainer::exit_code() const {
  std::lock_guard lock(mutex_);
  return exit_code_;
}

void Trainer::PrintEvent(const std::string& event, JsonValue id, JsonValue step, JsonValue seconds,
                         const absl::Status& status) {
  Print({{"event", event},
         {"id", std::move(id)},
         {"step", std::move(step)},
         {"seconds", std::move(seconds)},
         {"code", std::string(CodeName(status.code()))},
         {"message", std::string(status.message())}});
}

absl::Status Trainer::Open() {
  SessionOptions options = options_.session;
  options.on_connection = [this](bool lost, const std::string& why) {
    PrintEvent(lost ? "daemon_lost" : "daemon_back", {}, {}, {},
               lost ? absl::UnavailableError(why) : absl::OkStatus());
  };
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(options);
  if (session.ok()) {
    session_ = *std::move(session);
    TrainerState::Options state = options_.state;
    state.rank = session_->rank();
    state.world_size = session_->world_size();
    absl::StatusOr<TrainerState> made = TrainerState::Create(state);
    if (made.ok()) {
      state_ = *std::move(made);
      state_->Fill(0);
      return absl::OkStatus();
    }
    session = made.status();
  }
  NoteFailure(session.status());
  return session.status();
}

void Trainer::Do(const std::string& verb, const std::string& rest) {
  const double begun = NowSeconds();
  Answer answer = Execute(verb, rest);
  NoteFailure(answer.status);
  JsonObject line = {{"cmd", verb},
                     {"ok", answer.status.ok()},
                     {"seconds", NowSeconds() - begun},
                     {"code", std::string(CodeName(answer.status.code()))},
                     {"message", std::string(answer.status.message())}};
  line.insert(line.end(), answer.fields.begin(), answer.fields.end());
  Print(line);
}

bool Trainer::Command(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string verb = line.substr(0, space);
  if (verb.empty()) return true;
  Do(verb, space == line.npos ? "" : line.substr(space + 1));
  return !exiting_;
}

Trainer::Answer Trainer::Execute(const std::string& verb, const std::string& rest) {
  if (verb == "fill") return Fill(rest);
  if (verb == "prewarm") return Prewarm();
  if (verb == "save") return SaveCommand(rest);
  if (verb == "lock") return {session_->Lock()};
  if (verb == "wait") return Wait(rest);
  if (verb == "cancel") return Cancel(rest);
  if (verb == "load") return LoadCommand(rest);
  if (verb == "check") return Check(rest);
  if (verb == "latest") return Latest();
  if (verb == "scribble") return Scribble();
  if (verb == "fork") return Fork(rest);
  if (verb == "close") return Close();
  if (verb == "exit") {
    int code = 0;
    if (!rest.empty() && !absl::SimpleAtoi(rest, &code)) return {BadCommand("exit N")};
    std::lock_guard lock(mutex_);
    exit_code_ = code;
    exiting_ = true;
    return {absl::OkStatus()};
  }
  return {absl::InvalidArgumentError(absl::StrCat("there is no command \"", verb, "\""))};
}

Trainer::Answer Trainer::Fill(const std::string& text) {
  absl::StatusOr<uint64_t> step = ParseStep(text);
  if (!step.ok()) return {step.status()};
  state_->Fill(*step);
  step_ = *step;
  return {absl::OkStatus()};
}

Trainer::Answer Trainer::Prewarm() { return {session_->Prewarm(state_->MakeState(step_))}; }

Trainer::Answer Trainer::SaveCommand(const std::string& rest) {
  std::string id = rest;
  absl::StatusOr<uint64_t> step = ParseStep(CutLastWord(id));
  if (!step.ok() || id.empty()) return {BadCommand("save ID S")};
  SaveOptions save;
  save.deferred = options_.deferred;
  const double begun = NowSeconds();
  save.on_state = [this, id, step = *step, begun](SaveState state, const FailureInfo& failure) {
    if (state < SaveState::kStaged) return;
    PrintEvent(std::string(SaveStateName(state)), id, step, NowSeconds() - begun, failure.status);
  };
  absl::StatusOr<SaveHandle> handle =
      session_->AsyncSave(id, static_cast<int64_t>(*step), state_->MakeState(*step), save);
  if (!handle.ok()) {
    saves_[id] = {std::nullopt, handle.status()};
    return {handle.status(), {{"request", {}}, {"bytes", {}}, {"blocked_s", NowSeconds() - begun}}};
  }
  saves_[id] = {*handle, absl::OkStatus()};
  const SaveReport report = handle->report();
  return {absl::OkStatus(),
          {{"request", handle->request_id()},
           {"bytes", report.bytes},
           {"blocked_s", report.blocked_s}}};
}

Trainer::Answer Trainer::Wait(const std::string& rest) {
  std::string id = rest;
  const std::string timeout_text = CutLastWord(id);
  const std::string state_text = CutLastWord(id);
  absl::StatusOr<absl::Duration> timeout = ParseDuration(timeout_text);
  SaveState state = SaveState::kQueued;
  for (SaveState s : {SaveState::kStaged, SaveState::kDurable, SaveState::kCommitted}) {
    if (state_text == SaveStateName(s)) state = s;
  }
  if (!timeout.ok() || state == SaveState::kQueued) {
    return {BadCommand("wait ID staged|durable|committed DURATION")};
  }
  auto save = saves_.find(id);
  if (save == saves_.end()) return {absl::NotFoundError(absl::StrCat("no save of ", id))};
  if (!save->second.handle) return {save->second.refused};
  return {save->second.handle->Wait(state, *timeout)};
}

Trainer::Answer Trainer::Cancel(const std::string& id) {
  auto save = saves_.find(id);
  if (save == saves_.end() || !save->second.handle) {
    return {absl::NotFoundError(absl::StrCat("no save of ", id))};
  }
  save->second.handle->Cancel();
  return {absl::OkStatus()};
}

Trainer::Answer Trainer::LoadCommand(const std::string& rest) {
  std::string id = rest;
  LoadOptions load;
  absl::StatusOr<absl::Duration> wait = ParseDuration(CutLastWord(id));
  if (!wait.ok() || id.empty()) return {BadCommand("load ID|latest DURATION")};
  load.wait = *wait;
  // Ranks that get the same commands agree on what is the latest, each time anew.
  load.restore_id = absl::StrCat("load-", ++loads_);
  JsonObject none = {{"id", {}},         {"step", {}},    {"memory_bytes", {}},
                     {"disk_bytes", {}}, {"missing", {}}, {"extra", {}}};
  absl::StatusOr<LoadHandle> handle =
      session_->Load(id == "latest" ? "" : id, state_->MakeTargets(), load);
  if (!handle.ok()) return {handle.status(), none};
  absl::StatusOr<LoadReport> report = handle->Wait(kLoadTimeout);
  if (!report.ok()) return {report.status(), none};
  step_ = static_cast<uint64_t>(report->checkpoint.step);
  loaded_items_ = report->items;
  return {absl::OkStatus(),
          {{"id", report->checkpoint.id},
           {"step", report->checkpoint.step},
           {"memory_bytes", report->memory_bytes},
           {"disk_bytes", report->disk_bytes},
           {"missing", report->missing},
           {"extra", report->extra}}};
}

Trainer::Answer Trainer::Check(const std::string& text) {
  absl::StatusOr<uint64_t> step = ParseStep(text);
  if (!step.ok()) return {step.status(), {{"equal", {}}, {"tensor", {}}, {"offset", {}}}};
  if (std::optional<TrainerState::Difference> wrong = state_->Check(*step)) {
    return {absl::DataLossError(absl::StrCat("tensor ", wrong->tensor, " is wrong at byte ",
                                             wrong->offset_bytes, " of this rank's part")),
            {{"equal", false}, {"tensor", wrong->tensor}, {"offset", wrong->offset_bytes}}};
  }
  if (!loaded_items_.empty()) {
    if (std::optional<std::string> wrong = state_->CheckItems(*step, loaded_items_)) {
      return {absl::DataLossError(absl::StrCat("item ", *wrong, " is wrong")),
              {{"equal", false}, {"tensor", *wrong}, {"offset", {}}}};
    }
  }
  return {absl::OkStatus(), {{"equal", true}, {"tensor", {}}, {"offset", {}}}};
}

Trainer::Answer Trainer::Latest() {
  absl::StatusOr<std::optional<CheckpointInfo>> latest = session_->Latest();
  if (!latest.ok()) return {latest.status(), {{"id", {}}, {"step", {}}}};
  if (!*latest) {
    return {absl::NotFoundError("there is no checkpoint"), {{"id", {}}, {"step", {}}}};
  }
  return {absl::OkStatus(), {{"id", (*latest)->id}, {"step", (*latest)->step}}};
}

Trainer::Answer Trainer::Scribble() {
  const std::span<std::byte> block = session_->LastSealedBlock();
  if (block.empty()) {
    return {absl::FailedPreconditionError("no save in flight has sealed a block")};
  }
  block[block.size() / 2] ^= std::byte{0x40};
  return {absl::OkStatus()};
}

// Like a program that forks without anybody's handlers: the child keeps every descriptor open.
Trainer::Answer Trainer::Fork(const std::string& text) {
  absl::StatusOr<absl::Duration> duration = ParseDuration(text);
  if (!duration.ok()) return {BadCommand("fork DURATION")};
  const pid_t child = _Fork();
  if (child < 0) return {ErrnoStatus(errno, "fork"), {{"pid", {}}}};
  if (child == 0) {
    usleep(static_cast<useconds_t>(absl::ToInt64Microseconds(*duration)));
    _exit(0);
  }
  return {absl::OkStatus(), {{"pid", static_cast<int64_t>(child)}}};
}

Trainer::Answer Trainer::Close() { return {session_->Close(options_.close)}; }

void Trainer::Loop() {
  uint64_t first = 1;
  if (!options_.load.empty()) {
    Do("load", absl::StrCat(options_.load, " ", ckptd::FormatDuration(kOutcomeTimeout)));
    if (exit_code() != 0) return;
    Do("check", absl::StrCat(step_));
    if (exit_code() != 0) return;
    first = step_ + 1;
  }
  for (uint64_t step = first; step < first + options_.steps; ++step) {
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(options_.step_time));
    if (options_.deferred) Do("lock", "");
    state_->Fill(step);
    step_ = step;
    if (step % options_.save_every == 0) Do("save", absl::StrCat("step-", step, " ", step));
  }
  if (options_.close == CloseMode::kWait) {
    for (auto& [id, save] : saves_) {
      if (save.handle) NoteFailure(save.handle->Wait(SaveState::kCommitted, kOutcomeTimeout));
    }
  }
  Do("close", "");
}

}  // namespace ckptd
