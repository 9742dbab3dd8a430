#include "server/tidier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/retention.h"
#include "storage/base/units.h"
#include "storage/catalog/catalog.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/delete_checkpoint.h"
#include "storage/commit/runner.h"

namespace ckptd {

// What a worker has done.
struct Tidier::Tidied {
  std::vector<Published> deleted;
  std::vector<RetiredName> trashed;
  std::vector<absl::Status> problems;
  absl::StatusOr<DiskSpace> space = absl::UnknownError("");
};

Tidier::Tidier(ControlLoop& loop, Logger& logger, absl::Duration trash_grace,
               std::function<bool(const Root&, const std::string&, const AttemptName&)> in_use)
    : loop_(loop),
      logger_(logger),
      trash_(loop, logger,
             {.grace = trash_grace,
              .in_use = std::move(in_use),
              .on_space = [this](Root& root) { WatchSpace(root); },
              .on_jobs = [this](Root& root,
                                const std::set<std::string>& jobs) { ForgetAllBut(root, jobs); }}) {
}

void Tidier::Committed(const std::shared_ptr<Root>& root, Commit commit) {
  if (!root->healthy()) return;
  last_[{root->label(), commit.job}] = commit;
  root->readers().Post([this, root, commit = std::move(commit)] {
    loop_.Post([this, root, commit, tidied = TidyOnWorker(*root, commit)] {
      OnTidied(root, commit, tidied);
    });
  });
}

Tidier::Tidied Tidier::TidyOnWorker(Root& root, const Commit& commit) {
  Tidied tidied;
  ActionRunner runner(root.disk(), nullptr);
  if (commit.replace && root.healthy()) {
    DropRetired drop(commit.job);
    runner.RunToEnd(drop);
    if (!drop.status().ok()) tidied.problems.push_back(drop.status());
    tidied.trashed = drop.trashed();
  }
  std::vector<Published> published;
  if (commit.keep_last > 0) {
    auto listed = ListCheckpoints(root.disk(), commit.job);
    if (!listed.ok()) tidied.problems.push_back(listed.status());
    // A damaged one neither counts nor goes: somebody has to look at it.
    for (size_t i = 0; listed.ok() && i < listed->size(); ++i) {
      const CheckpointInfo& info = (*listed)[i];
      bool damaged = !info.status.ok() || (info.verdict && !info.verdict->ok);
      if (!damaged) published.push_back({info.id, info.manifest.attempt});
    }
  }
  for (const Published& old : BeyondNewest(std::move(published), commit.keep_last)) {
    if (!root.healthy()) break;  // What is newer may not stay as it is seen.
    DeleteCheckpoint machine({.job = commit.job,
                              .checkpoint_id = old.id,
                              .allow_newest = false,
                              .expected = old.attempt});
    runner.RunToEnd(machine);
    tidied.trashed.insert(tidied.trashed.end(), machine.trashed().begin(), machine.trashed().end());
    const absl::Status& status = machine.result().status();
    // Gone or replaced meanwhile: another has seen to it.
    bool over = absl::IsNotFound(status) || absl::IsAborted(status);
    if (status.ok()) tidied.deleted.push_back(old);
    if (!status.ok() && !over) tidied.problems.push_back(status);
  }
  tidied.space = root.disk().Space();
  return tidied;
}

void Tidier::OnTidied(const std::shared_ptr<Root>& root, const Commit& commit,
                      const Tidied& tidied) {
  for (const Published& old : tidied.deleted) {
    logger_.Info("checkpoint.deleted", {{"job", commit.job},
                                        {"id", old.id},
                                        {"attempt", ToString(old.attempt)},
                                        {"root", root->label()},
                                        {"why", absl::StrCat("keep-last ", commit.keep_last)}});
  }
  for (const absl::Status& problem : tidied.problems) {
    logger_.Warning(
        "retention.failed",
        {{"job", commit.job}, {"root", root->label()}, {"error", std::string(problem.message())}});
  }
  if (tidied.space.ok()) {
    root->SetFreeBytes(tidied.space->free_bytes);
    WatchSpace(*root);
  }
  trash_.Moved(root, commit.job, tidied.trashed);
}

// A job that is over fills nothing. (One that commits meanwhile is known again by its next commit.)
void Tidier::ForgetAllBut(const Root& root, const std::set<std::string>& jobs) {
  std::erase_if(last_, [&](const auto& entry) {
    return entry.first.first == root.label() && !jobs.contains(entry.first.second);
  });
}

// Jobs that keep everything fill the disk one day: said once while there is still time.
void Tidier::WatchSpace(Root& root) {
  if (!root.free_bytes()) return;
  std::string warning;
  for (const auto& [key, commit] : last_) {
    if (key.first != root.label() || commit.keep_last > 0) continue;
    if (!IsRunningFull(*root.free_bytes(), commit.bytes)) continue;
    warning = absl::StrCat(HumanSize(*root.free_bytes()),
                           " are free, less than two checkpoints of job \"", commit.job, "\" (",
                           HumanSize(commit.bytes), " each), and no limit is set: see --keep-last");
    break;
  }
  if (!warning.empty() && root.space_warning().empty()) {
    logger_.Warning("root.filling", {{"root", root.label()}, {"why", warning}});
  }
  root.SetSpaceWarning(std::move(warning));
}

}  // namespace ckptd
