// FailedCleanUp gives back what a failed attempt still holds on its root: its shards, and the
// oldest of the failed attempts. Nobody waits for it.
#ifndef CKPTD_SERVER_FAILED_CLEANUP_H_
#define CKPTD_SERVER_FAILED_CLEANUP_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/control_loop.h"
#include "server/root.h"
#include "storage/commit/cleanup.h"

namespace ckptd {

// What does not work is tried again after kFirstPause, then after twice as long each time, at most
// kPauseMax; after kTriesMax tries, about an hour, and on a root that is unhealthy, it is left to
// the next start.
//
// On the control loop, by shared_ptr; file calls run on the root's readers.
class FailedCleanUp : public std::enable_shared_from_this<FailedCleanUp> {
 public:
  static constexpr absl::Duration kFirstPause = absl::Seconds(5);
  static constexpr absl::Duration kPauseMax = absl::Minutes(10);
  static constexpr int kTriesMax = 13;

  // `loop` outlives this. `on_trouble` is called at the first error, and no more; may be null.
  FailedCleanUp(ControlLoop& loop, std::shared_ptr<Root> root, FinishFailed::Options options,
                std::function<void(const absl::Status&)> on_trouble);

  void Try();
  int tries() const { return tries_; }  // That have ended.

 private:
  void OnTried(const absl::Status& status);

  ControlLoop& loop_;
  const std::shared_ptr<Root> root_;
  const FinishFailed::Options options_;
  const std::function<void(const absl::Status&)> on_trouble_;
  int tries_ = 0;
  absl::Duration pause_ = kFirstPause;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_FAILED_CLEANUP_H_
