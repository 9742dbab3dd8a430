// Attempts is the table of all attempts of this daemon: pairing, admission, and the memory of what
// ended.
//
// Ranks are paired by (job, incarnation, checkpoint id), never by the order in which they come. Per
// job at most max_inflight_attempts are admitted; one more waits up to admit_timeout, or is
// refused, once for all its ranks.
//
// Owned by the control loop.
#ifndef CKPTD_SERVER_ATTEMPTS_H_
#define CKPTD_SERVER_ATTEMPTS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "server/attempt.h"

namespace ckptd {

class Attempts {
 public:
  struct Options {
    uint32_t max_inflight_attempts = 2;
    absl::Duration admit_timeout;
  };

  // What a stream holds of its save. Empty until the attempt is known, and if the save was refused.
  struct Ticket {
    std::shared_ptr<Attempt> attempt;
    uint32_t rank = 0;
  };

  static constexpr size_t kEndedKept = 100;  // For repeated requests.
  static constexpr size_t kRefusalsKept = 100;
  static constexpr size_t kFailuresKeptPerJob = 100;

  // Fills context.on_change.
  Attempts(AttemptContext& context, Options options);
  ~Attempts();

  // One rank's save. Whatever goes wrong is answered on the stream.
  void Save(const Session& session, std::shared_ptr<Root> root, const SaveOptions& options,
            std::shared_ptr<const RankPlan> plan, std::optional<ResumeState> resume,
            std::shared_ptr<SaveStream> stream, std::shared_ptr<Ticket> ticket);

  // What recovery found.
  void Restore(std::shared_ptr<Root> root, AttemptRecord record);
  void AddFailure(Outcome outcome);

  // A process says hello. Attempts of an earlier life of its job that miss ranks can never be
  // completed: they fail. `lives` says whether a session of an incarnation of this job is there.
  void SessionOpened(const Session& session,
                     const std::function<bool(const std::string& incarnation)>& lives);
  void SessionEnded(const Session& session, SessionEnd end);
  void BlockFree(const std::string& job, uint32_t rank);
  void NoMemory(const std::string& job, uint32_t rank, const Arena& arena);

  // No new saves from now on; `done` is called once nothing is in flight.
  void Drain(std::function<void()> done);
  void FailAll(const absl::Status& why);
  // Starts no transfer any more; true once none is in flight. For the end of the process: nothing
  // is told to anybody, and what is on disk is the next start's.
  bool StopWriting();

  // The newest attempt in flight of that id; null if there is none. `job` is exact.
  std::shared_ptr<Attempt> FindInFlight(const std::string& job, const std::string& id) const;
  std::shared_ptr<Attempt> FindEnded(const std::string& job, const std::string& id) const;

  // Calls `check` after every change of an attempt until it returns true.
  void Watch(std::function<bool()> check);

  const std::vector<std::shared_ptr<Attempt>>& in_flight() const { return in_flight_; }
  const std::map<std::string, std::deque<Outcome>>& failures() const { return failures_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  // Job, incarnation, id.
  struct Refusal {
    Key key;
    Failure failure;
    uint32_t world_size = 0;
    std::set<uint32_t> told;
  };

  bool AnswerRepeated(const Session& session, const SaveOptions& options,
                      const std::optional<ResumeState>& resume,
                      const std::shared_ptr<SaveStream>& stream, Ticket& ticket);
  bool AnswerRefused(const Key& key, uint32_t rank, SaveStream& stream);
  void Refuse(Refusal refusal);
  void Join(const Session& session, std::shared_ptr<Root> root, const SaveOptions& options,
            std::shared_ptr<const RankPlan> plan, std::shared_ptr<SaveStream> stream,
            Ticket& ticket);
  void Resume(const Session& session, std::shared_ptr<Root> root, const SaveOptions& options,
              std::shared_ptr<const RankPlan> plan, ResumeState resume,
              std::shared_ptr<SaveStream> stream, Ticket& ticket);
  void AnswerFromDisk(std::shared_ptr<Root> root, const std::string& job, const std::string& id,
                      AttemptName attempt, std::shared_ptr<SaveStream> stream);
  uint32_t AdmittedCount(const std::string& job) const;
  Failure OverlapFailure(const std::string& job, absl::string_view what) const;
  void AdmitWaiting();
  bool IsBeginning(const std::string& job) const;
  void OnEnd(Attempt& attempt);
  void Changed();
  std::shared_ptr<Attempt> FindJoinable(const Key& key) const;
  bool FailIfOfEarlierLife(Attempt& attempt, const Session& session, bool earlier) const;

  AttemptContext& context_;
  const Options options_;
  std::vector<std::shared_ptr<Attempt>> in_flight_;  // In the order of their first join.
  std::deque<std::shared_ptr<Attempt>> ended_;
  std::deque<Refusal> refusals_;
  std::map<std::string, std::deque<Outcome>> failures_;  // By job, oldest first.
  std::vector<std::function<bool()>> watchers_;
  std::function<void()> drained_;
  bool draining_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ATTEMPTS_H_
