#include "client/cli/several_roots.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/status.h"

namespace ckptd {

// One thing of an id: a committed checkpoint before a damaged one before an attempt.
struct SeveralRoots::Holder {
  size_t root = 0;
  enum class Kind { kAttempt, kDamaged, kCommitted } kind = Kind::kAttempt;
  uint64_t sequence = 0;
  std::string attempt;

  friend bool operator<(const Holder& a, const Holder& b) {
    return std::tie(a.kind, a.sequence, a.attempt) < std::tie(b.kind, b.sequence, b.attempt);
  }
};

// What the roots list of one job.
struct SeveralRoots::Looked {
  std::string job;
  Answers<v1::ListReply> lists;
};

namespace {

// The rest says that the root itself could not be read.
bool IsAnswer(const absl::Status& status) {
  return status.ok() || absl::IsNotFound(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status) || absl::IsDataLoss(status);
}

// Whether it says no more than that this root has not got it.
bool IsAbsence(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
}

int Weight(const absl::Status& status) {
  if (absl::IsNotFound(status)) return 0;
  if (absl::IsFailedPrecondition(status)) return 1;
  return IsAnswer(status) ? 3 : 2;
}

// Of roots none of which has an answer: the weightiest reasons.
template <typename Answers>
absl::Status ErrorOf(const Answers& answers) {
  absl::Status heaviest;
  for (const auto& answer : answers) {
    const absl::Status& status = answer.status();
    if (heaviest.ok() || Weight(status) > Weight(heaviest)) heaviest = status;
  }
  std::vector<std::string> messages;
  for (const auto& answer : answers) {
    std::string message(answer.status().message());
    bool same = Weight(answer.status()) == Weight(heaviest);
    if (same && std::find(messages.begin(), messages.end(), message) == messages.end())
      messages.push_back(std::move(message));
  }
  return absl::Status(heaviest.code(), absl::StrJoin(messages, "; "));
}

template <typename Answers>
bool AnyOk(const Answers& answers) {
  return std::any_of(answers.begin(), answers.end(), [](const auto& a) { return a.ok(); });
}

template <typename Messages>
void Sort(Messages& messages) {
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) {
    return std::pair(a.sequence(), a.attempt()) < std::pair(b.sequence(), b.attempt());
  });
}

template <typename Message>
std::tuple<bool, uint64_t, std::string> Age(bool committed, const Message& message) {
  return {committed, message.sequence(), message.attempt()};
}

std::tuple<bool, uint64_t, std::string> AgeOf(const v1::ShowReply& reply) {
  return reply.has_checkpoint() ? Age(true, reply.checkpoint()) : Age(false, reply.attempt());
}

}  // namespace

SeveralRoots::SeveralRoots(std::vector<Root> roots) {
  for (Root& root : roots) slots_.push_back({std::move(root), absl::OkStatus()});
}

std::string SeveralRoots::NameOf(const Root& root) const {
  return absl::StrCat("root \"", root.label, "\" (", root.path, ")");
}

template <typename Reply>
SeveralRoots::Answers<Reply> SeveralRoots::Ask(
    const std::function<absl::StatusOr<Reply>(Source&)>& question) {
  Answers<Reply> answers;
  for (const Slot& slot : slots_) {
    answers.emplace_back(slot.unread.ok() ? absl::UnknownError("not asked") : slot.unread);
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].unread.ok()) continue;
    threads.emplace_back([&, i] { answers[i] = question(*slots_[i].root.source); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < slots_.size(); ++i) {
    const absl::Status status = answers[i].status();
    if (IsAnswer(status) || !slots_[i].unread.ok()) continue;
    std::string name = NameOf(slots_[i].root);
    bool named = absl::StrContains(status.message(), name);
    slots_[i].unread = named ? status : WithContext(status, name);
    answers[i] = slots_[i].unread;
    Warn(absl::StrCat("not read: ", std::string(slots_[i].unread.message())));
  }
  return answers;
}

