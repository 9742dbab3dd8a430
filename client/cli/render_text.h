// The tables of ckptctl: for people, free to change. Each function returns whole lines. `now` is
// for ages.
#ifndef CKPTD_CLIENT_CLI_RENDER_TEXT_H_
#define CKPTD_CLIENT_CLI_RENDER_TEXT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/cli/host_check.h"
#include "client/cli/progress.h"
#include "proto/ckptd/v1/admin.pb.h"
#include "proto/ckptd/v1/checkpoint.pb.h"
#include "proto/ckptd/v1/types.pb.h"

namespace ckptd {

std::string ListText(const v1::ListReply& reply, absl::Time now);
std::string ShowText(const v1::ShowReply& reply, absl::Time now);
std::string DescribeText(const v1::DescribeReply& reply);
std::string VerifyText(const std::vector<v1::VerifyReply>& replies);

// One screen: sessions by job, and the newest failures. `progress` of each attempt, or null: not
// known.
std::string StatusText(const v1::StatusReply& reply, absl::Time now,
                       const std::vector<Progress>* progress = nullptr);

std::string DoctorText(const std::vector<HostCheck>& checks);

// What is wrong or how far it is: "rank 3, node a, phase stage: process 17 died (ABORTED)"; "staged
// 43%, written 21%".
std::string AttemptDetail(const v1::Attempt& attempt);

// "3s", "5m", "2h", "4d".
std::string HumanAge(absl::Duration age);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_RENDER_TEXT_H_
