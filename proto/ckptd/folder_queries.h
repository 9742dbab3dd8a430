// FolderQueries answers what is on a root, as messages of ckptd.v1: the daemon's workers use it,
// and tools without a daemon.
//
// Blocking, read-only but for the verdicts of Verify(). As thread-safe as the disk.
#ifndef CKPTD_PROTO_CKPTD_FOLDER_QUERIES_H_
#define CKPTD_PROTO_CKPTD_FOLDER_QUERIES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/ckptd/convert.h"
#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"
#include "storage/disk/disk.h"

namespace ckptd {

class FolderQueries {
 public:
  // `path` is the root's absolute path, for people; `label` may be empty. `disk` outlives this.
  FolderQueries(Disk& disk, std::string label, std::string path);

  // `job` may be empty: for List and Verify it means all, for the others the only one there is
  // (InvalidArgument, naming them, if there are several). NotFound, naming those there are, for one
  // that is not there.
  absl::StatusOr<std::string> OneJob(const std::string& job);
  absl::StatusOr<std::vector<std::string>> JobsOf(const std::string& job);

  // Committed, damaged and unfinished ones; `failed`: failed attempts too.
  absl::StatusOr<v1::ListReply> List(const std::string& job, bool failed);

  // NotFound if nothing is there; FailedPrecondition if only unfinished ones are.
  absl::StatusOr<v1::Checkpoint> Latest(const std::string& job);

  // A checkpoint by id, or an attempt by its name or id, with its files.
  absl::StatusOr<v1::ShowReply> Show(const std::string& job, const std::string& name);

  // The parts of one answer. `glob` may be empty: all.
  absl::StatusOr<std::vector<v1::DescribeReply>> Describe(const std::string& job,
                                                          const std::string& id,
                                                          const std::string& glob);

  // Calls `each` for every checkpoint that was read; `ids` may be empty: all. `warn` gets verdicts
  // that could not be kept.
  absl::Status Verify(const std::string& job, const std::vector<std::string>& ids,
                      const std::function<void(v1::VerifyReply)>& each,
                      const std::function<void(std::string)>& warn);

 private:
  RootName Name() const { return RootName{label_, path_}; }
  absl::StatusOr<v1::ShowReply> ShowCheckpoint(const CheckpointInfo& info);
  absl::StatusOr<v1::ShowReply> ShowAttempt(const std::string& job, const std::string& name,
                                            const absl::Status& otherwise);
  absl::StatusOr<std::vector<CheckpointInfo>> ToVerify(const std::string& job,
                                                       const std::vector<std::string>& ids);

  Disk& disk_;
  const std::string label_;
  const std::string path_;
};

}  // namespace ckptd

#endif  // CKPTD_PROTO_CKPTD_FOLDER_QUERIES_H_
