#include "server/roots.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/commit/recover.h"
#include "storage/commit/runner.h"

namespace ckptd {
namespace {

constexpr char kOpening[] = "it is still being opened";
constexpr char kRecovering[] = "recovery is still running";

// What a person may want to know about attempts that failed before.
absl::Status ReadFailures(Disk& disk, std::vector<Outcome>& outcomes) {
  ASSIGN_OR_RETURN(std::vector<std::string> jobs, ListJobs(disk));
  for (const std::string& job : jobs) {
    auto failures = ListFailed(disk, job);
    if (!failures.ok()) continue;
    for (Outcome& outcome : *failures) outcomes.push_back(std::move(outcome));
  }
  return absl::OkStatus();
}

RootStart StartRoot(const Roots::Source& source, const Roots::Options& options, absl::Time now,
                    const std::function<void()>& on_opened) {
  RootStart start;
  start.label = source.label;
  auto point = [&](absl::string_view name) {
    if (options.on_point) options.on_point(name);
  };
  absl::StatusOr<std::shared_ptr<Root>> root = source.open();
  start.opened = root.status();
  if (!root.ok()) return start;
  start.root = *std::move(root);
  on_opened();
  Disk& disk = start.root->disk();
  Recover machine(
      {.node = options.node, .file_mode = 0666 & ~022u, .root_label = source.label, .now = now});
  point("settle-begun");
  ActionRunner(disk, options.on_point).RunToEnd(machine);
  point("settle-done");
  start.committed = machine.committed();
  start.waiting = machine.waiting();
  start.unknown = machine.unknown();
  start.recovered = machine.status();
  if (start.recovered.ok()) start.recovered = ReadFailures(disk, start.failures);
  // Nobody else sees this root yet.
  if (auto space = disk.Space(); space.ok()) start.root->SetFreeBytes(space->free_bytes);
  return start;
}

}  // namespace

Roots::Roots(ControlLoop& loop, std::vector<Source> sources, Options options)
    : loop_(loop), options_(std::move(options)) {
  for (Source& source : sources) {
    auto slot = std::make_unique<Slot>();
    slot->state = {source.label, source.path, nullptr, kOpening};
    slot->source = std::move(source);
    slots_.push_back(std::move(slot));
  }
}

Roots::~Roots() { Stop(); }

absl::Status Roots::Start() {
  for (const auto& slot : slots_) slot->thread = std::thread([this, &slot = *slot] { Run(slot); });
  std::vector<Slot*> here;
  std::vector<State> late;
  absl::Status opened;
  {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, absl::ToChronoNanoseconds(options_.patience), [this] {
      return std::all_of(slots_.begin(), slots_.end(),
                         [](const auto& slot) { return slot->arrived; });
    });
    serving_ = true;
    for (const auto& slot : slots_) {
      if (slot->arrived) {
        here.push_back(slot.get());
        opened.Update(slot->result->opened);
      } else {
        late.push_back(slot->state);
      }
    }
  }
  if (!opened.ok()) return opened;
  for (const State& state : late) options_.on_late(state.label, state.reason);
  std::promise<void> told;
  loop_.Post([this, &here, &told] {
    for (Slot* slot : here) Tell(*slot);
    told.set_value();
  });
  told.get_future().wait();
  return absl::OkStatus();
}

// On the root's thread.
void Roots::Run(Slot& slot) {
  RootStart start = StartRoot(slot.source, options_, loop_.clock().Wall(), [this, &slot] {
    std::lock_guard lock(mutex_);
    slot.state.reason = kRecovering;
  });
  std::lock_guard lock(mutex_);
  slot.result = std::move(start);
  slot.arrived = true;
  arrived_.notify_all();
  if (serving_) loop_.Post([this, &slot] { Tell(slot); });
}

// On the loop.
void Roots::Tell(Slot& slot) {
  RootStart start;
  {
    std::lock_guard lock(mutex_);
    start = *std::move(slot.result);
    slot.result.reset();
  }
  options_.on_started(start);
  {
    std::lock_guard lock(mutex_);
    slot.state.root = start.root;
    slot.state.reason.clear();
    if (!start.opened.ok()) slot.state.reason = std::string(start.opened.message());
    if (!start.recovered.ok()) {
      slot.state.reason = absl::StrCat("recovery: ", start.recovered.message());
    }
    slot.told = true;
  }
  for (auto& then : std::exchange(slot.waiting, {})) std::move(then)();
}

bool Roots::AnyStarting() const {
  std::lock_guard lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& slot) { return slot->thread.joinable() && !slot->arrived; });
}

void Roots::Stop() {
  for (const auto& slot : slots_) {
    if (slot->thread.joinable()) slot->thread.join();
  }
  for (const auto& slot : slots_) {
    slot->waiting.clear();
    if (slot->state.root == nullptr) continue;
    slot->state.root->writers().Stop();
    slot->state.root->readers().Stop();
  }
}

Roots::Slot* Roots::FindSlot(const std::string& label) const {
  for (const auto& slot : slots_) {
    if (label.empty() || slot->source.label == label) return slot.get();
  }
  return nullptr;
}

absl::Status Roots::NoSuchRoot(const std::string& label) const {
  return absl::NotFoundError(absl::StrCat(
      "this daemon has no root \"", label,
      "\"; there are: ", absl::StrJoin(slots_, ", ", [](std::string* out, const auto& slot) {
        absl::StrAppend(out, slot->source.label);
      })));
}

absl::StatusOr<std::shared_ptr<Root>> Roots::Find(const std::string& label) const {
  const Slot* slot = FindSlot(label);
  if (slot == nullptr) return NoSuchRoot(label);
  std::lock_guard lock(mutex_);
  if (slot->state.reason.empty()) return slot->state.root;
  return absl::UnavailableError(absl::StrCat("root \"", slot->source.label, "\" (",
                                             slot->source.path, "): ", slot->state.reason));
}

absl::StatusOr<std::string> Roots::Label(const std::string& label) const {
  const Slot* slot = FindSlot(label);
  if (slot == nullptr) return NoSuchRoot(label);
  return slot->source.label;
}

std::vector<std::shared_ptr<Root>> Roots::usable() const {
  std::vector<std::shared_ptr<Root>> roots;
  for (const State& state : states()) {
    if (state.reason.empty()) roots.push_back(state.root);
  }
  return roots;
}

std::vector<Roots::State> Roots::states() const {
  std::lock_guard lock(mutex_);
  std::vector<State> states;
  for (const auto& slot : slots_) states.push_back(slot->state);
  return states;
}

bool Roots::IsStarting(const std::string& label) const {
  const Slot* slot = FindSlot(label);
  std::lock_guard lock(mutex_);
  return slot != nullptr && !slot->told;
}

void Roots::WhenStarted(const std::string& label, absl::AnyInvocable<void() &&> then) {
  FindSlot(label)->waiting.push_back(std::move(then));
}

}  // namespace ckptd
