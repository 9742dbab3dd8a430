// Faults on demand: a plan of rules, each saying where and when which fault happens.
//
//   PLAN   = RULE;RULE…                 (spaces around a rule are ignored, so are empty rules)
//   RULE   = WHERE[@N[+]]=ACTION        N: at the N-th match of this rule only; N+: from then on;
//   without: every time WHERE  = an operation, "op" (any of them, counted together), each perhaps
//   ":TEXT" that the path must contain;
//            or a point of the protocol
//   ACTION = error:ERRNO short:BYTES flip:BYTE rate:SIZE delay:D hang stop kill kill-after
//
// FaultListText() explains them. Matches are counted per rule, from 1, when an operation begins. If
// several rules fire at once the first in the plan wins; all of them count.
#ifndef CKPTD_TESTS_SUPPORT_FAULT_PLAN_H_
#define CKPTD_TESTS_SUPPORT_FAULT_PLAN_H_

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "storage/base/unique_fd.h"

namespace ckptd {

// Names as in a plan: FaultOperationName().
enum class FaultOperation {
  kOpen,
  kCreate,
  kWrite,
  kRead,
  kSync,
  kSyncDir,
  kRename,
  kMakeDir,
  kUnlink,  // Of a file or a folder.
  kAllocate,
  kTruncate,
  kStat,  // Of a path or an open file.
  kList,
};

absl::string_view FaultOperationName(FaultOperation operation);

// The points of the protocol, in the order in which a save, an abort and a load pass them.
const std::vector<absl::string_view>& FaultPoints();

struct FaultAction {
  enum class Kind { kError, kShort, kFlip, kRate, kDelay, kHang, kStop, kKill, kKillAfter };

  Kind kind = Kind::kError;
  int error = 0;              // kError: the errno.
  uint64_t bytes = 0;         // kShort: at most so many; kFlip: the byte; kRate: a second.
  absl::Duration delay = {};  // kDelay.
  std::string rule = {};      // As written: transfers of one kRate rule share its rate.
};

struct FaultRule {
  std::string text;   // As written.
  std::string where;  // An operation's name, "op" or a point.
  bool is_point = false;
  std::string path_part;  // "" matches every path.
  uint64_t first = 1;
  bool only_first = false;
  FaultAction action;
};

// InvalidArgument names the rule and what is wrong with it.
absl::StatusOr<std::vector<FaultRule>> ParseFaultPlan(absl::string_view plan);

// What --fault-list prints: every operation, point and action.
std::string FaultListText();

// FaultInjector says what happens at each operation and point. Thread-safe.
//
// Its log has one line of JSON for every point passed and every rule fired by an operation, written
// before anything happens: {"point":"write","n":3,"rule":"write@3=kill","path":"job/…"}. `point` is
// the operation's or the point's name; `n` which match of the rule this is, at a point how often it
// was passed; `rule` null if none fired; `path` null at a point.
class FaultInjector {
 public:
  struct Options {
    std::string plan;
    std::string plan_file;  // "": none. Read again whenever it changes; then its rules count from 1
                            // again. A file that is not there is an empty plan. Its rules come
                            // after those of `plan`.
    std::string log_file;   // "": none. Appended to.
  };

  // InvalidArgument: a bad rule, of the file too. A rule that turns bad later is reported on
  // stderr, and the file's last good rules stay.
  static absl::StatusOr<std::unique_ptr<FaultInjector>> Create(const Options& options);

  // Called when an operation begins. The action is the caller's to carry out; nothing: go on.
  // `path` of a rename is "FROM to TO".
  std::optional<FaultAction> OnOperation(FaultOperation operation, absl::string_view path);

  // Called when a point is passed: delays, hangs, stops or kills the process itself, as the plan
  // says. `point` is one of FaultPoints() (CHECKed).
  void OnPoint(absl::string_view point);

  // What the disk says is free; null: what is. Set before the disk is used.
  std::function<uint64_t()> free_bytes;

 private:
  struct Counted {
    FaultRule rule;
    uint64_t matches = 0;
  };

  FaultInjector(std::string plan_file, UniqueFd log)
      : plan_file_(std::move(plan_file)), log_(std::move(log)) {}

  absl::Status ReadFile();
  void ReadFileIfChanged();
  std::optional<FaultAction> Match(absl::string_view name, bool is_point, absl::string_view path);
  void Log(absl::string_view name, uint64_t n, const FaultRule* rule, bool is_point,
           absl::string_view path);

  const std::string plan_file_;
  const UniqueFd log_;

  std::mutex mutex_;
  std::vector<Counted> rules_;  // Of the plan, then of the file.
  size_t plan_rules_ = 0;       // How many are of the plan.
  struct stat file_seen_ = {};  // The file as it was read; all zero: not there.
  std::map<std::string, uint64_t, std::less<>> passed_;  // Points, by name.
};

// Blocks this thread for ever.
[[noreturn]] void HangForEver();

// Stops this process by SIGSTOP; returns when it is continued.
void StopSelf();

// Ends this process by SIGKILL.
[[noreturn]] void KillSelf();

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_FAULT_PLAN_H_
