// FinishNode makes durable what one node wrote for an attempt.
#ifndef CKPTD_STORAGE_COMMIT_FINISH_NODE_H_
#define CKPTD_STORAGE_COMMIT_FINISH_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/commit/action.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps:
//  1. Sync each shard, which is open and has no transfer in flight                  point:
//  shard-synced, after each
//  2. Create the fragment and sync it                                               point:
//  fragment-synced
//  3. Close every file: nothing there is opened for writing again.
//  4. Sync the folder                                                               point:
//  folder-synced
//
// The fragment is created only after every shard is synced, so wherever it is seen whole, the
// shards are safe. An error ends it, after every file is closed; no sync is tried twice.
class FinishNode : public Machine {
 public:
  struct Options {
    std::string attempt_dir;
    std::vector<std::string> shards;  // Paths, open in the runner.
    Fragment fragment;
    uint32_t file_mode = 0;
  };

  explicit FinishNode(Options options);

  // The node may say durable from the moment this is OK. An error while unfinished means "not yet".
  const absl::StatusOr<FragmentRef>& result() const { return result_; }

 private:
  enum class State { kSyncShard, kCreateFragment, kSyncFragment, kClose, kSyncFolder };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  void SyncNextShard();
  void CreateFragment();
  void CloseNext();
  void SyncFolder();

  std::string attempt_dir_;
  std::vector<std::string> shards_;
  std::vector<std::string> open_;  // Still to be closed.
  std::string fragment_path_;
  std::string fragment_bytes_;
  FragmentRef ref_;
  uint32_t file_mode_ = 0;
  State state_ = State::kSyncShard;
  size_t index_ = 0;
  absl::Status error_;
  absl::StatusOr<FragmentRef> result_ = absl::UnknownError("not finished");
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_FINISH_NODE_H_
