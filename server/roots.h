// Roots are the storage folders the daemon was started with. Each is started on a thread of its
// own: opened (folder, lock, probes), then recovered, so that one that hangs keeps neither the
// control loop nor the other roots waiting.
//
// A root is usable from the moment its start has ended well; until then, and for ever if it has
// not, Find() says why. Nothing is read from it before.
//
// Threads: any, except where a method says otherwise.
#ifndef CKPTD_SERVER_ROOTS_H_
#define CKPTD_SERVER_ROOTS_H_

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/control_loop.h"
#include "server/root.h"
#include "storage/format/records.h"

namespace ckptd {

// What the start of a root has come to.
struct RootStart {
  std::string label;
  absl::Status opened;         // If not OK there is nothing else.
  std::shared_ptr<Root> root;  // Null if it could not be opened.
  absl::Status recovered;      // If not OK its lists cannot be trusted: nothing is served from it.
  std::vector<Manifest> committed;
  std::vector<AttemptRecord> waiting;
  std::vector<std::pair<AttemptRecord, Failure>> unknown;
  std::vector<Outcome> failures;  // Of all jobs, those kept on disk, oldest first.
};

class Roots {
 public:
  // How long the daemon waits for its roots before it serves without those that are not there yet.
  // Less than the time after which clients give up a save (10 s): those of the other roots come
  // back in time.
  static constexpr absl::Duration kStartPatience = absl::Seconds(5);

  struct Source {
    std::string label;
    std::string path;
    std::function<absl::StatusOr<std::shared_ptr<Root>>()> open;  // Blocking.
  };
  struct Options {
    std::string node;
    absl::Duration patience = kStartPatience;
    std::function<void(absl::string_view)> on_point;  // May be null.
    // On the loop: once per root, just before it becomes usable or is given up.
    std::function<void(const RootStart& start)> on_started;
    // From the thread of Start(): this root is late.
    std::function<void(const std::string& label, const std::string& reason)> on_late;
  };
  struct State {
    std::string label;
    std::string path;
    std::shared_ptr<Root> root;  // Null until it is opened and its start has ended.
    std::string reason;          // Why it is not usable; empty if it is.
  };

  // The first source is the default root. `loop` outlives this.
  Roots(ControlLoop& loop, std::vector<Source> sources, Options options);
  ~Roots();  // Stop().

  // Starts all and returns when each has ended, or after the patience: late ones go on, and become
  // usable whenever they are done. The first error of opening one, if it came in time. Not on the
  // loop; once. What was found is told in any case after the wait, so that the time-outs it starts
  // begin when the daemon begins to serve.
  absl::Status Start();
  bool AnyStarting() const;  // Is one still at it?

  // Ends the workers of all roots. Waits for starts that have not ended: one that hangs holds it
  // for ever. The loop has stopped.
  void Stop();

  // "" is the first. NotFound, naming those there are; Unavailable, naming root and reason.
  absl::StatusOr<std::shared_ptr<Root>> Find(const std::string& label) const;
  // Its name, whether it is usable or not. NotFound as above.
  absl::StatusOr<std::string> Label(const std::string& label) const;
  std::vector<std::shared_ptr<Root>> usable() const;
  std::vector<State> states() const;

  // On the loop: is that root neither usable nor given up?
  bool IsStarting(const std::string& label) const;
  // On the loop: calls `then` there once the start of that root, which IsStarting(), has ended.
  void WhenStarted(const std::string& label, absl::AnyInvocable<void() &&> then);

 private:
  struct Slot {
    Source source;
    State state;
    std::optional<RootStart> result;  // Until it is told.
    bool arrived = false;             // There is, or was, a result.
    bool told = false;
    std::vector<absl::AnyInvocable<void() &&>> waiting;  // The loop's own.
    std::thread thread;
  };

  void Run(Slot& slot);
  void Tell(Slot& slot);
  Slot* FindSlot(const std::string& label) const;
  absl::Status NoSuchRoot(const std::string& label) const;

  ControlLoop& loop_;
  const Options options_;
  std::vector<std::unique_ptr<Slot>> slots_;

  mutable std::mutex mutex_;  // Guards the next, and of each slot state, result, arrived and told.
  bool serving_ = false;      // Start() has stopped waiting.
  std::condition_variable arrived_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ROOTS_H_
