#include "client/cli/watch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/progress.h"
#include "client/cli/render_json.h"
#include "client/cli/render_text.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

bool IsAway(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

class Watch {
 public:
  Watch(const DaemonSource::Options& options, bool json) : options_(options), json_(json) {}

  // What to show now.
  absl::StatusOr<std::string> Look() {
    absl::StatusOr<v1::StatusReply> reply = Ask();
    absl::Duration now = SystemClock().Monotonic();
    if (reply.ok()) {
      answered_ = now;
      std::vector<Progress> progress = meter_.Update(*reply, now);
      return json_ ? WatchJson(*reply, progress)
                   : StatusText(*reply, SystemClock().Wall(), &progress);
    }
    if (!IsAway(reply.status())) return reply.status();
    source_.reset();  // With its connection: the next daemon has another.
    std::string why(reply.status().message());
    if (json_) return AwayJson(why);
    return absl::StrCat("daemon away for ", HumanAge(now - answered_), ": ", why, "\n");
  }

 private:
  absl::StatusOr<v1::StatusReply> Ask() {
    if (source_ == nullptr) {
      ASSIGN_OR_RETURN(source_, DaemonSource::Connect(options_));
    }
    return source_->Status();
  }

  const DaemonSource::Options options_;
  const bool json_;
  std::unique_ptr<DaemonSource> source_;
  ProgressMeter meter_;
  absl::Duration answered_ = SystemClock().Monotonic();  // Or the start.
};

}  // namespace

absl::Status WatchStatus(const DaemonSource::Options& daemon, bool json, Terminal& terminal) {
  Watch watch(daemon, json);
  bool redraw = terminal.screen && !json;
  if (redraw) terminal.out << "\x1b[2J";
  while (true) {
    absl::Duration next = SystemClock().Monotonic() + kWatchPeriod;
    ASSIGN_OR_RETURN(std::string text, watch.Look());
    if (redraw) {
      Redraw(text, terminal.out);
    } else {
      terminal.out << text << std::flush;
    }
    if (!terminal.out) return absl::OkStatus();
    absl::SleepFor(std::max(absl::ZeroDuration(), next - SystemClock().Monotonic()));
  }
}

}  // namespace ckptd
