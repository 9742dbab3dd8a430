// CheckAttempt looks at the folder of an attempt: is everything there that a manifest may vouch
// for?
#ifndef CKPTD_STORAGE_COMMIT_CHECK_ATTEMPT_H_
#define CKPTD_STORAGE_COMMIT_CHECK_ATTEMPT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/commit/action.h"
#include "storage/format/records.h"

namespace ckptd {

// Steps:
//  1. List the folder.
//  2. Read every fragment; together they name each rank once, and all are of this attempt.
//  3. Look at every shard they name: a file of the recorded size.
//  4. Nothing else there ends in .safetensors, except shards of ours that an earlier life left
//  behind.
class CheckAttempt : public Machine {
 public:
  struct Options {
    AttemptRecord record;
    std::string folder;
    std::string node;                  // This daemon's: its own temporaries are left over.
    std::vector<FragmentRef> durable;  // What nodes have reported; each must be there exactly so.
  };

  explicit CheckAttempt(Options options);

  // Valid once finished. OK if complete. NotFound names the ranks or the file that is missing;
  // DataLoss what is damaged; FailedPrecondition what is foreign; else the error of a call.
  const absl::Status& status() const { return status_; }

  // Valid if OK: the fragments, and the names in the folder that no fragment names but that we have
  // made.
  const std::vector<FragmentFile>& fragments() const { return fragments_; }
  const std::vector<std::string>& leftovers() const { return leftovers_; }

 private:
  enum class State { kList, kReadFragment, kStatShard };

  void Advance(ActionResult result) override;
  void OnListed(const ActionResult& result);
  absl::Status OnFragment(const ActionResult& result);
  absl::Status OnShard(const ActionResult& result);
  absl::Status CheckRanks() const;
  absl::Status CheckReports() const;
  absl::Status SortTheRest();
  void ReadNextFragment();
  void StatNextShard();
  void End(absl::Status status);

  Options options_;
  State state_ = State::kList;
  std::vector<DirEntry> entries_;
  std::vector<std::string> names_;  // Of the fragments' files.
  std::vector<StoredFile> shards_;
  size_t index_ = 0;
  std::vector<FragmentFile> fragments_;
  std::vector<std::string> leftovers_;
  absl::Status status_ = absl::UnknownError("not finished");
};

// "MANIFEST.pb.<node>.tmp": the temporary that `node` alone writes for a file. No node works twice
// on one attempt at a time, so a temporary of its name is its own leftover.
std::string TemporaryName(absl::string_view file_name, absl::string_view node);
bool IsTemporaryName(absl::string_view name);

// Whether we make files of this name in the folder of an attempt or checkpoint.
bool IsOwnFile(absl::string_view name);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_COMMIT_CHECK_ATTEMPT_H_
