// How a rank comes back to its save: on a new stream to the same daemon, or with its arena to a
// restarted one.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/attempt.h"
#include "storage/base/status.h"

namespace ckptd {

absl::Status Attempt::Resume(const Session& session, const SaveOptions& options,
                             std::shared_ptr<const RankPlan> plan, ResumeState resume,
                             std::shared_ptr<SaveStream> stream) {
  RETURN_IF_ERROR(CheckFits(session, options));
  auto found = ranks_.find(session.info.rank);
  if (found != ranks_.end()) {
    if (found->second.token != session.token) {
      return absl::AlreadyExistsError(absl::StrCat("rank ", session.info.rank,
                                                   " of this attempt is process ",
                                                   found->second.pid, ", not ", session.info.pid));
    }
    Reattach(found->second, resume, std::move(stream));
    return absl::OkStatus();
  }
  bool ascending =
      std::is_sorted(resume.ordinals.begin(), resume.ordinals.end(), std::less_equal<>());
  if (!ascending || (!resume.ordinals.empty() && resume.ordinals.back() >= OrdinalCount(*plan))) {
    return absl::InvalidArgumentError(
        "the ordinals to resume are not ascending numbers of the plan");
  }
  umask_ = session.info.umask;
  AskToKeep(options);
  replicas_ = options.replicas;
  RankSave save = NewRank(session, options, plan, std::move(stream));
  save.ordinals = resume.ordinals;
  save.assigned = !resume.ordinals.empty() || !resume.sealed.empty() || resume.staged;
  uint32_t rank = save.rank;
  bool assigned = save.assigned;
  save.state = RankSave::State::kJoined;
  ranks_[rank] = std::move(save);
  Point("joined");
  Event("attempt.joined", rank);
  Progress();
  if (SaveStream* joined = ranks_[rank].stream.get()) joined->Admitted(record_.attempt);
  if (!assigned) {
    MaybePlan();  // It had joined, but was never planned.
    return absl::OkStatus();
  }
  root_->writers().Post(
      [self = shared_from_this(), rank, plan = std::move(plan), resume = std::move(resume)] {
        auto layout = std::make_shared<const ImageLayout>(LayOutImage(*plan, resume.ordinals));
        self->context_.loop.Post(
            [self, rank, resume, layout] { self->TakeBack(rank, resume, layout); });
      });
  return absl::OkStatus();
}

// The same daemon, a new stream: say again what the client may have missed.
void Attempt::Reattach(RankSave& rank, const ResumeState& resume,
                       std::shared_ptr<SaveStream> stream) {
  rank.stream = std::move(stream);
  Progress();
  if (minted()) rank.stream->Admitted(record_.attempt);
  if (!rank.assigned || rank.layout == nullptr) return;
  bool was_staged = rank.staged();
  rank.stream->Assigned(rank.ordinals, rank.arena == nullptr ? 0 : rank.arena->generation());
  for (const ResumedBlock& held : resume.sealed) {
    if (held.image_block < rank.blocks.size() &&
        rank.blocks[held.image_block].state == ImageBlock::State::kGranted) {
      Sealed(rank.rank, held.image_block, held.arena_block, held.unit_crc32c);
    }
  }
  std::vector<BlockGrant> grants;
  for (uint32_t i = 0; i < rank.blocks.size(); ++i) {
    if (rank.blocks[i].state == ImageBlock::State::kGranted)
      grants.push_back({i, rank.blocks[i].arena_block});
  }
  if (!grants.empty() && rank.stream) rank.stream->Granted(grants);
  if (was_staged && rank.stream) rank.stream->Staged();
  if (node_durable_ && rank.stream) rank.stream->Durable();
}

// Until a rank is back, blocks of its arena that look free may hold its image.
bool Attempt::AwaitsBlocksOf(uint32_t rank) const {
  if (!restarted_ || (state_ != State::kJoining && state_ != State::kStaging)) return false;
  auto found = ranks_.find(rank);
  return found == ranks_.end() || (found->second.assigned && found->second.layout == nullptr);
}

// A restarted daemon: the blocks that the client still holds are sealed as they are, the others are
// filled again. Everything is written anew, since what an earlier life wrote was never synced.
void Attempt::TakeBack(uint32_t number, const ResumeState& resume,
                       std::shared_ptr<const ImageLayout> layout) {
  if (state_ != State::kJoining && state_ != State::kStaging) return;
  RankSave& rank = ranks_.at(number);
  rank.layout = std::move(layout);
  if (state_ == State::kJoining) {
    state_ = State::kStaging;
    reported_ = "staging";
  }
  // As it is: what is sealed lies in it.
  if (!resume.sealed.empty()) rank.arena = context_.arenas.Find(record_.job, number);
  StartStaging(rank, resume.sealed);
  if (state_ == State::kAborting) return;
  if (resume.staged && !rank.staged()) {
    return Fail(FailureOf(
        absl::AbortedError(absl::StrCat("the daemon restarted, and rank ", number, " holds ",
                                        rank.blocks.size() - rank.unsealed, " of its ",
                                        rank.blocks.size(), " staged blocks: the bytes are gone")),
        number, "settle"));
  }
  context_.arenas.NotifyFree(record_.job,
                             number);  // For this attempt and those that waited for it.
  MaybePlan();
}

}  // namespace ckptd
