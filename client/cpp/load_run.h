// LoadRun carries one load of one rank through: says what is wanted, maps the window, copies what
// the daemon fills into it to the targets, and says which blocks may be filled again.
//
// Threads: Run() on a thread of its own; Cancel() on any.
#ifndef CKPTD_CLIENT_CPP_LOAD_RUN_H_
#define CKPTD_CLIENT_CPP_LOAD_RUN_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/arena_map.h"
#include "client/cpp/connection.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/load_progress.h"
#include "client/cpp/strided_view.h"
#include "client/cpp/tensor.h"
#include "client/cpp/worker_pool.h"
#include "proto/ckptd/v1/checkpoint.grpc.pb.h"

namespace ckptd::inline client {

class LoadRun {
 public:
  // The targets have passed CheckTargets(). Guard and pool outlive this object.
  LoadRun(std::shared_ptr<Connection> connection, std::string id, std::vector<TensorTarget> targets,
          LoadOptions options, ForkGuard& guard, WorkerPool& pool);

  void Run();
  void Cancel();
  const std::shared_ptr<LoadProgress>& progress() const { return progress_; }

 private:
  using Stream = grpc::ClientReaderWriter<v1::LoadRequest, v1::LoadReply>;

  // A wanted box inside a stored chunk.
  struct Piece {
    uint64_t file_offset_bytes;
    uint64_t stored_bytes;
    Box stored;
    const Box* wanted;
    uint64_t element_bytes;
    const StridedView* view;
  };
  struct Copy {
    const StridedView* view;
    uint64_t offset;
    std::span<const std::byte> from;
  };

  absl::Status Converse(Stream& stream);
  v1::LoadRequest Begin() const;
  absl::Status Handle(const v1::LoadReply& reply, Stream& stream);
  absl::Status HandlePlan(const v1::LoadPlan& plan);
  absl::Status AddPiece(const v1::LoadPiece& piece);
  absl::Status OpenWindow(const v1::LoadPlan& plan);
  absl::Status HandleFilled(const v1::Filled& filled);
  void CopyAll(const std::vector<Copy>& copies);
  void CopyPiece(const Piece& piece, const v1::Filled& filled, std::span<const std::byte> content,
                 std::vector<Copy>& later) const;

  const std::shared_ptr<Connection> connection_;
  const std::string id_;
  const std::vector<TensorTarget> targets_;
  const LoadOptions options_;
  ForkGuard& guard_;
  WorkerPool& pool_;
  const std::shared_ptr<LoadProgress> progress_;
  Connection::Call call_;

  std::vector<std::vector<StridedView>> views_;    // By target and box.
  std::map<uint32_t, std::vector<Piece>> pieces_;  // By file, in order of offset.
  std::unique_ptr<SharedMemory> window_;
  uint64_t window_block_bytes_ = 0;
  bool window_gone_ = false;  // Before it was fetched.
  bool touched_ = false;      // Targets are no longer as they were.
  std::atomic<bool> cancelled_{false};
  bool done_ = false;
  LoadReport report_;
};

}  // namespace ckptd::inline client

#endif  // CKPTD_CLIENT_CPP_LOAD_RUN_H_
