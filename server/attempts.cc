#include "server/attempts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

Failure AdmitFailure(absl::Status status, const std::string& node) {
  return Failure{std::move(status), std::nullopt, node, "admit"};
}

absl::Status CheckRoot(const Attempt& attempt, const Root& root, uint32_t rank) {
  if (&attempt.root() == &root) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint \"", attempt.record().checkpoint_id, "\" goes to root \"", attempt.root().label(),
      "\", and rank ", rank, " joins with root \"", root.label(), "\""));
}

void AnswerEnded(const Attempt& attempt, SaveStream& stream) {
  if (attempt.result() == Attempt::Result::kCommitted) {
    stream.Committed(attempt.checkpoint());
  } else {
    stream.Failed(attempt.failure());
  }
}

}  // namespace

Attempts::Attempts(AttemptContext& context, Options options)
    : context_(context), options_(options) {
  context_.on_change = [this] {
    Changed();
    AdmitWaiting();
  };
  context_.reserved = [this](const Attempt& asking, const RankSave& rank) {
    return rank.arena->adopted() &&
           std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& other) {
             return other.get() != &asking && other->record().job == asking.record().job &&
                    other->AwaitsBlocksOf(rank.rank);
           });
  };
}

Attempts::~Attempts() {
  for (const std::shared_ptr<Attempt>& attempt : in_flight_) attempt->DropStreams();
}

void Attempts::Save(const Session& session, std::shared_ptr<Root> root, const SaveOptions& options,
                    std::shared_ptr<const RankPlan> plan, std::optional<ResumeState> resume,
                    std::shared_ptr<SaveStream> stream, std::shared_ptr<Ticket> ticket) {
  ticket->rank = session.info.rank;
  // A rank that begins a new save has stopped filling what its ended ones were granted.
  for (size_t i = 0; i < ended_.size() && !resume; ++i) {
    if (ended_[i]->record().job == session.info.job) ended_[i]->ReleaseGranted(session);
  }
  if (AnswerRepeated(session, options, resume, stream, *ticket)) return;
  if (resume) {
    return Resume(session, std::move(root), options, std::move(plan), *std::move(resume),
                  std::move(stream), *ticket);
  }
  Join(session, std::move(root), options, std::move(plan), std::move(stream), *ticket);
}

// The same request again, its reply having been lost: the same answer.
bool Attempts::AnswerRepeated(const Session& session, const SaveOptions& options,
                              const std::optional<ResumeState>& resume,
                              const std::shared_ptr<SaveStream>& stream, Ticket& ticket) {
  auto is_it = [&](const Attempt& attempt) {
    if (attempt.record().job != session.info.job) return false;
    auto rank = attempt.ranks().find(session.info.rank);
    return rank != attempt.ranks().end() && rank->second.request_id == options.request_id &&
           rank->second.token == session.token;
  };
  for (const std::shared_ptr<Attempt>& attempt : in_flight_) {
    if (!is_it(*attempt) || attempt->state() == Attempt::State::kEnded) continue;
    absl::Status status =
        attempt->Resume(session, options, nullptr, resume.value_or(ResumeState()), stream);
    if (status.ok()) {
      ticket.attempt = attempt;
    } else {
      stream->Failed(AdmitFailure(status, context_.node));
    }
    return true;
  }
  for (const std::shared_ptr<Attempt>& attempt : ended_) {
    if (!is_it(*attempt)) continue;
    AnswerEnded(*attempt, *stream);
    return true;
  }
  return false;
}

// The save has failed, and this rank may not know yet: see the rule in attempts.h.
bool Attempts::AnswerVerdict(const Key& key, const Session& session, const SaveOptions& options,
                             SaveStream& stream) {
  for (const std::shared_ptr<Attempt>& attempt : in_flight_) {
    if (attempt->state() == Attempt::State::kAborting && KeyOf(*attempt) == key)
      Pronounce(*attempt);
  }
  auto found = std::find_if(verdicts_.begin(), verdicts_.end(),
                            [&](const Verdict& verdict) { return verdict.key == key; });
  if (found == verdicts_.end()) return false;
  bool same_save = found->step == options.step && found->world_size == session.info.world_size &&
                   context_.loop.clock().Monotonic() < found->expires;
  bool same_life = found->life_ended == 0 || session.opened < found->life_ended;
  if (!same_save || !same_life || !found->told.insert(session.info.rank).second) {
    verdicts_.erase(found);
    return false;
  }
  stream.Failed(found->failure);
  if (found->told.size() == found->world_size) verdicts_.erase(found);
  return true;
}

