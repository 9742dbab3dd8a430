// FolderSource reads a storage folder without a daemon. It writes nothing but the verdicts of
// Verify(), and warns of those that could not be kept.
#ifndef CKPTD_CLIENT_CLI_FOLDER_SOURCE_H_
#define CKPTD_CLIENT_CLI_FOLDER_SOURCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/source.h"
#include "proto/ckptd/folder_queries.h"
#include "storage/disk/disk.h"

namespace ckptd {

class FolderSource : public Source {
 public:
  // `root` is absolute. `for_verify` opens it for fast reading, which tries to write a file without
  // a name. NotFound, naming the root, for a folder inside one: that of a job, of its checkpoints,
  // or of one of them.
  static absl::StatusOr<std::unique_ptr<FolderSource>> Open(const std::string& root,
                                                            bool for_verify);

  absl::StatusOr<v1::ListReply> List(const std::string& job, bool failed) override;
  absl::StatusOr<v1::Checkpoint> Latest(const std::string& job) override;
  absl::StatusOr<v1::ShowReply> Show(const std::string& job, const std::string& name) override;
  absl::StatusOr<v1::DescribeReply> Describe(const std::string& job, const std::string& id,
                                             const std::string& glob) override;
  absl::StatusOr<std::vector<v1::VerifyReply>> Verify(const std::string& job,
                                                      const std::vector<std::string>& ids) override;

 private:
  FolderSource(std::string root, std::unique_ptr<Disk> disk);

  const std::unique_ptr<Disk> disk_;
  FolderQueries queries_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_FOLDER_SOURCE_H_
