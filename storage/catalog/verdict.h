// Verdict is what the last verification of a checkpoint said, kept beside the checkpoints: a
// published folder never changes.
#ifndef CKPTD_STORAGE_CATALOG_VERDICT_H_
#define CKPTD_STORAGE_CATALOG_VERDICT_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "storage/disk/disk.h"
#include "storage/format/paths.h"

namespace ckptd {

struct Verdict {
  absl::Time at;
  bool ok = false;
};

// Keeps it in .ckptd/verified/<job>/<attempt>.json, for owner alone to write; replaces an older
// one.
absl::Status WriteVerdict(Disk& disk, absl::string_view job, const AttemptName& attempt,
                          const Verdict& verdict);

// nullopt if these are not the bytes of a verdict.
std::optional<Verdict> DecodeVerdict(absl::string_view bytes);

// nullopt if there is none, or none that can be read: then the checkpoint counts as never verified.
std::optional<Verdict> ReadVerdict(Disk& disk, absl::string_view job, const AttemptName& attempt);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_CATALOG_VERDICT_H_