// Once per attempt that fails. It can commit no more: ranks are missing.
void Attempts::Pronounce(const Attempt& attempt) {
  Fate& fate = fates_[&attempt];
  if (std::exchange(fate.pronounced, true) || attempt.restarted()) return;
  const AttemptRecord& record = attempt.record();
  Verdict verdict{.key = KeyOf(attempt),
                  .step = record.step,
                  .world_size = record.world_size,
                  .failure = attempt.failure(),
                  .told = {},
                  .life_ended = fate.life_ended,
                  .expires = {}};
  for (const auto& [rank, save] : attempt.ranks()) verdict.told.insert(rank);
  Remember(std::move(verdict));
}

void Attempts::Remember(Verdict verdict) {
  if (verdict.told.size() >= verdict.world_size) return;
  verdict.expires = context_.loop.clock().Monotonic() + context_.join_timeout;
  std::erase_if(verdicts_, [&](const Verdict& old) { return old.key == verdict.key; });
  if (verdicts_.size() == kVerdictsKept) verdicts_.pop_front();
  verdicts_.push_back(std::move(verdict));
}

Attempts::Key Attempts::KeyOf(const Attempt& attempt) {
  const AttemptRecord& record = attempt.record();
  return {record.job, record.incarnation, record.checkpoint_id};
}

std::shared_ptr<Attempt> Attempts::FindJoinable(const Key& key) const {
  for (const std::shared_ptr<Attempt>& attempt : in_flight_) {
    if (KeyOf(*attempt) != key) continue;
    if (attempt->state() != Attempt::State::kAborting && attempt->state() != Attempt::State::kEnded)
      return attempt;
  }
  return nullptr;
}

// Ranks of two lives of a job are never paired: what the dead one staged and what the new one has
// are not one state.
bool Attempts::FailIfOfEarlierLife(Attempt& attempt, const Session& session, bool earlier) const {
  if (!earlier || attempt.MissingRanks().empty()) return false;
  attempt.Fail(Failure{
      absl::AbortedError(absl::StrCat("the job has started again (rank ", session.info.rank,
                                      " is process ", session.info.pid,
                                      "), and this attempt of its earlier life misses ranks")),
      session.info.rank, context_.node, "join"});
  return true;
}

void Attempts::SessionOpened(const Session& session,
                             const std::function<bool(const std::string& incarnation)>& lives) {
  std::vector<std::shared_ptr<Attempt>> attempts(in_flight_);
  for (const std::shared_ptr<Attempt>& attempt : attempts) {
    const AttemptRecord& record = attempt->record();
    if (record.job != session.info.job) continue;
    auto former = attempt->ranks().find(session.info.rank);
    bool successor = former != attempt->ranks().end() && former->second.session_ended != 0;
    bool same = record.incarnation == session.info.incarnation;
    // Ranks that a restarted daemon waits for have no session yet.
    bool over = !attempt->restarted() && !lives(record.incarnation);
    FailIfOfEarlierLife(*attempt, session, same ? successor : over);
  }
}

