#include "tests/sim/commit_sim.h"

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/commit/cleanup.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

constexpr std::array<const char*, 2> kNodes = {"a", "b"};
constexpr size_t kAllSubsetsMax = 10;

const char* NameOf(Action::Kind kind) {
  constexpr const char* kNames[] = {"mkdir",  "create", "sync", "close", "syncdir", "rename",
                                    "unlink", "rmdir",  "read", "stat",  "list"};
  return kNames[static_cast<int>(kind)];
}

// The subsets of `count` pending changes that a power cut may keep: all of them if they are few,
// else those that differ from all or nothing in one place, and every beginning.
std::vector<std::vector<bool>> Subsets(size_t count) {
  std::vector<std::vector<bool>> result;
  if (count <= kAllSubsetsMax) {
    for (size_t bits = 0; bits < (size_t{1} << count); ++bits) {
      std::vector<bool>& kept = result.emplace_back(count);
      for (size_t i = 0; i < count; ++i) kept[i] = (bits >> i & 1) != 0;
    }
    return result;
  }
  for (size_t i = 0; i <= count; ++i) {
    std::vector<bool>& beginning = result.emplace_back(count);
    std::fill(beginning.begin(), beginning.begin() + i, true);
    if (i == count) break;
    result.emplace_back(count, true)[i] = false;
    result.emplace_back(count, false)[i] = true;
  }
  return result;
}

}  // namespace

CommitSim::CommitSim(const Options& options) : options_(options) {}

// --- The parts of a save.

BeginAttempt CommitSim::NewBegin(absl::string_view id, bool replace, uint64_t random) const {
  BeginAttempt::Options options;
  options.job = kJob;
  options.checkpoint_id = std::string(id);
  options.step = 10;
  options.incarnation = "one";
  options.world_size = options_.nodes * options_.ranks_per_node;
  options.coordinator_node = kNodes[0];
  options.replace = replace;
  options.random = random;
  options.folder_mode = 0777;
  options.file_mode = 0666;
  // The first of them finds that there is nothing, and makes it.
  options.folders_synced = options_.replace || options_.older > 0;
  return BeginAttempt(std::move(options));
}

FinishNode CommitSim::NewFinish(const AttemptRecord& record, size_t node) const {
  const TestNode& written = oracle_.Nodes(record.attempt)[node];
  FinishNode::Options options;
  options.attempt_dir = AttemptDir(kJob, record.attempt);
  for (const TestNode::Shard& shard : written.shards) {
    options.shards.push_back(Join(options.attempt_dir, shard.name));
  }
  options.fragment = written.fragment;
  options.file_mode = 0666;
  return FinishNode(std::move(options));
}

Decide CommitSim::NewCommit(const AttemptRecord& record, absl::string_view node) const {
  Decide::Commit commit;
  commit.record = record;
  commit.node = std::string(node);
  commit.file_mode = 0666;
  commit.durable = reports_;
  return Decide(std::move(commit));
}

Decide CommitSim::NewAbort(const AttemptRecord& record, absl::string_view node) const {
  Decide::Abort abort;
  abort.record = record;
  abort.node = std::string(node);
  abort.file_mode = 0666;
  abort.outcome.failure.status = absl::UnavailableError("heard nothing");
  abort.outcome.failure.phase = "commit";
  return Decide(std::move(abort));
}

Recover CommitSim::NewRecover(absl::string_view node) const {
  Recover::Options options;
  options.node = std::string(node);
  options.file_mode = 0666;
  return Recover(std::move(options));
}

AttemptRecord CommitSim::Expect(const AttemptRecord& record) {
  std::vector<TestNode> nodes;
  for (uint32_t node = 0; node < options_.nodes; ++node) {
    std::vector<uint32_t> ranks;
    for (uint32_t i = 0; i < options_.ranks_per_node; ++i) {
      ranks.push_back(node * options_.ranks_per_node + i);
    }
    nodes.push_back(MakeTestNode(record, kNodes[node], ranks));
  }
  oracle_.Expect(record, std::move(nodes));
  return record;
}

void CommitSim::WriteShards(World& world, ActionRunner& runner, const AttemptRecord& record,
                            size_t node, int crashes) {
  std::string folder = AttemptDir(kJob, record.attempt);
  for (const TestNode::Shard& shard : oracle_.Nodes(record.attempt)[node].shards) {
    ActionResult result =
        RunAction(runner, CreateAction(Join(folder, shard.name), shard.bytes, 0666));
    if (!result.status.ok() && !fault_.has_value()) {
      Violate(absl::StrCat("a shard cannot be written: ", result.status.message()));
    }
    Check(world);
    if (crashes > 0) Crash(world, crashes - 1);
  }
}

