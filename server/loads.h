// Loads: each rank's load, from its wishes to the last block.
//
//   1. Which checkpoint: the id, or the latest committed (once per restore id for all ranks). One
//   in flight is waited for.
//   2. Plan, on a worker: PlanLoad over the fragments.
//      From here to its end the load holds what it reads: a checkpoint that is deleted or replaced
//      meanwhile keeps its bytes (Reads).
//   3. Window: shared memory of a few blocks that the client maps. A worker reads the units of one
//   LoadRead into a free
//      block and checks every checksum; the client copies what it wants out of it and gives the
//      block back.
//   4. Done when every block came back. A bad checksum is DataLoss, naming file, tensor and range.
//
// Owned by the control loop; work in flight pins its load.
#ifndef CKPTD_SERVER_LOADS_H_
#define CKPTD_SERVER_LOADS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "server/arena.h"
#include "server/attempts.h"
#include "server/load_plan.h"
#include "server/root.h"
#include "storage/catalog/catalog.h"

namespace ckptd {

// How the control loop answers one load; implemented by the RPC layer. On the loop; never blocks.
class LoadStream {
 public:
  virtual ~LoadStream() = default;
  virtual void Planned(const CheckpointInfo& checkpoint, const LoadPlan& plan, uint64_t load_id,
                       uint64_t window_block_bytes, uint32_t window_blocks) = 0;
  virtual void Filled(uint32_t window_block, const LoadRead& read) = 0;
  virtual void Done(uint64_t memory_bytes, uint64_t disk_bytes) = 0;
  virtual void Failed(const Failure& failure) = 0;
};

struct LoadRequest {
  std::string checkpoint_id;  // "": the latest.
  std::string restore_id;
  LoadOptions options;
  bool items = true;    // Bring them.
  absl::Duration wait;  // For one that is in flight.
  std::vector<Want> wants;
};

class Load;

class Loads {
 public:
  struct Options {
    std::string node;
    uint64_t block_bytes = 0;   // Of a window.
    uint64_t window_bytes = 0;  // Of all ranks of a job together; each gets at least a block.
    bool huge_pages = true;     // For windows, where the kernel can.
    std::function<void(absl::string_view)> on_point;
    // A load is over, or knows now what it reads: Reads() may be false where it was true.
    std::function<void()> on_let_go = nullptr;
  };

  static constexpr size_t kRestoresKept = 10'000;

  Loads(ControlLoop& loop, Attempts& attempts, Options options);
  ~Loads();

  // Starts a load; the answers come on the stream. Returns its id.
  uint64_t Start(const Session& session, std::shared_ptr<Root> root, LoadRequest request,
                 std::shared_ptr<LoadStream> stream);
  void Consumed(uint64_t load_id, const std::vector<uint32_t>& window_blocks);
  void StreamGone(uint64_t load_id);
  // The last process of that life of the job is gone: "latest" is looked up afresh.
  void Forget(const std::string& job, const std::string& incarnation);

  // Does a load read that checkpoint's files, or look for one of that job? Then the bytes of what
  // is deleted meanwhile must stay.
  bool Reads(const Root& root, const std::string& job, const AttemptName& attempt) const;

  // The window of a load of this session, for the side socket. NotFound if there is none.
  absl::StatusOr<std::shared_ptr<Arena>> Window(const Session& session, uint64_t load_id) const;

  struct Progress {
    std::string job;
    std::string id;
    uint32_t rank = 0;
    uint64_t total_bytes = 0;
    uint64_t done_bytes = 0;
  };
  std::vector<Progress> Status() const;

 private:
  friend class Load;

  void Ended(uint64_t load_id);

  // What "latest" is for that restore: what the first rank saw.
  const std::string& Resolve(const SessionInfo& session, const std::string& restore_id,
                             const std::string& latest);

  ControlLoop& loop_;
  Attempts& attempts_;
  const Options options_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::shared_ptr<Load>> loads_;
  std::map<std::tuple<std::string, std::string, std::string>, std::string>
      restores_;  // (job, incarnation, restore id) -> id
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_LOADS_H_