void Attempts::Join(const Session& session, std::shared_ptr<Root> root, const SaveOptions& options,
                    std::shared_ptr<const RankPlan> plan, std::shared_ptr<SaveStream> stream,
                    Ticket& ticket) {
  Key key{session.info.job, session.info.incarnation, options.checkpoint_id};
  std::shared_ptr<Attempt> attempt = FindJoinable(key);
  if (attempt != nullptr) {
    bool earlier =
        std::any_of(attempt->ranks().begin(), attempt->ranks().end(), [&](const auto& entry) {
          return entry.second.session_ended != 0 && entry.second.session_ended < session.opened;
        });
    if (FailIfOfEarlierLife(*attempt, session, earlier)) attempt = nullptr;
  }
  if (attempt == nullptr) {
    if (draining_)
      return stream->Failed(
          AdmitFailure(absl::UnavailableError("the daemon is stopping"), context_.node));
    if (AnswerVerdict(key, session, options, *stream)) return;
    if (!root->healthy()) {
      return stream->Failed(AdmitFailure(
          absl::UnavailableError(absl::StrCat("root \"", root->label(),
                                              "\" takes no saves: ", root->unhealthy_reason())),
          context_.node));
    }
    if (options.reject_overlap &&
        AdmittedCount(session.info.job) >= options_.max_inflight_attempts) {
      Verdict verdict{.key = key,
                      .step = options.step,
                      .world_size = session.info.world_size,
                      .failure = OverlapFailure(session.info.job, "on_overlap=reject"),
                      .told = {session.info.rank},
                      .life_ended = 0,
                      .expires = {}};
      stream->Failed(verdict.failure);
      return Remember(std::move(verdict));
    }
    attempt = std::make_shared<Attempt>(context_, std::move(root), session.info, options,
                                        [this](Attempt& ended) { OnEnd(ended); });
    in_flight_.push_back(attempt);
  } else if (absl::Status same = CheckRoot(*attempt, *root, session.info.rank); !same.ok()) {
    return stream->Failed(Failure{same, session.info.rank, context_.node, "join"});
  }
  absl::Status status = attempt->Join(session, options, std::move(plan), stream);
  if (!status.ok())
    return stream->Failed(Failure{status, session.info.rank, context_.node, "join"});
  ticket.attempt = attempt;
  AdmitWaiting();
  if (attempt->state() != Attempt::State::kWaiting || attempt->ranks().size() > 1) return;
  if (context_.on_event) context_.on_event("attempt.waiting", *attempt, session.info.rank);
  context_.loop.After(options_.admit_timeout, [this, attempt] {
    if (attempt->state() != Attempt::State::kWaiting) return;
    attempt->Fail(
        OverlapFailure(attempt->record().job,
                       absl::StrCat("waited ", ckptd::FormatDuration(options_.admit_timeout))));
  });
}

uint32_t Attempts::AdmittedCount(const std::string& job) const {
  return static_cast<uint32_t>(std::count_if(
      in_flight_.begin(), in_flight_.end(),
      [&](const auto& attempt) { return attempt->record().job == job && attempt->admitted(); }));
}

Failure Attempts::OverlapFailure(const std::string& job, absl::string_view what) const {
  std::vector<std::string> names;
  for (const std::shared_ptr<Attempt>& attempt : in_flight_) {
    if (attempt->record().job == job && attempt->admitted())
      names.push_back(attempt->record().checkpoint_id);
  }
  return AdmitFailure(
      absl::ResourceExhaustedError(absl::StrCat(
          names.size(), " saves of job \"", job, "\" are in flight (", absl::StrJoin(names, ", "),
          "), --max-inflight-attempts is ", options_.max_inflight_attempts, "; ", what)),
      context_.node);
}

void Attempts::AdmitWaiting() {
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    std::shared_ptr<Attempt> attempt = in_flight_[i];
    if (attempt->state() != Attempt::State::kWaiting) continue;
    const std::string& job = attempt->record().job;
    if (AdmittedCount(job) < options_.max_inflight_attempts && !IsBeginning(job)) attempt->Begin();
  }
}

// One after the other, so that sequences are minted in the order of the joins, each once.
bool Attempts::IsBeginning(const std::string& job) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(), [&](const auto& attempt) {
    return attempt->record().job == job && attempt->state() == Attempt::State::kBeginning;
  });
}