// --- Running.

std::string CommitSim::TextOf(const Action& action) {
  return absl::StrCat(NameOf(action.kind), " ", action.path,
                      action.target.empty() ? "" : absl::StrCat(" to ", action.target));
}

ActionResult CommitSim::RunAction(ActionRunner& runner, const Action& action) {
  trail_.push_back(TextOf(action));
  if (!counting_) return runner.Run(action);
  int now = actions_++;
  bool fails = fault_.has_value() && (now == fault_at_ || (fault_->lasting && now > fault_at_));
  if (!fails) return runner.Run(action);
  trail_.back() += " FAILS";
  if (now == fault_at_) first_fault_ = TextOf(action);
  ActionResult result;
  // A file that is closed is closed, whatever close() says.
  if (fault_->executed || action.kind == Action::Kind::kClose) result = runner.Run(action);
  result.status = ErrnoStatus(fault_->error, TextOf(action));
  return result;
}

void CommitSim::Drive(World& world, ActionRunner& runner, Machine& machine, int crashes,
                      const std::function<void()>& tell) {
  while (machine.Next().has_value() && !stopped()) {
    machine.Done(RunAction(runner, *machine.Next()));
    tell();
    Check(world);
    if (crashes > 0) Crash(world, crashes - 1);
  }
}

void CommitSim::TellDecision(World& world, const std::optional<Decision>& decision) {
  if (!decision.has_value()) return;
  if (decision->kind == Decision::Kind::kCommitted) world.told.committed = true;
  if (decision->kind == Decision::Kind::kFailed) world.told.failed = true;
}

void CommitSim::TellRecovered(World& world, const Recover& recover) {
  if (!recover.status().ok()) Violate(absl::StrCat("recovery: ", recover.status().message()));
  for (const absl::Status& problem : recover.problems()) {
    Violate(absl::StrCat("recovery could not tidy up: ", problem.message()));
  }
  for (const Outcome& outcome : recover.failed()) {
    if (outcome.record.attempt == record_.attempt) world.told.failed = true;
  }
  TellListed(world);
}

// What a daemon lists, somebody has seen. If others are at work it makes sure that what it saw
// stays.
void CommitSim::TellListed(World& world) {
  absl::StatusOr<std::vector<CheckpointInfo>> list = ListCheckpoints(*world.disk, kJob);
  if (others_at_work_ && list.ok()) {
    absl::Status synced = SyncListed(*world.disk, kJob);
    if (!synced.ok()) Violate(absl::StrCat("sync of the list: ", synced.message()));
  }
  if (!list.ok()) return;
  if (IsListed(*list, record_.attempt)) world.told.committed = true;
}

// --- The beginning of every run.

void CommitSim::PlantForeign(SimDisk& disk) {
  std::string job = kJob;
  for (const std::string& folder :
       {std::string(".ckptd"), std::string("foreign"), job, CheckpointsDir(job), AttemptsDir(job),
        FailedDir(job), RetiredDir(job), TrashDir(job)}) {
    disk.MakeDir(folder, 0777).IgnoreError();
    disk.MakeDir(Join(folder, "not-ours"), 0777).IgnoreError();
    for (const std::string& name : {std::string("notes.txt"), std::string("not-ours/data.bin")}) {
      oracle_.AddForeign(Join(folder, name), absl::StrCat("content of ", folder, " ", name));
    }
  }
  for (const auto& [path, content] : oracle_.foreign()) {
    absl::StatusOr<std::unique_ptr<File>> file = disk.Create(path, 0666);
    CKPT_CHECK(file.ok(), "a foreign file can be planted");
    WriteAll(**file, 0, std::as_bytes(std::span(content))).IgnoreError();
  }
  disk.Crash([](size_t) { return true; }, SimDisk::UnsyncedData::kKeep);
}

// A whole save in which nothing goes wrong.
std::optional<AttemptRecord> CommitSim::SaveLinear(World& world, absl::string_view id, bool replace,
                                                   uint64_t random) {
  ActionRunner runner(*world.disk, nullptr);
  BeginAttempt begin = NewBegin(id, replace, random);
  runner.RunToEnd(begin);
  if (!begin.result().ok()) {
    Violate(absl::StrCat("a save cannot begin: ", begin.result().status().message()));
    return std::nullopt;
  }
  AttemptRecord record = Expect(*begin.result());
  std::vector<FragmentRef> reports;
  for (size_t node = 0; node < options_.nodes; ++node) {
    WriteShards(world, runner, record, node, 0);
    FinishNode finish = NewFinish(record, node);
    runner.RunToEnd(finish);
    if (!finish.result().ok()) {
      Violate("a node cannot finish");
      return std::nullopt;
    }
    reports.push_back(*finish.result());
  }
  Decide::Commit commit;
  commit.record = record;
  commit.node = kNodes[0];
  commit.file_mode = 0666;
  commit.durable = reports;
  Decide decide(std::move(commit));
  runner.RunToEnd(decide);
  if (decide.decision()->kind != Decision::Kind::kCommitted) {
    Violate(absl::StrCat("a save does not commit: ", decide.decision()->failure.status.message()));
    return std::nullopt;
  }
  return record;
}

