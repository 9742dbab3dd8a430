// SendQueue sends messages on a gRPC stream one after the other, from any thread, and finishes the
// call when the last is out.
//
// gRPC's callback API allows one write at a time and one Finish. A class derives from its reactor
// and from this, and forwards OnWriteDone.
#ifndef CKPTD_SERVER_RPC_SEND_QUEUE_H_
#define CKPTD_SERVER_RPC_SEND_QUEUE_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace ckptd {

template <class Reactor, class Reply>
class SendQueue {
 public:
  explicit SendQueue(Reactor* reactor) : reactor_(reactor) {}

  void Send(Reply reply) {
    std::lock_guard lock(mutex_);
    if (finish_ || finished_) return;
    queue_.push_back(std::move(reply));
    if (queue_.size() == 1) reactor_->StartWrite(&queue_.front());
  }

  // Nothing can be sent after this; what is queued still goes out.
  void FinishWhenSent(grpc::Status status) {
    std::lock_guard lock(mutex_);
    if (finish_ || finished_) return;
    finish_ = std::move(status);
    FinishIfEmpty();
  }

  // The stream is broken: drop what is queued.
  void Break() {
    std::lock_guard lock(mutex_);
    if (queue_.size() > 1)
      queue_.erase(queue_.begin() + 1, queue_.end());  // The first is being written.
    if (!finish_) finish_ = grpc::Status::CANCELLED;
    FinishIfEmpty();
  }

  void WriteDone(bool ok) {
    std::lock_guard lock(mutex_);
    queue_.pop_front();
    if (!ok) {
      queue_.clear();
      if (!finish_) finish_ = grpc::Status::CANCELLED;
    }
    if (!queue_.empty()) {
      reactor_->StartWrite(&queue_.front());
    } else {
      FinishIfEmpty();
    }
  }

 private:
  void FinishIfEmpty() {
    if (!finish_ || finished_ || !queue_.empty()) return;
    finished_ = true;
    reactor_->Finish(*finish_);
  }

  Reactor* const reactor_;
  std::mutex mutex_;  // Guards the rest.
  std::deque<Reply> queue_;
  std::optional<grpc::Status> finish_;
  bool finished_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_SEND_QUEUE_H_
