// PutBack gives an id its checkpoint again if it was retired for a successor that was never
// published.
#ifndef CKPTD_STORAGE_COMMIT_PUT_BACK_H_
#define CKPTD_STORAGE_COMMIT_PUT_BACK_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/commit/action.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps:
//  1. Is there anything at checkpoints/<id>? Then there is nothing to do.
//  2. Read the manifests of retired/<id>~*; the one of the highest attempt is the one to put back.
//  3. Rename it to checkpoints/<id>. Whoever published there meanwhile wins.
//  4. Sync checkpoints/, then retired/.
class PutBack : public Machine {
 public:
  PutBack(std::string job, std::string checkpoint_id);

  // Valid once finished.
  const absl::Status& status() const { return status_; }
  const std::optional<Manifest>& manifest() const {
    return best_;
  }  // Of the one that was put back.

 private:
  enum class State { kStat, kList, kRead, kRename, kSyncCheckpoints, kSyncRetired };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  void ReadNext();
  void OnRead(const ActionResult& result);
  void End(absl::Status status);

  std::string job_;
  std::string checkpoint_id_;
  State state_ = State::kStat;
  std::vector<std::string> names_;
  std::string best_name_;
  std::optional<Manifest> best_;
  absl::Status status_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_PUT_BACK_H_