CommitSim::World CommitSim::NewWorld() {
  SimDisk::Options options;
  options.rename_sync = SimDisk::RenameSync::kBoth;
  World world{std::make_unique<SimDisk>(options), {}};
  oracle_ = Oracle();
  reports_.clear();
  record_ = AttemptRecord();
  trail_.clear();
  if (options_.foreign) PlantForeign(*world.disk);
  if (options_.replace) {
    if (std::optional<AttemptRecord> old = SaveLinear(world, kId, false, 0x01d)) {
      oracle_.SetOld(old->attempt);
    }
  }
  for (int i = 0; i < options_.older; ++i) {
    std::optional<AttemptRecord> old = SaveLinear(world, OlderId(i), false, 0x100 + i);
    if (old) oracle_.AddOlder(old->attempt);
  }
  if (options_.replace || options_.older > 0) {
    world.disk->Crash([](size_t) { return true; }, SimDisk::UnsyncedData::kKeep);
  }
  return world;
}

void CommitSim::RunLife() {
  World world = NewWorld();
  ActionRunner runner(*world.disk, nullptr);
  int crashes = options_.crashes;
  BeginAttempt begin = NewBegin(kId, options_.replace, 0xa);
  Drive(world, runner, begin, crashes, [&] {
    if (!begin.result().ok() || world.told.begun) return;
    record_ = Expect(*begin.result());
    world.told.begun = true;
  });
  for (size_t node = 0; node < options_.nodes && !stopped(); ++node) {
    WriteShards(world, runner, record_, node, crashes);
    FinishNode finish = NewFinish(record_, node);
    Drive(world, runner, finish, crashes, [&] {
      if (!finish.result().ok() || (world.told.durable_nodes >> node & 1) != 0) return;
      world.told.durable_nodes |= 1u << node;
      reports_.push_back(*finish.result());
    });
  }
  if (stopped()) return;
  if (options_.abort) world.told.abort_asked = true;
  Decide decide = options_.abort ? NewAbort(record_, "a") : NewCommit(record_, "a");
  Drive(world, runner, decide, crashes, [&] { TellDecision(world, decide.decision()); });
  if (stopped()) return;
  if (!(options_.abort ? world.told.failed : world.told.committed)) {
    Violate("nothing went wrong, and the decision is another");
  }
  // What the daemon does afterwards.
  if (options_.abort) {
    FinishFailed finish(FinishFailed::Options{
        .job = kJob, .attempt = record_.attempt, .otherwise = {}, .file_mode = 0666});
    Drive(world, runner, finish, crashes, [] {});
  }
  if (options_.replace) {
    DropRetired drop(kJob);
    Drive(world, runner, drop, crashes, [] {});
  }
  if (!options_.abort) DeleteOlder(world, runner, crashes);
  EmptyAllTrash(world, runner, crashes);
  End(std::move(world));
}

// --- Crashes and what comes after them.

bool CommitSim::IsNew(const World& world, absl::string_view kind) {
  std::string key =
      absl::StrCat(kind, world.told.Text(), ToString(record_.attempt), world.disk->Fingerprint());
  return seen_.insert(std::hash<std::string>()(key)).second;
}

void CommitSim::Crash(const World& world, int crashes) {
  if (stopped() || !IsNew(world, absl::StrCat("crash", crashes))) return;
  size_t depth = trail_.size();
  trail_.push_back("THE DAEMONS DIE");
  AfterCrash(world.Clone(), crashes);
  std::vector<SimDisk::UnsyncedData> kinds = {SimDisk::UnsyncedData::kKeep};
  if (world.disk->HasUnsyncedData()) {
    kinds.push_back(SimDisk::UnsyncedData::kLose);
    kinds.push_back(SimDisk::UnsyncedData::kTear);
  }
  for (const std::vector<bool>& kept : Subsets(world.disk->Unsynced().size())) {
    for (SimDisk::UnsyncedData data : kinds) {
      if (stopped()) return;
      trail_.resize(depth);
      trail_.push_back(absl::StrCat("POWER CUT, kept ", absl::StrJoin(kept, ""), " data ",
                                    static_cast<int>(data)));
      World left = world.Clone();
      left.disk->Crash([&](size_t i) { return kept[i]; }, data);
      AfterCrash(std::move(left), crashes);
    }
  }
  if (!stopped()) trail_.resize(depth);
}

