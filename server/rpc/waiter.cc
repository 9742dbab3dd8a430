#include "server/rpc/waiter.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/ckptd/folder_queries.h"
#include "server/rpc/status_conversion.h"
#include "server/rpc/status_reply.h"

namespace ckptd {

Waiter::Waiter(Core& core, v1::WaitRequest request, v1::Attempt* reply)
    : core_(core),
      request_(std::move(request)),
      reply_(reply),
      link_(std::make_shared<Link>(Link{this})) {}

void Waiter::Start() {
  core_.loop().Post([this, link = link_] {
    if (link->waiter == nullptr) return;
    const std::string& state = request_.state();
    if (state != "staged" && state != "durable" && state != "committed") {
      return Answer(absl::InvalidArgumentError(
          absl::StrCat("cannot wait for \"", state, "\"; states are staged, durable, committed")));
    }
    absl::StatusOr<std::shared_ptr<Root>> root = core_.FindRoot(request_.root());
    if (!root.ok()) return Answer(root.status());
    root_ = *root;
    Look();
  });
}

void Waiter::OnCancel() {
  core_.loop().Post([link = link_] {
    if (link->waiter != nullptr)
      link->waiter->Answer(absl::DeadlineExceededError("not reached in time"));
  });
}

bool Waiter::Reached(const Attempt& attempt) const {
  Attempt::State state = attempt.state();
  if (state == Attempt::State::kAborting) return false;
  if (request_.state() == "staged") return state >= Attempt::State::kWriting;
  if (request_.state() == "durable") return state >= Attempt::State::kDurable;
  return state == Attempt::State::kEnded;
}

void Waiter::Look() {
  std::string job = request_.job();
  if (job.empty()) {  // The only one in flight, if there is one.
    for (const std::shared_ptr<Attempt>& attempt : core_.attempts().in_flight())
      job = attempt->record().job;
  }
  std::shared_ptr<Attempt> attempt = core_.attempts().FindInFlight(job, request_.checkpoint_id());
  if (attempt == nullptr) return LookOnDisk();
  core_.attempts().Watch([link = link_, attempt] {
    if (link->waiter == nullptr) return true;
    if (attempt->state() != Attempt::State::kEnded && !link->waiter->Reached(*attempt))
      return false;
    link->waiter->Answer(ToProto(*attempt));
    return true;
  });
}

void Waiter::LookOnDisk() {
  root_->readers().Post([&core = core_, link = link_, root = root_, request = request_] {
    absl::StatusOr<v1::ShowReply> found = FolderQueries(root->disk(), root->label(), root->path())
                                              .Show(request.job(), request.checkpoint_id());
    core.loop().Post([link, found = std::move(found)] {
      if (link->waiter == nullptr) return;
      if (!found.ok()) return link->waiter->Answer(found.status());
      if (found->has_checkpoint()) return link->waiter->Answer(AttemptOf(found->checkpoint()));
      link->waiter->Answer(found->attempt());
    });
  });
}

void Waiter::Answer(absl::StatusOr<v1::Attempt> answer) {
  link_->waiter = nullptr;
  if (answer.ok()) *reply_ = *answer;
  Finish(ToGrpc(answer.status()));
}

}  // namespace ckptd
