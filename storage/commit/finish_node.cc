#include "storage/commit/finish_node.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/crc32c.h"
#include "storage/commit/check_attempt.h"
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
  temporary_path_ = Join(attempt_dir_, TemporaryName(ref_.file, ref_.node));
  if (Mutated(Mutation::kDurableBeforeSync)) {
    CreateTemporary();
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
  if (Mutated(Mutation::kDurableBeforeSync)) return CloseNext();
  Go(State::kReadExisting, ReadFileAction(fragment_path_));
}

void FinishNode::CreateTemporary() {
  Go(State::kCreateTemporary, CreateAction(temporary_path_, fragment_bytes_, file_mode_));
}

void FinishNode::Fail(absl::Status why) {
  error_ = std::move(why);
  CloseNext();
}

void FinishNode::Advance(ActionResult result) {
  absl::Status status = result.status;
  // What is not there need not be read, and what is in the way is a leftover of this node.
  if (state_ == State::kReadExisting) return OnExisting(result);
  if (state_ == State::kCreateTemporary && absl::IsAlreadyExists(status)) {
    return Go(State::kRemoveTemporary, UnlinkAction(temporary_path_));
  }
  if (!status.ok() && error_.ok()) return Fail(std::move(status));
  switch (state_) {
    case State::kSyncShard:
      ++index_;
      return SyncNextShard();
    case State::kRemoveTemporary:
      return CreateTemporary();
    case State::kCreateTemporary:
      open_.push_back(temporary_path_);
      if (Mutated(Mutation::kSkipFragmentSync) || Mutated(Mutation::kDurableBeforeSync)) {
        return RenameTemporary();
      }
      return Go(State::kSyncTemporary, After(SyncAction(temporary_path_), "fragment-synced"));
    case State::kSyncTemporary:
      return RenameTemporary();
    case State::kRenameTemporary:
      if (Mutated(Mutation::kDurableBeforeSync)) {
        result_ = ref_;
        return SyncNextShard();
      }
      return CloseNext();
    case State::kSyncFolder:
      if (error_.ok()) result_ = ref_;
      return;
    default:  // kClose
      return CloseNext();
  }
}

// A fragment that can be read may be in use by another decider, so it may only be written again as
// it is.
void FinishNode::OnExisting(const ActionResult& result) {
  if (!result.status.ok() && !absl::IsNotFound(result.status)) return Fail(result.status);
  if (result.status.ok() && result.bytes != fragment_bytes_ && DecodeFragment(result.bytes).ok()) {
    return Fail(
        absl::AlreadyExistsError(absl::StrCat(fragment_path_, " exists and says something else")));
  }
  CreateTemporary();
}

void FinishNode::RenameTemporary() {
  Go(State::kRenameTemporary, RenameAction(temporary_path_, fragment_path_));
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
