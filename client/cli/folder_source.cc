#include "client/cli/folder_source.h"

#include <utility>

#include "storage/base/status.h"
#include "storage/disk/open_disk.h"

namespace ckptd {

absl::StatusOr<std::unique_ptr<FolderSource>> FolderSource::Open(const std::string& root,
                                                                 bool for_verify) {
  DiskOptions options;
  options.engine = DiskOptions::Engine::kPosix;
  options.fixed_buffers = DiskOptions::Switch::kOff;
  options.direct = for_verify ? DiskOptions::Switch::kAuto : DiskOptions::Switch::kOff;
  absl::StatusOr<std::unique_ptr<Disk>> disk = OpenDisk(root, options);
  if (!disk.ok()) return WithContext(disk.status(), "--root");
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
  auto warn = [this](std::string warning) { warnings_.push_back(std::move(warning)); };
  RETURN_IF_ERROR(queries_.Verify(job, ids, each, warn));
  return replies;
}

}  // namespace ckptd
