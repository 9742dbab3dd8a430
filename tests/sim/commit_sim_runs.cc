// The runs with two at work at the same time, with faults, and with deletions.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/commit/cleanup.h"
#include "storage/format/paths.h"
#include "tests/sim/commit_sim.h"

namespace ckptd {
namespace {

// Everything in a result that a machine can see.
std::string ResultText(const ActionResult& result) {
  std::string text = absl::StrCat(static_cast<int>(result.status.code()), ",", Crc32c(result.bytes),
                                  ",", result.info.size_bytes);
  for (const DirEntry& entry : result.entries) absl::StrAppend(&text, "/", entry.name);
  return text;
}

template <typename Variant>
Machine& AsMachine(Variant& machine) {
  return std::visit([](auto& m) -> Machine& { return m; }, machine);
}

}  // namespace

// --- Deletion.

std::string CommitSim::OlderId(int index) { return absl::StrCat("old-", index); }

DeleteCheckpoint CommitSim::NewDelete(World& world, absl::string_view id) const {
  world.told.deleting.insert(std::string(id));
  return DeleteCheckpoint({.job = kJob, .checkpoint_id = std::string(id)});
}

void CommitSim::TellDeleted(World& world, const DeleteCheckpoint& deletion) {
  if (deletion.result().ok()) world.told.deleted.insert(deletion.result()->attempt);
}

void CommitSim::DeleteOlder(World& world, ActionRunner& runner, int crashes) {
  for (int i = 0; i < options_.older && !stopped(); ++i) {
    DeleteCheckpoint deletion = NewDelete(world, OlderId(i));
    Drive(world, runner, deletion, crashes, [&] { TellDeleted(world, deletion); });
    if (!deletion.result().ok()) {
      Violate(absl::StrCat("nothing went wrong, and a deletion: ",
                           deletion.result().status().message()));
    }
  }
}

void CommitSim::RunDeleteBesideDamaged() {
  CKPT_CHECK(options_.older == 1, "there is one that is whole");
  World world = NewWorld();
  if (!SaveLinear(world, kId, false, 0xda)) return;
  absl::Status lost = world.disk->Unlink(Join(CheckpointDir(kJob, kId), kRecordFile));
  CKPT_CHECK(lost.ok(), "a record can be removed");
  world.disk->Crash([](size_t) { return true; }, SimDisk::UnsyncedData::kKeep);
  oracle_.SetDamaged(kId);
  ActionRunner runner(*world.disk, nullptr);
  DeleteCheckpoint deletion = NewDelete(world, OlderId(0));
  Drive(world, runner, deletion, options_.crashes, [&] { TellDeleted(world, deletion); });
  if (!stopped() && !absl::IsFailedPrecondition(deletion.result().status())) {
    Violate("the newest that is whole is not refused");
  }
  EmptyAllTrash(world, runner, options_.crashes);
  End(std::move(world));
}

void CommitSim::EmptyAllTrash(World& world, ActionRunner& runner, int crashes) {
  absl::StatusOr<std::vector<RetiredName>> names = ListTrash(*world.disk, kJob);
  if (!names.ok()) return Violate("no list of the trash");
  for (const RetiredName& name : *names) {
    EmptyTrash machine(kJob, name);
    Drive(world, runner, machine, crashes, [] {});
    if (!stopped() && !machine.removed()) {
      Violate(absl::StrCat("trash stays: ", machine.status().message()));
    }
  }
}

// --- Two at a time.

CommitSim::PairState CommitSim::PairState::Clone() const {
  PairState copy{
      .world = world.Clone(), .machines = machines, .runners = {}, .histories = histories};
  for (size_t i = 0; i < copy.runners.size(); ++i) {
    copy.runners[i] = std::make_unique<ActionRunner>(*copy.world.disk, nullptr);
    for (const auto& [path, file] : runners[i]->open_files()) {
      copy.runners[i]->Adopt(path, copy.world.disk->Adopt(*file));
    }
  }
  return copy;
}

void CommitSim::RunPair(Pair pair) {
  World world = NewWorld();
  auto first = std::make_unique<ActionRunner>(*world.disk, nullptr);
  auto second = std::make_unique<ActionRunner>(*world.disk, nullptr);
  BeginAttempt begin = NewBegin(kId, options_.replace, 0xa);
  Drive(world, *first, begin, 0, [] {});
  CKPT_CHECK(begin.result().ok(), "the attempt begins");
  record_ = Expect(*begin.result());
  world.told.begun = true;
  bool finishing = pair == Pair::kAbortAndFinish || pair == Pair::kCommitAndFinish;
  std::optional<FinishNode> last;
  for (size_t node = 0; node < options_.nodes; ++node) {
    WriteShards(world, *second, record_, node, 0);
    FinishNode finish = NewFinish(record_, node);
    if (finishing && node + 1 == options_.nodes) {
      last.emplace(std::move(finish));
      break;
    }
    Drive(world, *second, finish, 0, [] {});
    world.told.durable_nodes |= 1u << node;
    reports_.push_back(*finish.result());
  }
  bool abort = pair == Pair::kAbortAndFinish || pair == Pair::kAbortAndRecover;
  world.told.abort_asked = abort || pair == Pair::kCommitAndAbort || pair == Pair::kCommitAndFinish;
  PairState state{.world = std::move(world), .machines = {}, .runners = {}, .histories = {}};
  state.machines[0].emplace(abort ? NewAbort(record_, "a") : NewCommit(record_, "a"));
  if (last.has_value()) {
    state.machines[1].emplace(*std::move(last));
  } else if (pair == Pair::kCommitAndDelete || pair == Pair::kReplaceAndDelete) {
    bool replaced = pair == Pair::kReplaceAndDelete;
    state.machines[1].emplace(NewDelete(state.world, replaced ? kId : OlderId(0)));
  } else if (pair == Pair::kCommitAndRecover || pair == Pair::kAbortAndRecover) {
    state.machines[1].emplace(NewRecover("b"));
  } else {
    state.machines[1].emplace(pair == Pair::kCommitAndAbort ? NewAbort(record_, "b")
                                                            : NewCommit(record_, "b"));
  }
  state.runners = {std::move(first), std::move(second)};
  others_at_work_ = true;
  StepPair(state);
}

void CommitSim::StepPair(const PairState& state) {
  if (stopped()) return;
  if (!IsNew(state.world, absl::StrCat(state.histories[0], "|", state.histories[1]))) return;
  Check(state.world);
  Crash(state.world, 0);
  bool finished = true;
  for (size_t i = 0; i < 2 && !stopped(); ++i) {
    PairState next = state.Clone();
    Machine& machine = AsMachine(*next.machines[i]);
    if (!machine.Next().has_value()) continue;
    finished = false;
    size_t depth = trail_.size();
    ActionResult result = RunAction(*next.runners[i], *machine.Next());
    trail_.back() = absl::StrCat("[", i, "] ", trail_.back(), " -> ",
                                 absl::StatusCodeToString(result.status.code()));
    next.histories[i] = absl::StrCat(
        std::hash<std::string>()(absl::StrCat(next.histories[i], "|", ResultText(result))));
    machine.Done(std::move(result));
    if (auto* decide = std::get_if<Decide>(&*next.machines[i])) {
      TellDecision(next.world, decide->decision());
      // As a daemon does then.
      bool deleting = std::holds_alternative<DeleteCheckpoint>(*state.machines[1]);
      if (deleting && options_.replace && next.world.told.committed) {
        next.machines[i].emplace(DropRetired(kJob));
      }
    } else if (auto* drop = std::get_if<DropRetired>(&*next.machines[i]);
               drop != nullptr && !machine.Next().has_value() && !drop->trashed().empty()) {
      next.machines[i].emplace(EmptyTrash(kJob, drop->trashed().front()));
    } else if (auto* deletion = std::get_if<DeleteCheckpoint>(&*next.machines[i])) {
      TellDeleted(next.world, *deletion);
    } else if (auto* recover = std::get_if<Recover>(&*next.machines[i]);
               recover != nullptr && !machine.Next().has_value()) {
      TellRecovered(next.world, *recover);
    }
    StepPair(next);
    if (!stopped()) trail_.resize(depth);
  }
  if (finished) End(state.world.Clone());
}

// --- Faults.

int CommitSim::RunFaults(const Fault& fault) {
  for (fault_at_ = 0;; ++fault_at_) {
    World world = NewWorld();
    fault_ = fault;
    actions_ = 0;
    counting_ = true;
    RunSaveWithFaults(world);
    counting_ = false;
    bool fired = actions_ > fault_at_;
    fault_.reset();
    if (!fired || stopped()) return fault_at_;
    // The daemon ends, or the power does; then a daemon starts.
    Crash(world, 0);
    End(std::move(world));
  }
}

void CommitSim::RunSaveWithFaults(World& world) {
  ActionRunner runner(*world.disk, nullptr);
  BeginAttempt begin = NewBegin(kId, options_.replace, 0xa);
  Drive(world, runner, begin, 0, [] {});
  if (!begin.result().ok()) return;
  record_ = Expect(*begin.result());
  world.told.begun = true;
  bool durable = true;
  for (size_t node = 0; node < options_.nodes && durable; ++node) {
    int before = actions_;
    WriteShards(world, runner, record_, node, 0);
    if (fault_at_ < actions_ && fault_at_ >= before) {
      durable = false;
      break;
    }
    FinishNode finish = NewFinish(record_, node);
    Drive(world, runner, finish, 0, [] {});
    durable = finish.result().ok();
    if (!durable) break;
    world.told.durable_nodes |= 1u << node;
    reports_.push_back(*finish.result());
  }
  // An error before the commit rename may lead to an abort, so recovery need not commit.
  world.told.abort_asked = true;
  Decide decide = durable ? NewCommit(record_, "a") : NewAbort(record_, "a");
  Drive(world, runner, decide, 0, [&] { TellDecision(world, decide.decision()); });
  if (!decide.decision().has_value()) return Violate("no decision");
  // After one fault, storage leaves it open only where a rename may or may not stay.
  bool is_open =
      absl::StartsWith(first_fault_, "syncdir") || absl::StartsWith(first_fault_, "rename");
  if (decide.decision()->kind == Decision::Kind::kUnknown && !fault_->lasting && !is_open) {
    Violate(absl::StrCat("unknown after one fault: ", first_fault_));
  }
  if (decide.decision()->kind == Decision::Kind::kFailed &&
      decide.decision()->failure.status.ok()) {
    Violate("failed without a reason");
  }
}

}  // namespace ckptd
