// ListWriter sends a list of messages on a server stream, then the status. Deletes itself.
#ifndef CKPTD_SERVER_RPC_LIST_WRITER_H_
#define CKPTD_SERVER_RPC_LIST_WRITER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <utility>

#include "server/rpc/send_queue.h"

namespace ckptd {

// Send() and FinishWhenSent() of sender() may be called from any thread by whoever holds the
// shared_ptr.
template <class Reply>
class ListWriter : public grpc::ServerWriteReactor<Reply>,
                   public std::enable_shared_from_this<ListWriter<Reply>> {
 public:
  static std::shared_ptr<ListWriter> Make() {
    auto writer = std::make_shared<ListWriter>();
    writer->self_ = writer;
    return writer;
  }

  ListWriter() : sender_(this) {}

  SendQueue<ListWriter, Reply>& sender() { return sender_; }

  void OnWriteDone(bool ok) override { sender_.WriteDone(ok); }
  void OnCancel() override { sender_.Break(); }
  void OnDone() override { std::shared_ptr<ListWriter> last = std::move(self_); }

 private:
  std::shared_ptr<ListWriter> self_;  // Until OnDone.
  SendQueue<ListWriter, Reply> sender_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_RPC_LIST_WRITER_H_