absl::Status SeveralRoots::Unread() const {
  for (const Slot& slot : slots_) {
    if (!slot.unread.ok()) return slot.unread;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> SeveralRoots::OneJob(const std::string& job) {
  if (!job.empty()) return job;
  ASSIGN_OR_RETURN(v1::ListReply all, List("", true));
  std::set<std::string> jobs;
  for (const auto& checkpoint : all.checkpoints()) jobs.insert(checkpoint.job());
  for (const auto& attempt : all.attempts()) jobs.insert(attempt.job());
  for (const auto& damaged : all.damaged()) jobs.insert(damaged.job());
  if (jobs.size() == 1) return *jobs.begin();
  if (jobs.empty()) {
    RETURN_IF_ERROR(Unread());
    return absl::NotFoundError("nothing there: no root has a job");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("several jobs; name one with --job: ", absl::StrJoin(jobs, ", ")));
}

absl::StatusOr<v1::ListReply> SeveralRoots::List(const std::string& job, bool failed) {
  auto answers = Ask<v1::ListReply>([&](Source& source) { return source.List(job, failed); });
  if (!AnyOk(answers)) return ErrorOf(answers);
  v1::ListReply all;
  for (const auto& answer : answers) {
    if (answer.ok()) all.MergeFrom(*answer);
  }
  Sort(*all.mutable_checkpoints());
  Sort(*all.mutable_attempts());
  return all;
}

absl::StatusOr<v1::Checkpoint> SeveralRoots::Latest(const std::string& job) {
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  auto answers = Ask<v1::Checkpoint>([&](Source& source) { return source.Latest(one); });
  if (!AnyOk(answers)) return ErrorOf(answers);
  const v1::Checkpoint* latest = nullptr;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ok()) {
      if (latest == nullptr || Age(true, *latest) < Age(true, *answers[i])) latest = &*answers[i];
    } else if (slots_[i].unread.ok() && !IsAbsence(answers[i].status())) {
      Warn(absl::StrCat(NameOf(slots_[i].root), ": ", std::string(answers[i].status().message())));
    }
  }
  return *latest;
}

// `holders` are in the order of their age: the last is the one that is meant.
void SeveralRoots::WarnOfOthers(const std::string& id, const std::vector<size_t>& holders) {
  if (holders.size() < 2) return;
  std::vector<std::string> others;
  for (size_t root : holders) {
    if (root != holders.back()) others.push_back(NameOf(slots_[root].root));
  }
  Warn(absl::StrCat("this \"", id, "\" is that of ", NameOf(slots_[holders.back()].root),
                    ", the newest; there is another in ", absl::StrJoin(others, ", "),
                    ": name a root with --root-label"));
}

absl::StatusOr<v1::ShowReply> SeveralRoots::Show(const std::string& job, const std::string& name) {
  ASSIGN_OR_RETURN(std::string one, OneJob(job));
  auto answers = Ask<v1::ShowReply>([&](Source& source) { return source.Show(one, name); });
  if (!AnyOk(answers)) return ErrorOf(answers);
  std::vector<size_t> found;
  for (size_t i = 0; i < answers.size(); ++i) {
    if (answers[i].ok()) {
      found.push_back(i);
    } else if (slots_[i].unread.ok() && !IsAbsence(answers[i].status())) {
      Warn(absl::StrCat(NameOf(slots_[i].root), ": ", std::string(answers[i].status().message())));
    }
  }
  std::sort(found.begin(), found.end(),
            [&](size_t a, size_t b) { return AgeOf(*answers[a]) < AgeOf(*answers[b]); });
  v1::ShowReply& best = *answers[found.back()];
  // Beside a checkpoint, attempts at it are nothing to be told of.
  std::erase_if(found,
                [&](size_t i) { return answers[i]->has_checkpoint() != best.has_checkpoint(); });
  WarnOfOthers(name, found);
  return std::move(best);
}

absl::StatusOr<SeveralRoots::Looked> SeveralRoots::Look(const std::string& job, bool failed) {
  Looked looked;
  ASSIGN_OR_RETURN(looked.job, OneJob(job));
  looked.lists =
      Ask<v1::ListReply>([&](Source& source) { return source.List(looked.job, failed); });
  if (!AnyOk(looked.lists)) return ErrorOf(looked.lists);
  return looked;
}

// Oldest first; at least one. Attempts only if there is nothing else.
absl::StatusOr<std::vector<SeveralRoots::Holder>> SeveralRoots::HoldersOf(
    const Looked& looked, const std::string& id) const {
  std::vector<Holder> holders;
  for (size_t i = 0; i < looked.lists.size(); ++i) {
    if (!looked.lists[i].ok()) continue;
    for (const auto& damaged : looked.lists[i]->damaged()) {
      if (damaged.id() == id) holders.push_back({i, Holder::Kind::kDamaged, 0, ""});
    }
    for (const auto& known : looked.lists[i]->checkpoints()) {
      if (known.id() == id)
        holders.push_back({i, Holder::Kind::kCommitted, known.sequence(), known.attempt()});
    }
  }
  if (holders.empty()) {
    for (size_t i = 0; i < looked.lists.size(); ++i) {
      if (!looked.lists[i].ok()) continue;
      for (const auto& known : looked.lists[i]->attempts()) {
        if (known.checkpoint_id() == id)
          holders.push_back({i, Holder::Kind::kAttempt, known.sequence(), known.attempt()});
      }
    }
  }
  if (holders.empty()) {
    RETURN_IF_ERROR(Unread());
    return absl::NotFoundError(
        absl::StrCat("there is no checkpoint \"", id, "\" of job \"", looked.job, "\""));
  }
  std::sort(holders.begin(), holders.end());
  return holders;
}

