#include "tests/bench/saver.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "tests/bench/disk.h"

namespace ckptd::bench {
namespace {

std::string UniqueName(absl::string_view prefix) {
  static std::atomic<int> number = 0;
  return absl::StrCat(prefix, ++number);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Saver>> Saver::Start(const Setting& setting, Ranks& ranks,
                                                    std::vector<std::string> flags) {
  std::unique_ptr<Saver> saver(new Saver(setting, ranks, std::move(flags)));
  RETURN_IF_ERROR(saver->Open());
  RETURN_IF_ERROR(ranks.Prewarm(saver->session_));
  return saver;
}

Saver::Saver(const Setting& setting, Ranks& ranks, std::vector<std::string> flags)
    : setting_(setting),
      ranks_(ranks),
      flags_(std::move(flags)),
      session_(UniqueName("session-")) {}

Saver::~Saver() {
  // A rank that has ended has closed its session; the daemon is stopped either way.
  if (daemon_ != nullptr) ranks_.Close(session_).IgnoreError();
}

absl::Status Saver::Open() {
  ASSIGN_OR_RETURN(daemon_, Daemon::Start(setting_.daemon,
                                          absl::StrCat(setting_.folder, "/", session_), flags_));
  return ranks_.Open(session_, *daemon_, kJob);
}

absl::Status Saver::Restart() {
  RETURN_IF_ERROR(ranks_.Close(session_));
  daemon_.reset();
  return Open();
}

absl::StatusOr<Saver::Result> Saver::Save(bool keep) {
  RETURN_IF_ERROR(Settle(setting_.folder));
  last_ = absl::StrCat("save-", ++saves_);
  Result result;
  ASSIGN_OR_RETURN(result.blocked_s, ranks_.Save(session_, last_));
  ASSIGN_OR_RETURN(const Ranks::Saved saved, ranks_.AwaitCommitted(session_));
  result.durable_s = saved.durable_s;
  result.bytes = saved.bytes;
  if (!keep) RETURN_IF_ERROR(daemon_->Remove(kJob, last_));
  return result;
}

}  // namespace ckptd::bench
