// Action is one blocking file call that a protocol machine asks for, Machine what asks.
//
// A machine does no I/O and reads no clock: it hands out one action after the other and is told
// each result. So the same code runs over a real disk on a worker (runner.h) and over a simulated
// one, action by action, with a crash or another machine in between. Machines are values: a copy
// goes its own way.
#ifndef CKPTD_STORAGE_COMMIT_ACTION_H_
#define CKPTD_STORAGE_COMMIT_ACTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/disk/disk.h"

namespace ckptd {

struct Action {
  enum class Kind {
    kMakeDir,  // `path` with `mode`.
    kCreate,   // A new file with `bytes`, in `mode`; stays open under `path`.
    kSync,     // Of the open file `path`.
    kClose,    // Of the open file `path`.
    kSyncDir,
    kRename,  // `path` to `target`.
    kUnlink,
    kRemoveDir,
    kReadFile,  // The whole of a small file, into ActionResult::bytes.
    kStat,      // Into ActionResult::info.
    kList,      // Into ActionResult::entries.
  };

  Kind kind = Kind::kStat;
  std::string path = {};
  std::string target = {};
  std::string bytes = {};
  uint32_t mode = 0;
  // The named points of the protocol that lie just before and, if the action succeeds, just after
  // it; null if none.
  const char* point_before = nullptr;
  const char* point_after = nullptr;
};

struct ActionResult {
  absl::Status status;
  std::string bytes;
  std::vector<DirEntry> entries;
  FileInfo info;
};

class Machine {
 public:
  virtual ~Machine() = default;

  // The action to run now; nullopt if the machine is finished. Asking changes nothing.
  const std::optional<Action>& Next() const { return next_; }

  // The result of the action that Next() gave.
  void Done(ActionResult result) {
    next_.reset();
    Advance(std::move(result));
  }

 protected:
  Machine() = default;
  Machine(const Machine&) = default;
  Machine(Machine&&) = default;
  Machine& operator=(const Machine&) = default;
  Machine& operator=(Machine&&) = default;

  void Do(Action action) { next_ = std::move(action); }

  // Asks for what `part` asks for. False if that is finished.
  bool DoNextOf(const Machine& part) {
    if (!part.Next().has_value()) return false;
    next_ = part.Next();
    return true;
  }

 private:
  // Takes the result of the last action, and asks for the next one by Do() or, finished, does not.
  virtual void Advance(ActionResult result) = 0;

  std::optional<Action> next_;
};

// The actions by name. `mode` as in open(2).
Action MakeDirAction(std::string path, uint32_t mode);
Action CreateAction(std::string path, std::string bytes, uint32_t mode);
Action SyncAction(std::string path);
Action CloseAction(std::string path);
Action SyncDirAction(std::string path);
Action RenameAction(std::string path, std::string target);
Action UnlinkAction(std::string path);
Action RemoveDirAction(std::string path);
Action ReadFileAction(std::string path);
Action StatAction(std::string path);
Action ListAction(std::string path);

// The same action with a point before or after it.
Action Before(const char* point, Action action);
Action After(Action action, const char* point);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_ACTION_H_
