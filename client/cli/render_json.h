// The JSON of ckptctl: what scripts read. Names and fields are only ever added, none is left out,
// unknown is null, sizes are whole bytes, times RFC 3339 in UTC. Each function returns one document
// with a line end.
#ifndef CKPTD_CLIENT_CLI_RENDER_JSON_H_
#define CKPTD_CLIENT_CLI_RENDER_JSON_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cli/host_check.h"
#include "client/cli/progress.h"
#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"

namespace ckptd {

std::string ListJson(const v1::ListReply& reply);
std::string CheckpointJson(const v1::Checkpoint& checkpoint);
std::string AttemptJson(const v1::Attempt& attempt);
std::string ShowJson(const v1::ShowReply& reply);  // With `files` as a list.
std::string DescribeJson(const v1::DescribeReply& reply);
std::string VerifyJson(const std::vector<v1::VerifyReply>& replies);
std::string DeletedJson(const v1::DeleteReply& reply);
std::string HealthJson(bool serving);
std::string DoctorJson(const std::vector<HostCheck>& checks);

std::string StatusJson(const v1::StatusReply& reply);

// One line each, of the same fields: a status with the progress of its attempts, or why there is
// none.
std::string WatchJson(const v1::StatusReply& reply, const std::vector<Progress>& progress);
std::string AwayJson(absl::string_view why);

// `daemon` may be null: there is none.
std::string VersionJson(const v1::VersionReply& own, const v1::VersionReply* daemon);

// The last line on stderr.
std::string ErrorJson(absl::string_view code, int exit_code, absl::string_view message);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_RENDER_JSON_H_