void Attempts::Resume(const Session& session, std::shared_ptr<Root> root,
                      const SaveOptions& options, std::shared_ptr<const RankPlan> plan,
                      ResumeState resume, std::shared_ptr<SaveStream> stream, Ticket& ticket) {
  auto is_it = [&](const std::shared_ptr<Attempt>& attempt) {
    return attempt->minted() && attempt->record().job == session.info.job &&
           attempt->record().attempt == resume.attempt;
  };
  auto live = std::find_if(in_flight_.begin(), in_flight_.end(), is_it);
  if (live != in_flight_.end()) {
    std::shared_ptr<Attempt> attempt = *live;
    absl::Status status = CheckRoot(*attempt, *root, session.info.rank);
    if (status.ok())
      status = attempt->Resume(session, options, std::move(plan), std::move(resume), stream);
    if (!status.ok())
      return stream->Failed(Failure{status, session.info.rank, context_.node, "join"});
    ticket.attempt = std::move(attempt);
    return;
  }
  auto over = std::find_if(ended_.begin(), ended_.end(), is_it);
  if (over != ended_.end()) return AnswerEnded(**over, *stream);
  AnswerFromDisk(std::move(root), session.info.job, options.checkpoint_id, resume.attempt,
                 std::move(stream));
}

// An attempt that an earlier life of this daemon ended.
void Attempts::AnswerFromDisk(std::shared_ptr<Root> root, const std::string& job,
                              const std::string& id, AttemptName attempt,
                              std::shared_ptr<SaveStream> stream) {
  root->readers().Post([this, root, job, id, attempt, stream = std::move(stream)] {
    auto checkpoint = FindCheckpoint(root->disk(), job, id);
    bool committed = checkpoint.ok() && checkpoint->manifest.attempt == attempt;
    Failure failure{
        absl::NotFoundError(absl::StrCat("attempt ", ToString(attempt), " of checkpoint \"", id,
                                         "\" is neither in flight nor remembered")),
        std::nullopt, context_.node, "settle"};
    if (!committed) {
      auto failed = ListFailed(root->disk(), job);
      if (failed.ok()) {
        for (const Outcome& outcome : *failed) {
          if (outcome.record.attempt == attempt) failure = outcome.failure;
        }
      }
    }
    context_.loop.Post([committed, checkpoint, failure, stream] {
      if (committed) {
        stream->Committed(*checkpoint);
      } else {
        stream->Failed(failure);
      }
    });
  });
}

void Attempts::Restore(std::shared_ptr<Root> root, AttemptRecord record) {
  auto attempt = std::make_shared<Attempt>(context_, std::move(root), std::move(record),
                                           [this](Attempt& ended) { OnEnd(ended); });
  in_flight_.push_back(attempt);
  attempt->Restart();
}

void Attempts::AddFailure(Outcome outcome) {
  std::deque<Outcome>& failures = failures_[outcome.record.job];
  failures.push_back(std::move(outcome));
  if (failures.size() > kFailuresKeptPerJob) failures.pop_front();
}

void Attempts::SessionEnded(const Session& session, SessionEnd end) {
  const SessionInfo& info = session.info;
  for (Verdict& verdict : verdicts_) {
    if (verdict.life_ended == 0 && std::get<0>(verdict.key) == info.job &&
        std::get<1>(verdict.key) == info.incarnation)
      verdict.life_ended = session.ended;
  }
  for (const std::shared_ptr<Attempt>& attempt : in_flight_) {
    auto rank = attempt->ranks().find(info.rank);
    bool of_it = attempt->record().job == info.job && rank != attempt->ranks().end() &&
                 rank->second.token == session.token;
    if (of_it && fates_[attempt.get()].life_ended == 0)
      fates_[attempt.get()].life_ended = session.ended;
  }
  std::vector<std::shared_ptr<Attempt>> attempts(in_flight_);
  attempts.insert(attempts.end(), ended_.begin(), ended_.end());
  for (const std::shared_ptr<Attempt>& attempt : attempts) {
    if (attempt->record().job == session.info.job) attempt->RankEnded(session, end);
  }
}

void Attempts::BlockFree(const std::string& job, uint32_t rank) {
  std::vector<std::shared_ptr<Attempt>> attempts(in_flight_);
  for (const std::shared_ptr<Attempt>& attempt : attempts) {
    if (attempt->record().job == job) attempt->GrantBlocks(rank);
  }
}

