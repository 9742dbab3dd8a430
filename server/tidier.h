// Tidier does what nobody waits for: after a commit it takes the replaced checkpoint and those
// beyond the newest keep_last into the trash, and warns when a root runs full; and it owns the
// trash.
//
// Owned by the control loop; file calls run on the root's readers.
#ifndef CKPTD_SERVER_TIDIER_H_
#define CKPTD_SERVER_TIDIER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/control_loop.h"
#include "server/log.h"
#include "server/root.h"
#include "server/trash.h"
#include "storage/format/paths.h"

namespace ckptd {

class Tidier {
 public:
  struct Commit {
    std::string job;
    uint32_t keep_last = 0;  // 0: all.
    bool replace = false;    // There may be a predecessor of the same id.
    uint64_t bytes = 0;      // Of the new checkpoint.
  };

  // `loop` and `logger` outlive this. `in_use` as in Trash::Options.
  Tidier(ControlLoop& loop, Logger& logger, absl::Duration trash_grace,
         std::function<bool(const Root&, const std::string&, const AttemptName&)> in_use);

  // A root has recovered: its trash is watched.
  void RootStarted(const std::shared_ptr<Root>& root) { trash_.Watch(root); }

  // A checkpoint was committed there, on stable storage. Never called before that: what goes, goes
  // because there is something newer. On a root that is unhealthy nothing goes.
  void Committed(const std::shared_ptr<Root>& root, Commit commit);

  Trash& trash() { return trash_; }

 private:
  struct Tidied;

  static Tidied TidyOnWorker(Root& root, const Commit& commit);
  void OnTidied(const std::shared_ptr<Root>& root, const Commit& commit, const Tidied& tidied);
  void WatchSpace(Root& root);
  void ForgetAllBut(const Root& root, const std::set<std::string>& jobs);

  ControlLoop& loop_;
  Logger& logger_;
  std::map<std::pair<std::string, std::string>, Commit> last_;  // By root and job.
  Trash trash_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_TIDIER_H_
