#include "storage/catalog/verdict.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

constexpr uint64_t kVerdictBytesMax = 4096;
constexpr uint32_t kFolderMode = 0755;
constexpr uint32_t kFileMode = 0644;

// Makes every folder above `path`.
absl::Status MakeParents(Disk& disk, const std::string& path) {
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    absl::Status made = disk.MakeDir(path.substr(0, end), kFolderMode);
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteVerdict(Disk& disk, absl::string_view job, const AttemptName& attempt,
                          const Verdict& verdict) {
  std::string path = VerdictFile(job, attempt);
  std::string temporary = absl::StrCat(path, ".tmp");
  nlohmann::json json = {{"at_unix_nanoseconds", absl::ToUnixNanos(verdict.at)},
                         {"ok", verdict.ok}};
  std::string bytes = json.dump();
  RETURN_IF_ERROR(MakeParents(disk, path));
  disk.Unlink(temporary).IgnoreError();  // Left over, or not there.
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, disk.Create(temporary, kFileMode));
  absl::Status written = WriteAll(*file, 0, std::as_bytes(std::span(bytes)));
  if (written.ok()) written = file->Sync();
  absl::Status closed = file->Close();
  RETURN_IF_ERROR(written);
  RETURN_IF_ERROR(closed);
  return disk.Rename(temporary, path);
}

std::optional<Verdict> DecodeVerdict(absl::string_view bytes) {
  nlohmann::json json =
      nlohmann::json::parse(bytes.begin(), bytes.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("at_unix_nanoseconds") || !json.contains("ok") ||
      !json["at_unix_nanoseconds"].is_number_integer() || !json["ok"].is_boolean()) {
    return std::nullopt;
  }
  return Verdict{.at = absl::FromUnixNanos(json["at_unix_nanoseconds"].get<int64_t>()),
                 .ok = json["ok"].get<bool>()};
}

std::optional<Verdict> ReadVerdict(Disk& disk, absl::string_view job, const AttemptName& attempt) {
  absl::StatusOr<std::string> bytes =
      ReadSmallFile(disk, VerdictFile(job, attempt), kVerdictBytesMax);
  if (!bytes.ok()) return std::nullopt;
  return DecodeVerdict(*bytes);
}

}  // namespace ckptd
