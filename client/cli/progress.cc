#include "client/cli/progress.h"

#include <utility>

#include "absl/strings/str_join.h"

namespace ckptd {

std::vector<Progress> ProgressMeter::Update(const v1::StatusReply& reply, absl::Duration now) {
  std::vector<Progress> all;
  std::map<std::string, Look> looks;
  for (const v1::Attempt& attempt : reply.attempts()) {
    Progress& progress = all.emplace_back();
    std::string key(
        absl::StrJoin({attempt.job(), attempt.checkpoint_id(), attempt.attempt()}, "\n"));
    uint64_t written = attempt.written_bytes();
    looks[key] = {now, written};
    auto before = last_.find(key);
    // A daemon that was started again writes from the start.
    if (before == last_.end() || written < before->second.written_bytes) continue;
    double seconds = absl::ToDoubleSeconds(now - before->second.at);
    if (seconds <= 0) continue;
    double rate = static_cast<double>(written - before->second.written_bytes) / seconds;
    progress.bytes_per_s = rate;
    if (rate > 0 && attempt.planned_bytes() >= written && attempt.planned_bytes() > 0) {
      progress.left = absl::Seconds(static_cast<double>(attempt.planned_bytes() - written) / rate);
    }
  }
  last_ = std::move(looks);
  return all;
}

}  // namespace ckptd
