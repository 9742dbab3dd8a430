// SaveRig plays the ranks of a job against Attempts over a real folder, without any process, socket
// or protocol between: fake ranks fill arena blocks and record what they are told.
#ifndef CKPTD_TESTS_SERVER_SAVE_RIG_H_
#define CKPTD_TESTS_SERVER_SAVE_RIG_H_

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/attempts.h"
#include "server/log.h"
#include "server/tidier.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fault_disk.h"
#include "tests/support/foreign_files.h"
#include "tests/support/temp_folder.h"

namespace ckptd {

class SaveRig;

// One save of one rank, seen from its client. Its public state belongs to the loop: read it by
// SaveRig::OnLoop(), or when nothing moves any more.
class FakeRank : public SaveStream, public std::enable_shared_from_this<FakeRank> {
 public:
  FakeRank(SaveRig& rig, Session session, SaveOptions options,
           std::shared_ptr<const RankPlan> plan);

  // SaveStream.
  void Admitted(const AttemptName& name) override;
  void Assigned(const std::vector<uint32_t>& written, uint64_t arena_generation) override;
  void Granted(const std::vector<BlockGrant>& grants) override;
  void Staged() override { told += "staged "; }
  void Durable() override { told += "durable "; }
  void Committed(const CheckpointInfo& info) override;
  void Failed(const Failure& why) override;

  void Pump();  // Seals what it was granted, up to seal_max blocks.
  bool ended() const { return committed || failed; }
  bool staged() const { return told.find("staged") != std::string::npos; }
  ResumeState resume() const;  // What it would say to a daemon that has restarted.

  const Session session;
  const SaveOptions options;
  const std::shared_ptr<const RankPlan> plan;
  uint32_t seal_max = UINT32_MAX;
  std::function<void(std::vector<uint32_t>& unit_crc32c)> before_seal;  // May be null.

  std::string told;  // "admitted assigned granted:2 staged durable committed"
  AttemptName attempt;
  std::vector<uint32_t> ordinals;
  std::shared_ptr<const ImageLayout> layout;
  std::string image;
  std::shared_ptr<Arena> arena;
  std::vector<BlockGrant> granted;          // And not sealed.
  std::map<uint32_t, ResumedBlock> sealed;  // By image block.
  bool committed = false, failed = false;
  CheckpointInfo checkpoint;
  Failure failure;
  std::shared_ptr<Attempts::Ticket> ticket = std::make_shared<Attempts::Ticket>();

 private:
  SaveRig& rig_;
};

class SaveRig {
 public:
  struct Options {
    uint64_t block_bytes = 1 << 20;
    uint64_t arena_limit_bytes = 64 << 20;
    uint32_t max_inflight_attempts = 2;
    absl::Duration join_timeout = absl::Seconds(600);
    absl::Duration attempt_timeout = absl::Seconds(600);
    absl::Duration admit_timeout = absl::Seconds(120);
    absl::Duration reattach_timeout = absl::Seconds(10);
    uint32_t keep_last = 0;
    absl::Duration trash_grace = absl::ZeroDuration();
    uint64_t disk_bytes = 0;  // 0: whatever the disk has.
    std::string faults = "";  // A plan of fault_plan.h.
  };

  static constexpr char kJob[] = "job";
  static constexpr char kNode[] = "node";

  explicit SaveRig(Options options);
  SaveRig() : SaveRig(Options()) {}
  ~SaveRig();

  // The daemon is gone, and what it was doing with it; the folder and the ranks' memory stay. Then
  // another one starts, perhaps with other faults, recovers and waits for the ranks.
  void Crash();
  void Start(const std::string& faults = "");

  template <class F>
  auto OnLoop(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop().Post([&task] { task(); });
    return result.get();
  }
  // False if `check`, called on the loop, does not become true in half a minute.
  bool Await(const std::function<bool()>& check);
  void Advance(absl::Duration duration);  // The clock; timers that are due run.

  // A process of that rank: its session, which a former one has left.
  Session NewSession(uint32_t rank, uint32_t world_size);
  void EndSession(Session session, SessionEnd end);

  std::shared_ptr<FakeRank> Rank(uint32_t rank, uint32_t world_size, const std::string& id = "a",
                                 std::shared_ptr<const RankPlan> plan = nullptr);
  void Save(const std::shared_ptr<FakeRank>& rank, std::optional<ResumeState> resume = {});
  // All ranks of a save, each begun; `prepare` comes before.
  std::vector<std::shared_ptr<FakeRank>> SaveAll(
      uint32_t world_size, const std::string& id = "a",
      const std::function<void(FakeRank&)>& prepare = [](FakeRank&) {});
  // The rank's client offers its arena to the daemon that has started.
  void OfferArena(const FakeRank& rank);

  bool AwaitEnd(const std::vector<std::shared_ptr<FakeRank>>& ranks);
  bool AwaitCommitted(const std::vector<std::shared_ptr<FakeRank>>& ranks);
  bool AwaitFailed(const std::vector<std::shared_ptr<FakeRank>>& ranks);

  // Every byte of the checkpoint is what those plans hold, and each is stored once.
  void ExpectStored(const std::string& id,
                    const std::map<uint32_t, std::shared_ptr<const RankPlan>>& plans);
  void ExpectStored(const std::string& id, const std::vector<std::shared_ptr<FakeRank>>& ranks);
  // Nothing is in flight, and no block of any arena is in use.
  void ExpectQuiet();
  // Names of ours, below the job's folder.
  std::vector<std::string> List(const std::string& folder);
  int Passed(const std::string& point);  // How often.

  ControlLoop& loop();
  Attempts& attempts();
  ArenaPool& arenas();
  Tidier& tidier();
  // What a load reads, for the trash; asked on the loop.
  std::function<bool(const AttemptName& attempt)> in_use;  // Null: nothing.
  int left = 0;  // How often what failed could not be cleaned up. On the loop.
  Root& root();
  std::shared_ptr<Root> root_pointer();
  FakeClock& clock() { return clock_; }
  const std::string& path() const { return folder_.path(); }
  void Remember(const std::shared_ptr<Arena>& arena) { seen_arenas_.push_back(arena); }

 private:
  struct Life;

  void ForEachRank(const std::function<void(Attempt&, const RankSave&)>& act);

  const Options options_;
  Logger logger_{LogLevel::kError, LogFormat::kText};
  TempFolder folder_;
  ForeignFiles foreign_;  // In every folder that a life finds.
  FakeClock clock_;
  std::mutex mutex_;  // Guards points_.
  std::map<std::string, int> points_;
  std::vector<std::weak_ptr<Arena>> seen_arenas_;     // Of this life …
  std::set<std::shared_ptr<Attempt>> seen_attempts_;  // … and the loop's, too.
  // Of former lives: the ranks hold their arenas.
  std::vector<std::pair<std::shared_ptr<FaultInjector>, std::shared_ptr<Root>>> former_disks_;
  std::unique_ptr<Life> life_;
  uint64_t next_random_ = 1;
  int next_token_ = 1;
  uint64_t next_order_ = 1;  // Of beginnings and ends of sessions.
};

// What rank `rank` of `world_size` holds: rows of "w" (more than two blocks), "bias" and an item as
// the others, "rng" and an item of its own.
std::shared_ptr<const RankPlan> TestPlan(uint32_t rank, uint32_t world_size);

}  // namespace ckptd

#endif  // CKPTD_TESTS_SERVER_SAVE_RIG_H_
