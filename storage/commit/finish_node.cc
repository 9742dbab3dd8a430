#include "storage/commit/finish_node.h"

#include <utility>

#include "storage/base/crc32c.h"
#include "storage/commit/mutation.h"
#include "storage/format/paths.h"

namespace ckptd {

FinishNode::FinishNode(Options options)
    : attempt_dir_(std::move(options.attempt_dir)),
      shards_(std::move(options.shards)),
      open_(shards_),
      fragment_bytes_(EncodeFragment(options.fragment)),
      file_mode_(options.file_mode) {
  ref_ = {.node = options.fragment.node,
          .file = FragmentFileName(options.fragment.node),
          .bytes = fragment_bytes_.size(),
          .crc32c = Crc32c(fragment_bytes_)};
  fragment_path_ = Join(attempt_dir_, ref_.file);
  if (Mutated(Mutation::kDurableBeforeSync)) {
    CreateFragment();
  } else {
    SyncNextShard();
  }
}

void FinishNode::Go(State state, Action action) {
  state_ = state;
  Do(std::move(action));
}

void FinishNode::SyncNextShard() {
  if (index_ < shards_.size() && !Mutated(Mutation::kSkipShardSync)) {
    return Go(State::kSyncShard, After(SyncAction(shards_[index_]), "shard-synced"));
  }
  if (Mutated(Mutation::kDurableBeforeSync)) {
    return Go(State::kSyncFragment, After(SyncAction(fragment_path_), "fragment-synced"));
  }
  CreateFragment();
}

void FinishNode::CreateFragment() {
  Go(State::kCreateFragment, CreateAction(fragment_path_, fragment_bytes_, file_mode_));
}

void FinishNode::Advance(ActionResult result) {
  // The first error ends it, but every file is closed before.
  if (!result.status.ok() && error_.ok()) {
    error_ = result.status;
    return CloseNext();
  }
  switch (state_) {
    case State::kSyncShard:
      ++index_;
      return SyncNextShard();
    case State::kCreateFragment:
      open_.push_back(fragment_path_);
      if (Mutated(Mutation::kDurableBeforeSync)) {
        result_ = ref_;
        return SyncNextShard();
      }
      if (Mutated(Mutation::kSkipFragmentSync)) return CloseNext();
      return Go(State::kSyncFragment, After(SyncAction(fragment_path_), "fragment-synced"));
    case State::kSyncFragment:
    case State::kClose:
      return CloseNext();
    case State::kSyncFolder:
      result_ = ref_;
      return;
  }
}

void FinishNode::CloseNext() {
  if (!open_.empty()) {
    std::string path = std::move(open_.back());
    open_.pop_back();
    return Go(State::kClose, CloseAction(std::move(path)));
  }
  if (!error_.ok()) {
    result_ = error_;
  } else if (Mutated(Mutation::kSkipFolderSync)) {
    result_ = ref_;
  } else {
    Go(State::kSyncFolder, After(SyncDirAction(attempt_dir_), "folder-synced"));
  }
}

}  // namespace ckptd
