// SaveRun carries one save of one rank through, whatever happens to the daemon.
//
//  1. Wait for our turn: the saves of a session are staged in order.
//  2. Open a stream: begin and plan; or, if the daemon has admitted the save before, begin.resume
//     with what is still in the arena, and the same plan.
//  3. Read: admitted, assigned (lay out the image, get the arena), granted (copy those blocks,
//     report each as sealed), staged (the tensors are free, the next save's turn), durable,
//     committed or failed.
//  4. If the stream breaks, wait for the next connection and go to 2.
//
// A save that is cancelled goes on until the daemon has heard of it, or is gone; before its turn it
// just ends. It reads the tensors no more.
//
// Threads: Run() on a thread of its own, which starts another that sends; Cancel() and
// AwaitCopies() on any. Only the thread that sends waits for a daemon that does not read.
#ifndef CKPTD_CLIENT_CPP_SAVE_RUN_H_
#define CKPTD_CLIENT_CPP_SAVE_RUN_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/arena_map.h"
#include "client/cpp/connection.h"
#include "client/cpp/image_source.h"
#include "client/cpp/link.h"
#include "client/cpp/options.h"
#include "client/cpp/outbox.h"
#include "client/cpp/save_progress.h"
#include "client/cpp/state_plan.h"
#include "client/cpp/turns.h"
#include "client/cpp/worker_pool.h"
#include "proto/ckptd/v1/checkpoint.grpc.pb.h"
#include "storage/plan/image_layout.h"

namespace ckptd::inline client {

// What the saves of a session share. Outlives them.
struct SaveContext {
  Link& link;
  Arena& arena;
  WorkerPool& pool;
  Turns& turns;
  uint32_t rank;
};

struct SaveSettings {
  OnExisting on_existing;
  OnOverlap on_overlap;
  Replicas replicas;
  absl::Duration join_timeout;
  uint32_t keep_last = 0;
  absl::Duration daemon_lost_timeout;  // Before it is admitted.
  absl::Duration reattach_timeout;     // Between admitted and staged.
  std::function<void(uint64_t)> on_copied;
};

class SaveRun {
 public:
  // `number` is 1 or more and unique in the session; `turn` is this save's.
  SaveRun(SaveContext context, SaveSettings settings, uint64_t number, Turns::Turn turn,
          std::unique_ptr<PlannedState> state, std::shared_ptr<SaveProgress> progress);

  void Run();  // Until the outcome is known or the link was stopped.
  // Asks the daemon; without one, the save fails here. Returns at once.
  void Cancel();
  // After Cancel(): returns once no copy runs; none will begin. Waits for parts of a MiB only,
  // never for the daemon or for on_copied.
  void AwaitCopies();

  bool finished() const { return finished_; }  // Run() is about to return.
  const std::shared_ptr<SaveProgress>& progress() const { return progress_; }
  // The memory of the block that was sealed last, while the save is in flight.
  std::span<std::byte> LastSealedBlock() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::SaveRequest, v1::SaveReply>;

  struct Sealed {
    uint32_t arena_block;
    std::vector<uint32_t> unit_crc32c;
  };
  // An image block that is being copied.
  struct Filling {
    v1::BlockGrant grant;
    bool enter_pages = false;
    std::vector<Unit> units;
    std::vector<uint32_t> crcs;
    std::atomic<size_t> left{0};
  };

  absl::Duration Patience() const;
  // OK if the stream ended with an outcome; else why it broke.
  absl::Status RunStream(const std::shared_ptr<Connection>& connection);
  // On a thread of its own: sends what begins the save, and what comes into the outbox.
  void SendAll(Stream& stream, const v1::SaveRequest& begin);
  v1::SaveRequest Begin() const;
  void AddResume(v1::SaveBegin* begin) const;
  void SendCancel();
  void Handle(const v1::SaveReply& reply, Connection& connection);
  void HandleAssigned(const v1::Assigned& assigned, Connection& connection);
  void Fill(const v1::Granted& granted);
  void CopyUnit(Filling& filling, size_t unit);
  void Seal(Filling& filling);
  void Fail(absl::Status status);
  void EndStaging();
  uint64_t BlockBytes(uint32_t image_block) const;
  uint32_t BlockCount() const;

  const SaveContext context_;
  const SaveSettings settings_;
  const uint64_t number_;
  const Turns::Turn turn_;
  const std::shared_ptr<SaveProgress> progress_;
  std::unique_ptr<PlannedState> state_;

  // Of the thread that runs, from assigned on.
  std::vector<uint32_t> ordinals_;
  std::vector<uint32_t> arriving_ordinals_;
  bool assigned_ = false;
  bool ended_ = false;
  ImageLayout layout_;
  std::optional<ImageSource> source_;

  // The daemon that was sent the whole plan, and may have an attempt that we have not heard of.
  std::string told_daemon_;
  std::atomic<bool> plan_sent_{false};

  Outbox<v1::SaveRequest> outbox_;  // Of the stream that is open; else closed.
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> finished_{false};

  std::mutex copy_mutex_;
  std::condition_variable copied_;
  uint32_t copies_ = 0;  // That run; guarded by copy_mutex_. None begins once cancelled_.

  mutable std::mutex mutex_;
  std::shared_ptr<ArenaMap> arena_;      // Guarded by mutex_, as all below. Where our blocks are.
  std::map<uint32_t, Sealed> sealed_;    // By image block.
  std::optional<uint32_t> last_sealed_;  // Image block.
  uint64_t copied_bytes_ = 0;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_SAVE_RUN_H_
