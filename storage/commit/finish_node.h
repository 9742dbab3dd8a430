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
//  1. Sync each shard, which is open and has no transfer in flight
//                                                            point: shard-synced, after each
//  2. Read the fragment, in case an earlier life of this node has left one. One that can be read is
//     kept: if it says something else, AlreadyExists.
//  3. Write the fragment under a temporary name, sync it                  point: fragment-synced
//  4. Rename it.
//  5. Close every file: nothing there is opened for writing again.
//  6. Sync the folder                                                     point: folder-synced
//
// So wherever a fragment is seen, its own bytes and those of its shards are on the disk. An error
// ends it, after every file is closed; no sync is tried twice.
//
// A node that finds its own fragment after a restart makes it durable by this machine too, with
// that fragment and no shards.
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
  enum class State {
    kSyncShard,
    kReadExisting,
    kRemoveTemporary,
    kCreateTemporary,
    kSyncTemporary,
    kRenameTemporary,
    kClose,
    kSyncFolder,
  };

  void Advance(ActionResult result) override;
  void Go(State state, Action action);
  void SyncNextShard();
  void OnExisting(const ActionResult& result);
  void CreateTemporary();
  void RenameTemporary();
  void CloseNext();
  void Fail(absl::Status why);

  std::string attempt_dir_;
  std::vector<std::string> shards_;
  std::vector<std::string> open_;  // Still to be closed.
  std::string fragment_path_;
  std::string temporary_path_;
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
