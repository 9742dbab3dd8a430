#include "client/cli/folder_source.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "storage/catalog/catalog.h"
#include "storage/disk/open_disk.h"
#include "storage/format/paths.h"

namespace ckptd {
namespace {

bool IsFolder(Disk& disk, absl::string_view path) {
  absl::StatusOr<FileInfo> info = disk.Stat(path);
  return info.ok() && info->kind == FileKind::kFolder;
}

bool IsCheckpoint(Disk& disk, const std::string& folder) {
  std::string manifest = folder.empty() ? kManifestFile : absl::StrCat(folder, "/", kManifestFile);
  return disk.Stat(manifest).ok();
}

// How many levels below a root this folder lies; 0 if nothing says so.
int LevelsBelowRoot(Disk& disk) {
  if (IsCheckpoint(disk, "")) return 3;
  absl::StatusOr<std::vector<DirEntry>> entries = disk.List("");
  if (!entries.ok()) return 0;
  for (const DirEntry& entry : *entries) {
    if (entry.kind == FileKind::kFolder && IsCheckpoint(disk, entry.name)) return 2;
  }
  return IsFolder(disk, "checkpoints") && (IsFolder(disk, "attempts") || IsFolder(disk, "failed"));
}

// Whoever names a folder inside a root would be told that nothing is there.
absl::Status CheckIsRoot(Disk& disk, const std::string& path) {
  absl::StatusOr<std::vector<std::string>> jobs = ListJobs(disk);
  if (!jobs.ok() || !jobs->empty()) return absl::OkStatus();
  int levels = LevelsBelowRoot(disk);
  if (levels == 0) return absl::OkStatus();
  const char* const kinds[] = {"a job's folder", "a job's folder of checkpoints", "a checkpoint"};
  std::filesystem::path root = path;
  for (int i = 0; i < levels; ++i) root = root.parent_path();
  return absl::NotFoundError(absl::StrCat("--root: ", path, " is ", kinds[levels - 1],
                                          ", not a root: try --root ", root.string()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderSource>> FolderSource::Open(const std::string& root,
                                                                 bool for_verify) {
  DiskOptions options;
  options.engine = DiskOptions::Engine::kPosix;
  options.fixed_buffers = DiskOptions::Switch::kOff;
  options.direct = for_verify ? DiskOptions::Switch::kAuto : DiskOptions::Switch::kOff;
  absl::StatusOr<std::unique_ptr<Disk>> disk = OpenDisk(root, options);
  if (!disk.ok()) return WithContext(disk.status(), "--root");
  RETURN_IF_ERROR(CheckIsRoot(**disk, root));
  return std::unique_ptr<FolderSource>(new FolderSource(root, *std::move(disk)));
}

FolderSource::FolderSource(std::string root, std::unique_ptr<Disk> disk)
    : disk_(std::move(disk)), queries_(*disk_, "", std::move(root)) {}

absl::StatusOr<v1::ListReply> FolderSource::List(const std::string& job, bool failed) {
  return queries_.List(job, failed);
}

absl::StatusOr<v1::Checkpoint> FolderSource::Latest(const std::string& job) {
  return queries_.Latest(job);
}

absl::StatusOr<v1::ShowReply> FolderSource::Show(const std::string& job, const std::string& name) {
  return queries_.Show(job, name);
}

absl::StatusOr<v1::DescribeReply> FolderSource::Describe(const std::string& job,
                                                         const std::string& id,
                                                         const std::string& glob) {
  ASSIGN_OR_RETURN(std::vector<v1::DescribeReply> parts, queries_.Describe(job, id, glob));
  v1::DescribeReply reply;
  for (const v1::DescribeReply& part : parts) reply.MergeFrom(part);
  return reply;
}

absl::StatusOr<std::vector<v1::VerifyReply>> FolderSource::Verify(
    const std::string& job, const std::vector<std::string>& ids) {
  std::vector<v1::VerifyReply> replies;
  auto each = [&replies](v1::VerifyReply reply) { replies.push_back(std::move(reply)); };
  auto warn = [this](std::string warning) { Warn(std::move(warning)); };
  RETURN_IF_ERROR(queries_.Verify(job, ids, each, warn));
  return replies;
}

}  // namespace ckptd