void CommitSim::AfterCrash(World world, int crashes) {
  if (!IsNew(world, absl::StrCat("after", crashes))) return;
  Check(world);
  LifeOfRecovery(world.Clone(), "a", crashes);
  if (options_.nodes > 1) LifeOfRecovery(world.Clone(), "b", crashes);
  LifeOfAbort(std::move(world), crashes);
}

void CommitSim::LifeOfRecovery(World world, absl::string_view node, int crashes) {
  if (stopped()) return;
  size_t depth = trail_.size();
  trail_.push_back(absl::StrCat("RECOVERY BY ", node));
  RecoverAndSettle(world, node, crashes);
  End(std::move(world));
  if (!stopped()) trail_.resize(depth);
}

void CommitSim::LifeOfAbort(World world, int crashes) {
  if (stopped() || !world.told.begun) return;
  size_t depth = trail_.size();
  trail_.push_back("A PARTICIPANT ABORTS");
  ActionRunner runner(*world.disk, nullptr);
  world.told.abort_asked = true;
  Decide decide = NewAbort(record_, "b");
  Drive(world, runner, decide, crashes, [&] { TellDecision(world, decide.decision()); });
  End(std::move(world));
  if (!stopped()) trail_.resize(depth);
}

void CommitSim::RecoverAndSettle(World& world, absl::string_view node, int crashes) {
  ActionRunner runner(*world.disk, nullptr);
  Recover recover = NewRecover(node);
  Drive(world, runner, recover, crashes, [] {});
  if (stopped()) return;
  TellRecovered(world, recover);
  Check(world);
  bool all_durable = world.told.durable_nodes == (1u << options_.nodes) - 1;
  if (all_durable && !world.told.abort_asked && !world.told.committed) {
    Violate("durable on every node, and recovery does not commit");
  }
  if (crashes > 0) Crash(world, crashes - 1);
  // The clients do not come back.
  for (const AttemptRecord& record : recover.waiting()) {
    if (record.attempt == record_.attempt) world.told.abort_asked = true;
    Decide decide = NewAbort(record, node);
    Drive(world, runner, decide, crashes, [&] {
      if (record.attempt == record_.attempt) TellDecision(world, decide.decision());
    });
  }
  EmptyAllTrash(world, runner, crashes);
}

// All faults are over: a daemon starts, then another, then a save.
void CommitSim::End(World world) {
  if (stopped() || !IsNew(world, "end")) return;
  ++schedules_;
  size_t depth = trail_.size();
  trail_.push_back("THE END");
  RecoverAndSettle(world, "a", 0);
  RecoverAndSettle(world, "a", 0);
  if (stopped()) return;
  auto settled = [&] {
    std::unique_ptr<SimDisk> disk = world.disk->Clone();
    disk->Crash([](size_t) { return true; }, SimDisk::UnsyncedData::kKeep);
    return disk->Fingerprint();
  };
  std::string before = settled();
  RecoverAndSettle(world, "a", 0);
  if (settled() != before) Violate("recovering once more changes something");
  if (std::string wrong = oracle_.CheckSettled(*world.disk, record_); !wrong.empty()) {
    return Violate(wrong);
  }
  CheckNextSave(world);
  if (!stopped()) trail_.resize(depth);
}

// --- The oracle.

void CommitSim::Violate(absl::string_view what) {
  constexpr size_t kTrailMax = 60;
  size_t first = trail_.size() > kTrailMax ? trail_.size() - kTrailMax : 0;
  std::vector<std::string> last(trail_.begin() + first, trail_.end());
  violations_.push_back(absl::StrCat(what, "\n    ", absl::StrJoin(last, "\n    ")));
}

void CommitSim::Check(const World& world) {
  if (stopped() || !IsNew(world, "check")) return;
  std::string wrong = oracle_.CheckAnyTime(*world.disk, world.told, record_);
  if (!wrong.empty()) Violate(wrong);
}

void CommitSim::CheckNextSave(World& world) {
  SaveLinear(world, "next", false, 0xe);
  absl::StatusOr<CheckpointInfo> latest = Latest(*world.disk, kJob);
  if (!stopped() && (!latest.ok() || latest->id != "next")) {
    Violate("the next save is not the latest");
  }
  oracle_.Forget("next");
}

}  // namespace ckptd
