#include "tests/bench/rank_process.h"

#include <time.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "client/cpp/session.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd::bench {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(5);

using Words = std::vector<std::string>;

absl::Status SleepUntil(const std::string& nanoseconds) {
  int64_t at = 0;
  if (!absl::SimpleAtoi(nanoseconds, &at)) return absl::InvalidArgumentError("no time to begin");
  const timespec time = absl::ToTimespec(absl::Nanoseconds(at));
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
  return absl::OkStatus();
}

// As many as a session uses by default.
uint32_t CopyThreads() { return std::clamp(std::thread::hardware_concurrency(), 1u, 2u); }

class Rank {
 public:
  Rank(const Workload& workload, uint32_t rank)
      : ranks_(workload.ranks), rank_(rank), state_(workload, rank) {}

  absl::StatusOr<std::string> Do(const Words& words) {
    const std::string& verb = words[0];
    if (verb == "copy" && words.size() == 2) return Copy(words[1]);
    if (verb == "open" && words.size() == 5) return Open(words);
    if (words.size() < 2 || !sessions_.contains(words[1])) {
      return absl::InvalidArgumentError("no such command, or no such session");
    }
    Opened& opened = sessions_[words[1]];
    if (verb == "prewarm") return Answer(opened.session->Prewarm(state_.MakeState()));
    if (verb == "save" && words.size() == 4) return Save(opened, words[2], words[3]);
    if (verb == "wait") return Wait(opened);
    if (verb == "load" && words.size() == 4) return Load(opened, words[2], words[3]);
    if (verb == "close") {
      const absl::Status closed = opened.session->Close();
      sessions_.erase(words[1]);
      return Answer(closed);
    }
    return absl::InvalidArgumentError("no such command");
  }

 private:
  struct Opened {
    std::unique_ptr<Session> session;
    std::unique_ptr<SaveHandle> save;
  };

  static absl::StatusOr<std::string> Answer(const absl::Status& status) {
    if (!status.ok()) return status;
    return "";
  }

  absl::StatusOr<std::string> Copy(const std::string& at) {
    RETURN_IF_ERROR(SleepUntil(at));
    return absl::StrCat(state_.Copy(CopyThreads()));
  }

  absl::StatusOr<std::string> Open(const Words& words) {
    SessionOptions options;
    options.client.socket = words[2];
    options.job = words[3];
    options.incarnation = words[4];
    options.rank = rank_;
    options.world_size = ranks_;
    ASSIGN_OR_RETURN(sessions_[words[1]].session, Session::Open(options));
    return "";
  }

  absl::StatusOr<std::string> Save(Opened& opened, const std::string& id, const std::string& at) {
    State state = state_.MakeState();
    RETURN_IF_ERROR(SleepUntil(at));
    const absl::Duration begin = SystemClock().Monotonic();
    ASSIGN_OR_RETURN(SaveHandle handle, opened.session->AsyncSave(id, 1, std::move(state)));
    const absl::Duration blocked = SystemClock().Monotonic() - begin;
    opened.save = std::make_unique<SaveHandle>(std::move(handle));
    return absl::StrCat(absl::ToDoubleSeconds(blocked));
  }

  absl::StatusOr<std::string> Wait(Opened& opened) {
    if (opened.save == nullptr) return absl::FailedPreconditionError("nothing was saved");
    RETURN_IF_ERROR(opened.save->Wait(SaveState::kCommitted, kPatience));
    const SaveReport report = opened.save->report();
    return absl::StrCat(report.durable_s, " ", report.bytes);
  }

  absl::StatusOr<std::string> Load(Opened& opened, const std::string& id, const std::string& at) {
    std::vector<TensorTarget> targets = state_.MakeTargets();
    RETURN_IF_ERROR(SleepUntil(at));
    const absl::Duration begin = SystemClock().Monotonic();
    ASSIGN_OR_RETURN(const LoadHandle load, opened.session->Load(id, std::move(targets)));
    ASSIGN_OR_RETURN(const LoadReport report, load.Wait(kPatience));
    const absl::Duration took = SystemClock().Monotonic() - begin;
    return absl::StrCat(absl::ToDoubleSeconds(took), " ", report.memory_bytes);
  }

  const uint32_t ranks_;
  const uint32_t rank_;
  RankState state_;
  std::map<std::string, Opened> sessions_;
};

}  // namespace

int RunRankProcess(const Workload& workload, uint32_t rank) {
  Rank process(workload, rank);
  std::cout << "ok" << std::endl;  // The memory is touched.
  for (std::string line; std::getline(std::cin, line);) {
    const Words words = absl::StrSplit(line, ' ');
    const absl::StatusOr<std::string> answer = process.Do(words);
    std::cout << (answer.ok() ? absl::StrCat("ok ", *answer)
                              : absl::StrReplaceAll(absl::StrCat("error ", words[0], ": ",
                                                                 answer.status().ToString()),
                                                    {{"\n", " "}}))
              << std::endl;
  }
  return 0;
}

}  // namespace ckptd::bench
