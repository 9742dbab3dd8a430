#include "server/trash.h"

#include <algorithm>
#include <utility>

#include "storage/catalog/catalog.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/runner.h"

namespace ckptd {

Trash::Trash(ControlLoop& loop, Logger& logger, Options options)
    : loop_(loop), logger_(logger), options_(std::move(options)) {}

void Trash::Watch(std::shared_ptr<Root> root) {
  Look(root, [this, root] { loop_.After(kLookEvery, [this, root] { Watch(root); }); });
}

// A root that hangs is looked at again when it has answered: one look at a time.
void Trash::Look(std::shared_ptr<Root> root, std::function<void()> then) {
  root->readers().Post([this, root, then = std::move(then)]() mutable {
    std::vector<std::pair<std::string, RetiredName>> found;
    auto jobs = ListJobFolders(root->disk());
    for (size_t i = 0; jobs.ok() && i < jobs->size(); ++i) {
      auto names = ListTrash(root->disk(), (*jobs)[i]);
      for (size_t j = 0; names.ok() && j < names->size(); ++j)
        found.emplace_back((*jobs)[i], (*names)[j]);
    }
    auto space = root->disk().Space();
    loop_.Post([this, root, found = std::move(found), space, then = std::move(then)] {
      if (space.ok()) {
        root->SetFreeBytes(space->free_bytes);
        if (options_.on_space) options_.on_space(*root);
      }
      for (const auto& [job, name] : found) Add(root, job, name);
      Sweep();
      then();
    });
  });
}

void Trash::Add(const std::shared_ptr<Root>& root, const std::string& job,
                const RetiredName& name) {
  Key key(root->label(), job, name.id, name.attempt);
  folders_.try_emplace(std::move(key), Folder{.root = root, .due = now() + options_.grace});
}

void Trash::Moved(const std::shared_ptr<Root>& root, const std::string& job,
                  const std::vector<RetiredName>& names) {
  for (const RetiredName& name : names) Add(root, job, name);
  Sweep();
}

void Trash::MakeRoom(std::shared_ptr<Root> root, std::function<void()> done) {
  Look(root, [this, root, done = std::move(done)] {
    Waiter waiter{{}, done};
    for (auto& [key, folder] : folders_) {
      const auto& [label, job, id, attempt] = key;
      if (folder.root != root || folder.stuck || !root->healthy()) continue;
      if (!folder.sweeping && options_.in_use(*root, job, attempt)) continue;
      folder.due = now();
      waiter.open.insert(key);
    }
    if (waiter.open.empty()) return done();
    waiters_.push_back(std::move(waiter));
    Sweep();
  });
}

void Trash::Sweep() {
  for (auto& [key, folder] : folders_) {
    const auto& [label, job, id, attempt] = key;
    Root& root = *folder.root;
    if (folder.sweeping || folder.due > now()) continue;
    if (!root.healthy()) {  // Nothing there is known to stay as it is seen.
      Settle(key);
      continue;
    }
    if (sweeps_[&root] >= kSweepsAtOnce || options_.in_use(root, job, attempt)) continue;
    Start(key, folder);
  }
  WakeAtNextDue();
}

void Trash::Start(const Key& key, Folder& folder) {
  folder.sweeping = true;
  ++sweeps_[folder.root.get()];
  folder.root->readers().Post([this, key, root = folder.root] {
    const auto& [label, job, id, attempt] = key;
    EmptyTrash machine(job, RetiredName{id, attempt});
    ActionRunner(root->disk(), nullptr).RunToEnd(machine);
    auto space = root->disk().Space();
    loop_.Post([this, key, root, space, status = machine.status(), removed = machine.removed()] {
      if (space.ok()) root->SetFreeBytes(space->free_bytes);
      if (space.ok() && options_.on_space) options_.on_space(*root);
      OnSwept(key, status, removed);
    });
  });
}

void Trash::OnSwept(const Key& key, const absl::Status& status, bool removed) {
  auto found = folders_.find(key);
  Folder& folder = found->second;
  const auto& [label, job, id, attempt] = key;
  --sweeps_[folder.root.get()];
  if (removed) {
    logger_.Info("trash.removed",
                 {{"job", job}, {"id", id}, {"attempt", ToString(attempt)}, {"root", label}});
    folders_.erase(found);
  } else {
    if (!std::exchange(folder.stuck, true)) {
      logger_.Warning("trash.left", {{"job", job},
                                     {"id", id},
                                     {"attempt", ToString(attempt)},
                                     {"root", label},
                                     {"why", status.ok() ? "files in it are not ours"
                                                         : std::string(status.message())}});
    }
    folder.sweeping = false;
    folder.due = now() + kLookEvery;
  }
  Settle(key);
  Sweep();
}

void Trash::Settle(const Key& key) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    auto next = std::next(waiter);
    if (waiter->open.erase(key) > 0 && waiter->open.empty()) {
      std::function<void()> done = std::move(waiter->done);
      waiters_.erase(waiter);
      done();
    }
    waiter = next;
  }
}

// What is due now waits for a sweep or a load to end, each of which comes back here.
void Trash::WakeAtNextDue() {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [key, folder] : folders_) {
    if (!folder.sweeping && folder.due > now()) next = std::min(next, folder.due);
  }
  loop_.Cancel(std::exchange(timer_, ControlLoop::TimerId::kNone));
  if (next == absl::InfiniteDuration()) return;
  timer_ = loop_.After(next - now(), [this] {
    timer_ = ControlLoop::TimerId::kNone;
    Sweep();
  });
}

}  // namespace ckptd
