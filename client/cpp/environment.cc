#include "client/cpp/environment.h"

#include <sys/random.h>

#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/state_plan.h"
#include "storage/base/check.h"
#include "storage/base/status.h"

namespace ckptd::inline client {
namespace {

// A number, and for messages who said so.
struct Sourced {
  uint32_t value;
  std::string origin;
};

std::string ValueOf(const Variables& variables, const std::string& name) {
  auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

absl::StatusOr<std::optional<Sourced>> NumberOf(const Variables& variables,
                                                const std::string& name) {
  const std::string text = ValueOf(variables, name);
  if (text.empty()) return std::nullopt;
  uint32_t value;
  if (!absl::SimpleAtoi(text, &value)) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", text, " is not a number"));
  }
  return Sourced{value, name};
}

// Argument, else the variable of ours.
absl::StatusOr<std::optional<Sourced>> Explicit(const std::optional<uint32_t>& argument,
                                                const std::string& what, const Variables& variables,
                                                const std::string& variable) {
  if (argument) return Sourced{*argument, absl::StrCat("the argument ", what)};
  return NumberOf(variables, variable);
}

struct Launcher {
  std::string rank_variable;
  std::string size_variable;
};

// The first launcher that is there; under `srun torchrun` Slurm's variables describe nodes.
std::optional<Launcher> FindLauncher(const Variables& variables) {
  if (!ValueOf(variables, "RANK").empty() || !ValueOf(variables, "WORLD_SIZE").empty()) {
    return Launcher{"RANK", "WORLD_SIZE"};
  }
  if (!ValueOf(variables, "SLURM_PROCID").empty()) return Launcher{"SLURM_PROCID", "SLURM_NTASKS"};
  return std::nullopt;
}

absl::Status CheckAgree(const std::string& what, const std::optional<Sourced>& given,
                        const std::optional<Sourced>& launcher) {
  if (!given || !launcher || given->value == launcher->value) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", given->origin, " says ", given->value,
                                                 ", but the launcher's ", launcher->origin,
                                                 " says ", launcher->value));
}

absl::Status ResolveRank(const SessionOptions& options, const Variables& variables,
                         Identity& identity) {
  ASSIGN_OR_RETURN(std::optional<Sourced> rank,
                   Explicit(options.rank, "rank", variables, "CKPTD_RANK"));
  ASSIGN_OR_RETURN(std::optional<Sourced> size,
                   Explicit(options.world_size, "world_size", variables, "CKPTD_WORLD_SIZE"));
  if (std::optional<Launcher> launcher = FindLauncher(variables)) {
    ASSIGN_OR_RETURN(std::optional<Sourced> its_rank, NumberOf(variables, launcher->rank_variable));
    ASSIGN_OR_RETURN(std::optional<Sourced> its_size, NumberOf(variables, launcher->size_variable));
    RETURN_IF_ERROR(CheckAgree("rank", rank, its_rank));
    RETURN_IF_ERROR(CheckAgree("world size", size, its_size));
    if (!rank) rank = its_rank;
    if (!size) size = its_size;
  }
  if (!rank && !size) return absl::OkStatus();  // A job of one process.
  if (!size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank->value, " (", rank->origin,
                                                   ") without a world size: give world_size or "
                                                   "CKPTD_WORLD_SIZE"));
  }
  if (!rank && size->value > 1) {
    return absl::InvalidArgumentError(absl::StrCat("world size ", size->value, " (", size->origin,
                                                   ") without a rank: give rank or CKPTD_RANK"));
  }
  identity.rank = rank ? rank->value : 0;
  identity.world_size = size->value;
  if (identity.rank < identity.world_size) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", identity.rank, " of a world of ", identity.world_size));
}

// Empty if the launcher gives none that is new at every start.
std::string LaunchersIncarnation(const Variables& variables) {
  const std::string run_id = ValueOf(variables, "TORCHELASTIC_RUN_ID");
  if (!run_id.empty()) {
    if (run_id == "none") return "";
    return absl::StrCat(run_id, ".", ValueOf(variables, "TORCHELASTIC_RESTART_COUNT"));
  }
  if (!ValueOf(variables, "RANK").empty()) return "";
  const std::string step = ValueOf(variables, "SLURM_STEP_ID");
  if (ValueOf(variables, "SLURM_PROCID").empty() || step.empty()) return "";
  return absl::StrCat(ValueOf(variables, "SLURM_JOB_ID"), ".", step, ".",
                      ValueOf(variables, "SLURM_RESTART_COUNT"));
}

}  // namespace

absl::StatusOr<std::vector<SocketCandidate>> SocketCandidates(const std::string& argument,
                                                              const Variables& variables,
                                                              uid_t uid) {
  std::vector<SocketCandidate> candidates;
  if (!argument.empty()) {
    candidates.push_back({argument, "argument"});
  } else if (std::string path = ValueOf(variables, "CKPTD_SOCKET"); !path.empty()) {
    candidates.push_back({path, "CKPTD_SOCKET"});
  } else {
    const DefaultPath first = DefaultSocket(variables, uid);
    candidates.push_back({first.path, first.origin});
    // A daemon that was started without that variable.
    const DefaultPath second = DefaultSocket({}, uid);
    if (second.path != first.path) candidates.push_back({second.path, second.origin});
  }
  for (const SocketCandidate& candidate : candidates) {
    RETURN_IF_ERROR(WithContext(CheckSocketPath(candidate.path), candidate.origin));
  }
  return candidates;
}

absl::StatusOr<Identity> ResolveIdentity(const SessionOptions& options,
                                         const Variables& variables) {
  Identity identity;
  RETURN_IF_ERROR(ResolveRank(options, variables, identity));
  identity.job = !options.job.empty() ? options.job : ValueOf(variables, "CKPTD_JOB");
  if (identity.job.empty()) {
    if (identity.world_size > 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a job of ", identity.world_size, " processes needs a name: give job or CKPTD_JOB"));
    }
    identity.job = "default";
  }
  RETURN_IF_ERROR(CheckText("job name", identity.job));
  identity.incarnation =
      !options.incarnation.empty() ? options.incarnation : ValueOf(variables, "CKPTD_INCARNATION");
  if (identity.incarnation.empty()) identity.incarnation = LaunchersIncarnation(variables);
  if (identity.incarnation.empty() && identity.world_size == 1) {
    identity.incarnation = RandomToken();
  }
  return identity;
}

std::string RandomToken() {
  uint64_t words[2];
  CKPT_CHECK(getrandom(words, sizeof(words), 0) == sizeof(words), "the kernel has random numbers");
  return absl::StrFormat("%016x%016x", words[0], words[1]);
}

}  // namespace ckptd::inline client