absl::StatusOr<SeveralRoots::Place> SeveralRoots::Find(const std::string& job,
                                                       const std::string& id) {
  ASSIGN_OR_RETURN(Looked looked, Look(job, true));
  ASSIGN_OR_RETURN(std::vector<Holder> holders, HoldersOf(looked, id));
  if (holders.back().kind != Holder::Kind::kAttempt) {
    std::vector<size_t> roots;
    for (const Holder& holder : holders) roots.push_back(holder.root);
    WarnOfOthers(id, roots);
  }
  return Place{looked.job, slots_[holders.back().root].root.label};
}

absl::StatusOr<v1::DescribeReply> SeveralRoots::Describe(const std::string& job,
                                                         const std::string& id,
                                                         const std::string& glob) {
  ASSIGN_OR_RETURN(Place place, Find(job, id));
  for (const Slot& slot : slots_) {
    if (slot.root.label == place.root) return slot.root.source->Describe(place.job, id, glob);
  }
  return absl::InternalError("no such root");
}

absl::StatusOr<std::vector<v1::VerifyReply>> SeveralRoots::Verify(
    const std::string& job, const std::vector<std::string>& ids) {
  using Replies = std::vector<v1::VerifyReply>;
  Replies all;
  if (!ids.empty()) {
    ASSIGN_OR_RETURN(Looked looked, Look(job, false));
    for (const std::string& id : ids) {
      ASSIGN_OR_RETURN(std::vector<Holder> holders, HoldersOf(looked, id));
      std::vector<size_t> roots;
      for (const Holder& holder : holders) roots.push_back(holder.root);
      WarnOfOthers(id, roots);
      Source& source = *slots_[roots.back()].root.source;
      ASSIGN_OR_RETURN(Replies replies, source.Verify(looked.job, {id}));
      std::move(replies.begin(), replies.end(), std::back_inserter(all));
    }
    return all;
  }
  // Reading may take any time: a root that hangs is found out first.
  RETURN_IF_ERROR(List(job, false).status());
  auto answers = Ask<Replies>([&](Source& source) { return source.Verify(job, {}); });
  if (!AnyOk(answers)) return ErrorOf(answers);
  for (size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i].ok()) continue;
    for (v1::VerifyReply& reply : *answers[i]) {
      if (!reply.ok())
        Warn(absl::StrCat("\"", reply.id(), "\" is damaged in ", NameOf(slots_[i].root)));
      all.push_back(std::move(reply));
    }
  }
  return all;
}

absl::StatusOr<std::vector<SeveralRoots::Doomed>> SeveralRoots::FindToDelete(
    const std::string& job, const std::vector<std::string>& ids) {
  ASSIGN_OR_RETURN(Looked looked, Look(job, false));
  // It may hold the same id.
  if (absl::Status unread = Unread(); !unread.ok()) {
    return absl::Status(unread.code(), absl::StrCat(unread.message(),
                                                    "; nothing is deleted: to do without this "
                                                    "root, name another with --root-label"));
  }
  std::vector<Doomed> doomed;
  std::set<std::string> seen;
  for (const std::string& id : ids) {
    if (!seen.insert(id).second) continue;
    ASSIGN_OR_RETURN(std::vector<Holder> holders, HoldersOf(looked, id));
    if (holders.size() > 1 && holders.back().kind != Holder::Kind::kAttempt) {
      std::vector<std::string> names;
      for (const Holder& holder : holders) names.push_back(NameOf(slots_[holder.root].root));
      return absl::InvalidArgumentError(absl::StrCat(
          "checkpoint \"", id, "\" of job \"", looked.job, "\" is in several roots: ",
          absl::StrJoin(names, ", "), "; nothing is deleted: name one with --root-label"));
    }
    doomed.push_back({id, {looked.job, slots_[holders.back().root].root.label}});
  }
  return doomed;
}

}  // namespace ckptd
