// Attempts is the table of all attempts of this daemon: pairing, admission, and the memory of what
// ended.
//
// Ranks are paired by (job, incarnation, checkpoint id), never by the order in which they come. Per
// job at most max_inflight_attempts are admitted; one more waits up to admit_timeout, or is
// refused.
//
// A save has the same outcome on all its ranks, on those too that call it after it has failed: a
// failure that not all ranks had joined is remembered (Verdict), and a rank that was not told yet
// is told once, instead of waiting in a new attempt for ranks that have given up. What comes is a
// new attempt, and the verdict forgotten, if
//  - the rank was told already: it tries again, and the others may join it at once;
//  - its session began after one of the failed attempt's ranks had ended: another life of the job;
//  - it names another step or world size, or --join-timeout has passed since: another save.
// Attempts that an earlier life of the daemon left leave no verdict: their ranks come back to them
// (Resume), and those that do not are of another life.
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

  static constexpr size_t kEndedKept = 100;     // For repeated requests.
  static constexpr size_t kVerdictsKept = 100;  // Of those that ranks have not heard yet.
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
  struct Verdict {
    Key key;
    int64_t step = 0;
    uint32_t world_size = 0;
    Failure failure;
    std::set<uint32_t> told;
    uint64_t life_ended = 0;  // Session::ended of the first of its ranks that has ended; 0: none.
    absl::Duration expires;   // Monotonic.
  };
  // Of an attempt in flight.
  struct Fate {
    uint64_t life_ended = 0;  // As above.
    bool pronounced = false;  // Its verdict is, or was, remembered.
  };

  bool AnswerRepeated(const Session& session, const SaveOptions& options,
                      const std::optional<ResumeState>& resume,
                      const std::shared_ptr<SaveStream>& stream, Ticket& ticket);
  bool AnswerVerdict(const Key& key, const Session& session, const SaveOptions& options,
                     SaveStream& stream);
  void Pronounce(const Attempt& attempt);
  void Remember(Verdict verdict);
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
  static Key KeyOf(const Attempt& attempt);
  std::shared_ptr<Attempt> FindJoinable(const Key& key) const;
  bool FailIfOfEarlierLife(Attempt& attempt, const Session& session, bool earlier) const;

  AttemptContext& context_;
  const Options options_;
  std::vector<std::shared_ptr<Attempt>> in_flight_;  // In the order of their first join.
  std::deque<std::shared_ptr<Attempt>> ended_;
  std::map<const Attempt*, Fate> fates_;
  std::deque<Verdict> verdicts_;
  std::map<std::string, std::deque<Outcome>> failures_;  // By job, oldest first.
  std::vector<std::function<bool()>> watchers_;
  std::function<void()> drained_;
  bool draining_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ATTEMPTS_H_
