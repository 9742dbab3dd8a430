// Every file and folder name below a root, both ways. Names are data: job names, checkpoint ids and
// node names are encoded, so none can leave its folder; tensor names never become paths. Pure
// functions.
//
//   <job>/checkpoints/<id>/
//       shard-00003-of-00008.safetensors  shard-00003.1-of-00008.safetensors  fragment-<node>.pb
//       ATTEMPT.pb  MANIFEST.pb
//   <job>/attempts/<sequence>-<random>/   the same before it is committed
//   <job>/failed/<sequence>-<random>/OUTCOME.pb
//   <job>/retired/<id>~<sequence>-<random>/   <job>/trash/<id>~<sequence>-<random>/
//   .ckptd/nodes/<node>.lock   .ckptd/verified/<job>/<sequence>-<random>.json
#ifndef CKPTD_STORAGE_FORMAT_PATHS_H_
#define CKPTD_STORAGE_FORMAT_PATHS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ckptd {

inline constexpr size_t kEncodedNameBytesMax = 200;

// Plain if it matches [A-Za-z0-9_-][A-Za-z0-9._-]*; every other byte becomes %XX (upper case), a
// leading '.' too. '%' is encoded, so the encoding is reversible. The empty text, which CheckName()
// refuses, becomes "%", which decodes to nothing.
std::string EncodeName(absl::string_view text);

// Nullopt for what EncodeName() makes of no text that CheckName() accepts.
std::optional<std::string> DecodeName(absl::string_view name);

// InvalidArgument, quoting it, unless 1-200 encoded bytes. `what` is "job name", "checkpoint id" or
// "node name".
absl::Status CheckName(absl::string_view what, absl::string_view text);

struct AttemptName {
  uint64_t sequence = 0;
  uint64_t random = 0;  // 16 hexadecimal digits in the text.

  friend bool operator==(const AttemptName&, const AttemptName&) = default;
  friend auto operator<=>(const AttemptName&, const AttemptName&) = default;
};

std::string ToString(const AttemptName& name);  // "17-00c0ffee00c0ffee"

// Exactly what ToString() makes, else nullopt.
std::optional<AttemptName> ParseAttemptName(absl::string_view text);

inline constexpr char kOwnDir[] = ".ckptd";
inline constexpr char kManifestFile[] = "MANIFEST.pb";
inline constexpr char kManifestTemporaryFile[] = "MANIFEST.pb.tmp";
inline constexpr char kRecordFile[] = "ATTEMPT.pb";
inline constexpr char kOutcomeFile[] = "OUTCOME.pb";

std::string JobDir(absl::string_view job);
std::string CheckpointsDir(absl::string_view job);
std::string AttemptsDir(absl::string_view job);
std::string FailedDir(absl::string_view job);
std::string RetiredDir(absl::string_view job);
std::string TrashDir(absl::string_view job);
std::string CheckpointDir(absl::string_view job, absl::string_view id);
std::string AttemptDir(absl::string_view job, const AttemptName& attempt);
std::string FailedAttemptDir(absl::string_view job, const AttemptName& attempt);
std::string RetiredCheckpointDir(absl::string_view job, absl::string_view id,
                                 const AttemptName& attempt);
std::string TrashedCheckpointDir(absl::string_view job, absl::string_view id,
                                 const AttemptName& attempt);
std::string NodeLockFile(absl::string_view node);
std::string VerdictFile(absl::string_view job, const AttemptName& attempt);

// "<id>~<attempt>" of retired/ and trash/.
struct RetiredName {
  std::string id;
  AttemptName attempt;

  friend bool operator==(const RetiredName&, const RetiredName&) = default;
};
std::optional<RetiredName> ParseRetiredName(absl::string_view name);

// The file of a section of a rank's image. A file that has to be written once more within one
// attempt (files are created once, never overwritten) gets another name: `rewrite` 1, 2 …
std::string ShardFile(uint32_t rank, uint32_t world_size, uint32_t section, uint32_t rewrite = 0);

std::string FragmentFileName(absl::string_view node);
std::optional<std::string> NodeOfFragmentFile(absl::string_view file_name);
bool IsShardFile(absl::string_view file_name);

std::string Join(absl::string_view folder, absl::string_view name);  // "a/b"

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_PATHS_H_
