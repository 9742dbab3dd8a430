// Trash gives back the space of what was deleted or replaced: the folders in trash/ of each root.
//
// A folder's bytes go when no load of this daemon reads it and it has lain there for the grace
// since this daemon saw it; a restarted daemon sees everything anew. What else lies there, and
// foreign files inside, stay. File calls run on the root's readers, at most kSweepsAtOnce per
// root, so neither a save nor a load waits for them.
//
// Owned by the control loop.
#ifndef CKPTD_SERVER_TRASH_H_
#define CKPTD_SERVER_TRASH_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/control_loop.h"
#include "server/log.h"
#include "server/root.h"
#include "storage/format/paths.h"

namespace ckptd {

class Trash {
 public:
  static constexpr int kSweepsAtOnce = 2;
  // How often a root's trash is looked at for what others have put there, and what could not be
  // removed is tried again.
  static constexpr absl::Duration kLookEvery = absl::Minutes(10);

  struct Options {
    absl::Duration grace;
    // Does a load of this daemon read that attempt? On the loop.
    std::function<bool(const Root& root, const std::string& job, const AttemptName& attempt)>
        in_use;
    std::function<void(Root& root)> on_space;  // The root's free space was looked at anew.
    // The jobs of the root that have checkpoints, at each look.
    std::function<void(Root& root, const std::set<std::string>& jobs)> on_jobs = nullptr;
  };

  // `loop` and `logger` outlive this.
  Trash(ControlLoop& loop, Logger& logger, Options options);

  // From now on, forever.
  void Watch(std::shared_ptr<Root> root);

  // These were moved there just now.
  void Moved(const std::shared_ptr<Root>& root, const std::string& job,
             const std::vector<RetiredName>& names);

  // Removes what no load of this daemon reads, whatever its age, the oldest first, until that many
  // bytes are free; then `done`. Nothing if all of it would not suffice, or on a root that is
  // unhealthy.
  void MakeRoom(std::shared_ptr<Root> root, uint64_t bytes, std::function<void()> done);

  // Removes what is due. Called by the timers of this class, and when a load has ended.
  void Sweep();

  size_t size() const { return folders_.size(); }  // Known, and not gone.

 private:
  using Key = std::tuple<std::string, std::string, std::string, AttemptName>;  // Root, job, id, …
  struct Folder {
    std::shared_ptr<Root> root;
    absl::Duration due;  // Monotonic.
    bool sweeping = false;
    bool stuck = false;  // It could not be removed, and that was logged.
  };
  struct Waiter {
    std::shared_ptr<Root> root;
    uint64_t bytes = 0;     // That must be free.
    std::vector<Key> keys;  // That may go, the oldest last.
    std::function<void()> done;
    Key open = {};  // The one that is waited for.
  };

  void Look(std::shared_ptr<Root> root, std::function<void()> then);
  void Add(const std::shared_ptr<Root>& root, const std::string& job, const RetiredName& name);
  void Start(const Key& key, Folder& folder);
  std::vector<Key> MayGo(const Root& root) const;  // The oldest last.
  void OnMeasured(Waiter waiter, uint64_t trash_bytes);
  bool TakeNext(Waiter& waiter);  // False: it has ended.
  // Nobody need wait for that folder any more. True if somebody did.
  bool Settle(const Key& key);
  void OnSwept(const Key& key, const absl::Status& status, bool removed);
  void WakeAtNextDue();
  absl::Duration now() const { return loop_.clock().Monotonic(); }

  ControlLoop& loop_;
  Logger& logger_;
  const Options options_;
  std::map<Key, Folder> folders_;
  std::map<const Root*, int> sweeps_;  // Running now.
  std::list<Waiter> waiters_;
  ControlLoop::TimerId timer_ = ControlLoop::TimerId::kNone;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_TRASH_H_