// Saves that were to go through this arena fail, with the numbers.
void Attempts::NoMemory(const std::string& job, uint32_t rank, const Arena& arena) {
  std::vector<std::shared_ptr<Attempt>> attempts(in_flight_);
  for (const std::shared_ptr<Attempt>& attempt : attempts) {
    auto save = attempt->ranks().find(rank);
    if (attempt->record().job != job || save == attempt->ranks().end() ||
        save->second.arena.get() != &arena)
      continue;
    attempt->Fail(Failure{arena.failure(), rank, context_.node, "stage"});
  }
}

void Attempts::Drain(std::function<void()> done) {
  draining_ = true;
  drained_ = std::move(done);
  if (in_flight_.empty()) std::exchange(drained_, nullptr)();
}

void Attempts::FailAll(const absl::Status& why) {
  std::vector<std::shared_ptr<Attempt>> attempts(in_flight_);
  for (const std::shared_ptr<Attempt>& attempt : attempts) {
    attempt->Fail(Failure{why, std::nullopt, context_.node, "write"});
  }
}

bool Attempts::StopWriting() {
  std::vector<std::shared_ptr<Attempt>> attempts(in_flight_);
  attempts.insert(attempts.end(), ended_.begin(), ended_.end());
  bool idle = true;
  for (const std::shared_ptr<Attempt>& attempt : attempts) {
    for (const auto& [rank, save] : attempt->ranks()) {
      if (save.writer == nullptr) continue;
      save.writer->Stop();
      idle = idle && save.writer->in_flight() == 0;
    }
  }
  return idle;
}

std::shared_ptr<Attempt> Attempts::FindInFlight(const std::string& job,
                                                const std::string& id) const {
  for (auto attempt = in_flight_.rbegin(); attempt != in_flight_.rend(); ++attempt) {
    if ((*attempt)->record().job == job && (*attempt)->record().checkpoint_id == id)
      return *attempt;
  }
  return nullptr;
}

std::shared_ptr<Attempt> Attempts::FindEnded(const std::string& job, const std::string& id) const {
  for (auto attempt = ended_.rbegin(); attempt != ended_.rend(); ++attempt) {
    if ((*attempt)->record().job == job && (*attempt)->record().checkpoint_id == id)
      return *attempt;
  }
  return nullptr;
}

void Attempts::Watch(std::function<bool()> check) {
  if (!check()) watchers_.push_back(std::move(check));
}

void Attempts::Changed() {
  std::vector<std::function<bool()>> watchers = std::exchange(watchers_, {});
  for (std::function<bool()>& check : watchers) {
    if (!check()) watchers_.push_back(std::move(check));
  }
}

void Attempts::OnEnd(Attempt& attempt) {
  auto position = std::find_if(in_flight_.begin(), in_flight_.end(),
                               [&](const auto& entry) { return entry.get() == &attempt; });
  if (position == in_flight_.end()) return;
  std::shared_ptr<Attempt> keep = *position;
  if (keep->result() != Attempt::Result::kCommitted) Pronounce(*keep);
  fates_.erase(keep.get());
  in_flight_.erase(position);
  ended_.push_back(keep);
  if (ended_.size() > kEndedKept) {
    // One that a living rank may still be writing for gives its blocks back first.
    auto idle = std::find_if(ended_.begin(), ended_.end(),
                             [](const auto& entry) { return !entry->HoldsBlocks(); });
    if (idle != ended_.end()) ended_.erase(idle);
  }
  if (keep->result() == Attempt::Result::kFailed) AddFailure(keep->MakeOutcome());
  // What was reserved for a restarted one is anybody's now.
  for (uint32_t rank = 0; keep->restarted() && rank < keep->record().world_size; ++rank)
    BlockFree(keep->record().job, rank);
  Changed();
  AdmitWaiting();
  if (in_flight_.empty() && drained_) std::exchange(drained_, nullptr)();
}

}  // namespace ckptd
