// The catalog answers what is on a root: checkpoints, failed and unfinished attempts. Read-only,
// straight from the folders, so it serves a daemon's workers and a tool without a daemon alike.
//
// Blocking functions; thread-safe if the disk is. A job or folder that is not there is an empty
// answer. What is listed as good has a record and a manifest that are whole and belong to its
// place; what is damaged is listed with its error. Names that are not ours are passed over.
#ifndef CKPTD_STORAGE_CATALOG_CATALOG_H_
#define CKPTD_STORAGE_CATALOG_CATALOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "storage/catalog/verdict.h"
#include "storage/disk/disk.h"
#include "storage/format/paths.h"
#include "storage/format/records.h"

namespace ckptd {

struct CheckpointInfo {
  std::string job;
  std::string id;
  std::string path;     // Of its folder, relative to the root.
  absl::Status status;  // Not OK: damaged, and why; then manifest and record are as far as they
                        // could be read.
  Manifest manifest;
  AttemptRecord record;
  absl::Time committed;  // The manifest's modification time, for people.
  std::optional<Verdict> verdict;
};

struct UnfinishedAttempt {
  AttemptRecord record;  // Only job and attempt if `status` is not OK.
  absl::Status status;   // Of reading the record.
  struct FileSize {
    std::string name;
    uint64_t bytes = 0;
  };
  std::vector<FileSize> files;  // By name.
};

// Those of which at least one checkpoint, attempt or failed attempt is there, by name.
absl::StatusOr<std::vector<std::string>> ListJobs(Disk& disk);

// Folders of the root that hold at least one of a job's folders, by name: jobs of which only trash
// is left are among them, and foreign folders that look like one.
absl::StatusOr<std::vector<std::string>> ListJobFolders(Disk& disk);

// By (sequence, attempt); damaged ones whose attempt is not known come first. Each id once, also
// while it is being replaced.
absl::StatusOr<std::vector<CheckpointInfo>> ListCheckpoints(Disk& disk, absl::string_view job);

// Makes what the lists of this job have just shown stay: a rename that another daemon has made may
// be seen before it is on the disk. A daemon calls it after listing and before it tells anyone; its
// own recovery and commits are synced anyway.
absl::Status SyncListed(Disk& disk, absl::string_view job);

// By (sequence, attempt). A record that cannot be read gives an outcome of which job, attempt and
// failure alone are set.
absl::StatusOr<std::vector<Outcome>> ListFailed(Disk& disk, absl::string_view job);

// By (sequence, attempt).
absl::StatusOr<std::vector<UnfinishedAttempt>> ListUnfinished(Disk& disk, absl::string_view job);

// What was deleted or replaced and still has its bytes in trash/, by name. The daemon removes each
// (RemoveTrashed) when no reader has it and its grace is over.
absl::StatusOr<std::vector<RetiredName>> ListTrash(Disk& disk, absl::string_view job);

// NotFound if there is no such checkpoint; FailedPrecondition "not committed yet", naming them, if
// only unfinished attempts of this id are there; the error of a damaged one.
absl::StatusOr<CheckpointInfo> FindCheckpoint(Disk& disk, absl::string_view job,
                                              absl::string_view id);

// The good checkpoint of the highest (sequence, attempt). NotFound if nothing is there;
// FailedPrecondition, naming them, if only unfinished attempts are; DataLoss, naming them, if only
// damaged checkpoints are.
absl::StatusOr<CheckpointInfo> Latest(Disk& disk, absl::string_view job);

// The fragments that the manifest names, in its order. DataLoss if size or checksum differ.
absl::StatusOr<std::vector<Fragment>> LoadFragments(Disk& disk, const CheckpointInfo& info);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_CATALOG_CATALOG_H_
