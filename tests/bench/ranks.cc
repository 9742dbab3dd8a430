#include "tests/bench/ranks.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "storage/base/clock.h"
#include "storage/base/status.h"

namespace ckptd::bench {
namespace {

// The lines have reached every rank by then.
constexpr absl::Duration kLead = absl::Milliseconds(5);

absl::StatusOr<std::vector<double>> ReadAnswer(Child& child) {
  ASSIGN_OR_RETURN(const std::string line, child.Read());
  if (line.rfind("ok", 0) != 0) return absl::InternalError(absl::StrCat("a rank: ", line));
  std::vector<double> figures;
  for (absl::string_view word : absl::StrSplit(line.substr(2), ' ', absl::SkipEmpty())) {
    if (!absl::SimpleAtod(word, &figures.emplace_back())) {
      return absl::InternalError(absl::StrCat("a rank answers: ", line));
    }
  }
  return figures;
}

double Slowest(const std::vector<std::vector<double>>& answers) {
  double slowest = 0;
  for (const std::vector<double>& figures : answers) slowest = std::max(slowest, figures.at(0));
  return slowest;
}

}  // namespace

absl::StatusOr<Ranks> Ranks::Start(const std::string& workload, double scale) {
  ASSIGN_OR_RETURN(Workload made, MakeWorkload(workload, scale));
  std::vector<std::unique_ptr<Child>> children;
  for (uint32_t rank = 0; rank < made.ranks; ++rank) {
    ASSIGN_OR_RETURN(children.emplace_back(),
                     Child::Start({"/proc/self/exe", "--rank-process", absl::StrCat(rank),
                                   "--workload", workload, "--scale", absl::StrCat(scale)},
                                  ""));
  }
  for (const std::unique_ptr<Child>& child : children) {
    RETURN_IF_ERROR(ReadAnswer(*child).status());
  }
  return Ranks(std::move(made), std::move(children));
}

Ranks::Ranks(Workload workload, std::vector<std::unique_ptr<Child>> children)
    : workload_(std::move(workload)), children_(std::move(children)) {}

std::string Ranks::SoonText() {
  return absl::StrCat(absl::ToInt64Nanoseconds(SystemClock().Monotonic() + kLead));
}

absl::StatusOr<std::vector<std::vector<double>>> Ranks::All(const std::string& line,
                                                            uint32_t ranks) {
  for (uint32_t i = 0; i < ranks; ++i) RETURN_IF_ERROR(children_[i]->Send(line));
  std::vector<std::vector<double>> answers(ranks);
  absl::Status status;
  for (uint32_t i = 0; i < ranks; ++i) {
    absl::StatusOr<std::vector<double>> answer = ReadAnswer(*children_[i]);
    if (answer.ok()) {
      answers[i] = *std::move(answer);
    } else {
      status.Update(answer.status());
    }
  }
  if (!status.ok()) return status;
  return answers;
}

absl::StatusOr<double> Ranks::Copy(uint32_t ranks) {
  ASSIGN_OR_RETURN(const auto answers, All(absl::StrCat("copy ", SoonText()), ranks));
  return Slowest(answers);
}

absl::Status Ranks::Open(const std::string& session, const Daemon& daemon, const std::string& job) {
  static std::atomic<int> lives = 0;
  return All(absl::StrCat("open ", session, " ", daemon.socket(), " ", job, " life-", ++lives),
             count())
      .status();
}

absl::Status Ranks::Prewarm(const std::string& session) {
  return All("prewarm " + session, count()).status();
}

absl::StatusOr<double> Ranks::Save(const std::string& session, const std::string& id) {
  ASSIGN_OR_RETURN(const auto answers,
                   All(absl::StrCat("save ", session, " ", id, " ", SoonText()), count()));
  return Slowest(answers);
}

absl::StatusOr<Ranks::Saved> Ranks::AwaitCommitted(const std::string& session) {
  ASSIGN_OR_RETURN(const auto answers, All("wait " + session, count()));
  Saved saved{.durable_s = Slowest(answers)};
  for (const std::vector<double>& figures : answers) {
    saved.bytes += static_cast<uint64_t>(figures.at(1));
  }
  return saved;
}

absl::StatusOr<double> Ranks::Load(const std::string& session, const std::string& id,
                                   uint32_t ranks) {
  ASSIGN_OR_RETURN(const auto answers,
                   All(absl::StrCat("load ", session, " ", id, " ", SoonText()), ranks));
  for (const std::vector<double>& figures : answers) {
    if (figures.at(1) > 0) return absl::InternalError("a cold load came from memory");
  }
  return Slowest(answers);
}

absl::Status Ranks::Close(const std::string& session) {
  return All("close " + session, count()).status();
}

}  // namespace ckptd::bench
