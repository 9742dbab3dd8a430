#include "server/trash.h"

#include <algorithm>
#include <utility>

#include "storage/catalog/catalog.h"
#include "storage/commit/cleanup.h"
#include "storage/commit/runner.h"

namespace ckptd {
namespace {

// What its files take, as far as that can be seen.
uint64_t FolderBytes(Disk& disk, const std::string& path) {
  uint64_t bytes = 0;
  auto entries = disk.List(path);
  for (size_t i = 0; entries.ok() && i < entries->size(); ++i) {
    auto info = disk.Stat(Join(path, (*entries)[i].name));
    if (info.ok() && info->kind == FileKind::kFile) bytes += info->size_bytes;
  }
  return bytes;
}

bool MayHaveCheckpoints(Disk& disk, const std::string& job) {
  auto entries = disk.List(CheckpointsDir(job));
  if (!entries.ok()) return !absl::IsNotFound(entries.status());
  return std::any_of(entries->begin(), entries->end(), [](const DirEntry& entry) {
    return entry.kind == FileKind::kFolder && DecodeName(entry.name);
  });
}

}  // namespace

Trash::Trash(ControlLoop& loop, Logger& logger, Options options)
    : loop_(loop), logger_(logger), options_(std::move(options)) {}

void Trash::Watch(std::shared_ptr<Root> root) {
  Look(root, [this, root] { loop_.After(kLookEvery, [this, root] { Watch(root); }); });
}

// A root that hangs is looked at again when it has answered: one look at a time.
void Trash::Look(std::shared_ptr<Root> root, std::function<void()> then) {
  root->readers().Post([this, root, then = std::move(then)]() mutable {
    std::vector<std::pair<std::string, RetiredName>> found;
    std::set<std::string> live;
    auto jobs = ListJobFolders(root->disk());
    for (size_t i = 0; jobs.ok() && i < jobs->size(); ++i) {
      if (MayHaveCheckpoints(root->disk(), (*jobs)[i])) live.insert((*jobs)[i]);
      auto names = ListTrash(root->disk(), (*jobs)[i]);
      for (size_t j = 0; names.ok() && j < names->size(); ++j)
        found.emplace_back((*jobs)[i], (*names)[j]);
    }
    auto space = root->disk().Space();
    loop_.Post([this, root, found = std::move(found), live = std::move(live), listed = jobs.ok(),
                space, then = std::move(then)] {
      if (listed && options_.on_jobs) options_.on_jobs(*root, live);
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

// A save that would not fit anyway ends no grace.
void Trash::MakeRoom(std::shared_ptr<Root> root, uint64_t bytes, std::function<void()> done) {
  Look(root, [this, root, bytes, done = std::move(done)] {
    Waiter waiter{.root = root, .bytes = bytes, .keys = MayGo(*root), .done = done};
    if (waiter.keys.empty() || !root->healthy()) return done();
    root->readers().Post([this, waiter = std::move(waiter)]() mutable {
      uint64_t trash_bytes = 0;
      for (const auto& [label, job, id, attempt] : waiter.keys) {
        trash_bytes += FolderBytes(waiter.root->disk(), TrashedCheckpointDir(job, id, attempt));
      }
      loop_.Post([this, waiter = std::move(waiter), trash_bytes]() mutable {
        OnMeasured(std::move(waiter), trash_bytes);
      });
    });
  });
}

std::vector<Trash::Key> Trash::MayGo(const Root& root) const {
  std::vector<Key> keys;
  for (const auto& [key, folder] : folders_) {
    const auto& [label, job, id, attempt] = key;
    if (folder.root.get() != &root || folder.stuck) continue;
    if (folder.sweeping || !options_.in_use(root, job, attempt)) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    auto age = [&](const Key& key) {
      return std::make_pair(folders_.at(key).due, std::get<AttemptName>(key));
    };
    return age(a) > age(b);
  });
  return keys;
}

void Trash::OnMeasured(Waiter waiter, uint64_t trash_bytes) {
  uint64_t free_bytes = waiter.root->free_bytes().value_or(0);
  if (waiter.bytes > free_bytes && waiter.bytes - free_bytes > trash_bytes) return waiter.done();
  if (!TakeNext(waiter)) return waiter.done();
  waiters_.push_back(std::move(waiter));
  Sweep();
}

bool Trash::TakeNext(Waiter& waiter) {
  const std::shared_ptr<Root>& root = waiter.root;
  while (!waiter.keys.empty() && root->healthy() && root->free_bytes().value_or(0) < waiter.bytes) {
    waiter.open = std::move(waiter.keys.back());
    waiter.keys.pop_back();
    auto found = folders_.find(waiter.open);
    const auto& [label, job, id, attempt] = waiter.open;
    if (found == folders_.end()) continue;
    if (!found->second.sweeping && options_.in_use(*root, job, attempt)) continue;
    found->second.due = now();
    return true;
  }
  return false;
}

void Trash::Sweep() {
  std::vector<Key> left;
  for (auto& [key, folder] : folders_) {
    const auto& [label, job, id, attempt] = key;
    Root& root = *folder.root;
    if (folder.sweeping || folder.due > now()) continue;
    // On a root that is not, nothing is known to stay as it is seen.
    if (!root.healthy() || options_.in_use(root, job, attempt)) {
      left.push_back(key);
      continue;
    }
    if (sweeps_[&root] < kSweepsAtOnce) Start(key, folder);
  }
  bool awaited = false;
  for (const Key& key : left) awaited |= Settle(key);
  if (awaited) loop_.Post([this] { Sweep(); });
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

bool Trash::Settle(const Key& key) {
  std::vector<std::function<void()>> done;
  bool awaited = false;
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    auto next = std::next(waiter);
    if (waiter->open == key) {
      awaited = true;
      if (!TakeNext(*waiter)) {
        done.push_back(std::move(waiter->done));
        waiters_.erase(waiter);
      }
    }
    waiter = next;
  }
  for (const std::function<void()>& each : done) each();
  return awaited;
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
