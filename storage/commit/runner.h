// ActionRunner runs the actions of machines over a disk. It blocks: it belongs on a worker thread
// of the root.
//
// Not thread-safe. Files that are still open when it is destroyed are closed.
#ifndef CKPTD_STORAGE_COMMIT_RUNNER_H_
#define CKPTD_STORAGE_COMMIT_RUNNER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "storage/commit/action.h"
#include "storage/disk/disk.h"

namespace ckptd {

class ActionRunner {
 public:
  // `disk` outlives the runner. `on_point` may be null; it is called with each point that is
  // passed.
  ActionRunner(Disk& disk, std::function<void(absl::string_view point)> on_point);

  // Hands over an open file; kSync and kClose of `path` then find it.
  void Adopt(std::string path, std::unique_ptr<File> file);

  // Runs one action. kSync and kClose of a file that is not open here are FailedPrecondition.
  ActionResult Run(const Action& action);

  // Runs the machine until it is finished.
  void RunToEnd(Machine& machine);

  // What is open now, by path.
  const std::map<std::string, std::unique_ptr<File>>& open_files() const { return open_; }

 private:
  absl::Status RunCall(const Action& action, ActionResult& result);
  absl::Status Create(const Action& action);

  Disk& disk_;
  const std::function<void(absl::string_view)> on_point_;
  std::map<std::string, std::unique_ptr<File>> open_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_RUNNER_H_
