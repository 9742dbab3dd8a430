#include "server/core.h"

#include <cstdio>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "storage/disk/open_disk.h"
#include "tests/server/test_image.h"
#include "tests/storage/plan/entries.h"
#include "tests/support/fault_disk.h"
#include "tests/support/foreign_files.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

// A client that seals what it is granted.
class SealingRank : public SaveStream {
 public:
  explicit SealingRank(Core& core) : core_(core) {
    RankPlan rank_plan;
    rank_plan.tensors.push_back(Whole("w", DType::kInt8, {5 << 20}));
    plan = std::make_shared<const RankPlan>(rank_plan);
  }

  void Admitted(const AttemptName&) override {}
  void Assigned(const std::vector<uint32_t>& ordinals, uint64_t) override {
    layout_ = LayOutImage(*plan, ordinals);
    image_ = ImageBytes(*plan, layout_, 0);
    arena_ = core_.arenas().Find("job", 0);
  }
  void Granted(const std::vector<BlockGrant>& grants) override {
    for (const BlockGrant& grant : grants) {
      std::string bytes = image_.substr(grant.image_block << 20, 1 << 20);
      std::memcpy(arena_->Block(grant.arena_block).data(), bytes.data(), bytes.size());
      core_.loop().Post([ticket = ticket, grant,
                         checksums = UnitChecksums(layout_, image_, grant.image_block, 1 << 20)] {
        if (ticket->attempt)
          ticket->attempt->Sealed(0, grant.image_block, grant.arena_block, checksums);
      });
    }
  }
  void Staged() override { staged = true; }
  void Durable() override {}
  void Committed(const CheckpointInfo&) override { committed = true; }
  void Failed(const Failure& why) override { failure = why; }

  std::shared_ptr<const RankPlan> plan;
  std::shared_ptr<Attempts::Ticket> ticket = std::make_shared<Attempts::Ticket>();
  bool staged = false, committed = false;
  Failure failure;

 private:
  Core& core_;
  ImageLayout layout_;
  std::string image_;
  std::shared_ptr<Arena> arena_;
};

class CoreTest : public testing::Test {
 protected:
  CoreTest() : logger_(LogLevel::kError, LogFormat::kText, stderr) { Start(""); }
  ~CoreTest() override {
    Stop();
    foreign_.Check();
  }

  void Start(const std::string& faults, absl::Duration drain_timeout = absl::Seconds(30)) {
    Stop();
    foreign_.PlantJobs(folder_.path());
    foreign_.PlantInRoot(folder_.path());
    injector_ = *FaultInjector::Create({.plan = faults, .plan_file = "", .log_file = ""});
    Core::Options options;
    options.config.node = "node";
    options.config.block_bytes = 1 << 20;
    options.config.read_window_bytes = 16 << 20;
    options.config.max_inflight_attempts = 2;
    options.config.recheck_every = 1;
    options.config.join_timeout = options.config.attempt_timeout = absl::Seconds(600);
    options.config.admit_timeout = absl::Seconds(120);
    options.config.peer_lost_timeout = options.config.reattach_timeout = absl::Seconds(10);
    options.config.drain_timeout = drain_timeout;
    options.arena_limit_bytes = 64 << 20;
    for (const char* label : {"default", "other"}) {
      options.roots.push_back({label, folder_.path(), [this, label] {
                                 return std::make_shared<Root>(
                                     label, folder_.path(),
                                     MakeFaultDisk(*OpenDisk(folder_.path(), {}), *injector_));
                               }});
    }
    core_ = std::make_unique<Core>(std::move(options), logger_);
    ASSERT_TRUE(core_->StartRoots().ok());
  }

  void Stop() {
    core_.reset();
    injector_.reset();
  }

  template <class F>
  auto OnLoop(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    core_->loop().Post([&task] { task(); });
    return result.get();
  }

  bool Await(const std::function<bool()>& check) {
    for (int i = 0; i < 30000; ++i) {
      if (OnLoop([&] { return check(); })) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  static SessionInfo Info() {
    SessionInfo info;
    info.job = "job";
    info.world_size = 1;
    info.pid = 4711;
    return info;
  }

  absl::StatusOr<std::string> Open(const SessionInfo& info, uint64_t connection = 1) {
    return OnLoop([&]() -> absl::StatusOr<std::string> {
      auto session = core_->OpenSession(info, connection);
      if (!session.ok()) return session.status();
      return (*session)->token;
    });
  }

  // A save of that session.
  std::shared_ptr<SealingRank> Save(const std::string& token, const std::string& id,
                                    const std::string& root = "") {
    auto rank = std::make_shared<SealingRank>(*core_);
    OnLoop([&] {
      SaveOptions options;
      options.checkpoint_id = id;
      options.request_id = id;
      core_->attempts().Save(**core_->sessions().Find(token), *core_->FindRoot(root), options,
                             rank->plan, std::nullopt, rank, rank->ticket);
    });
    return rank;
  }

  TempFolder folder_;
  ForeignFiles foreign_;
  Logger logger_;
  std::unique_ptr<FaultInjector> injector_;
  std::unique_ptr<Core> core_;
};

TEST_F(CoreTest, SessionsHaveNamesAndNumbersThatAreSome) {
  auto code = [&](const std::function<void(SessionInfo&)>& change) {
    SessionInfo info = Info();
    change(info);
    return Open(info).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](SessionInfo& info) { info.job = ""; }), kInvalid);
  EXPECT_EQ(code([](SessionInfo& info) { info.job = std::string(201, 'j'); }), kInvalid);
  EXPECT_EQ(code([](SessionInfo& info) { info.world_size = 0; }), kInvalid);
  EXPECT_EQ(code([](SessionInfo& info) { info.rank = 1; }), kInvalid);
  EXPECT_EQ(code([](SessionInfo& info) { info.world_size = kWorldSizeMax + 1; }), kInvalid);
  EXPECT_EQ(code([](SessionInfo& info) { info.root = "nowhere"; }), absl::StatusCode::kNotFound);
  EXPECT_EQ(OnLoop([&] { return core_->sessions().all().size(); }), 0u);
  SessionInfo info = Info();
  info.root = "nowhere";
  EXPECT_TRUE(absl::StrContains(Open(info).status().message(), "default, other"));
  auto token = Open(Info());
  ASSERT_TRUE(token.ok());
  EXPECT_EQ(token->size(), 32u);
  EXPECT_EQ(OnLoop([&] { return (*core_->sessions().Find(*token))->info.root; }), "default");
}

TEST_F(CoreTest, ADeadRanksArenaWaitsForItsSuccessorAndAClosedOnesGoes) {
  std::string token = *Open(Info());
  auto rank = Save(token, "a");
  ASSERT_TRUE(Await([&] { return rank->committed; }));
  auto arena = OnLoop([&] { return core_->arenas().Find("job", 0); });
  ASSERT_NE(arena, nullptr);
  OnLoop([&] { core_->sessions().Died(1); });
  EXPECT_EQ(OnLoop([&] { return core_->arenas().Find("job", 0); }), arena);
  SessionInfo next = Info();
  next.pid = 4712;
  token = *Open(next, 2);
  OnLoop([&] { core_->sessions().Close(token); });
  EXPECT_EQ(OnLoop([&] { return core_->arenas().Find("job", 0); }), nullptr);
  OnLoop([&] {
    arena.reset();
    rank.reset();
  });
  EXPECT_EQ(OnLoop([&] { return core_->arenas().bytes(); }), 0u)
      << "what has ended holds no memory";
}

TEST_F(CoreTest, RanksOfOneSaveHaveOneRoot) {
  SessionInfo info = Info();
  info.world_size = 2;
  auto first = Save(*Open(info), "a");
  info.rank = 1;
  auto second = Save(*Open(info, 2), "a", "other");
  ASSERT_TRUE(Await([&] { return !second->failure.status.ok(); }));
  EXPECT_EQ(second->failure.status.code(), absl::StatusCode::kFailedPrecondition);
  for (const char* label : {"\"default\"", "\"other\""}) {
    EXPECT_TRUE(absl::StrContains(second->failure.status.message(), label))
        << second->failure.status;
  }
  EXPECT_TRUE(OnLoop([&] { return first->failure.status.ok(); }));
}

TEST_F(CoreTest, DrainingItFinishesWhatIsInFlight) {
  Start("write:shard=delay:50ms");
  std::string token = *Open(Info());
  auto rank = Save(token, "a");
  bool drained = false;
  OnLoop([&] { core_->Drain([&] { drained = true; }); });
  SessionInfo info = Info();
  info.job = "another";
  EXPECT_EQ(Open(info, 2).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Await([&] { return drained; }));
  EXPECT_TRUE(OnLoop([&] { return rank->committed; }));
}

TEST_F(CoreTest, DrainingItFailsWhatTakesTooLong) {
  Start("write:shard=delay:600ms", absl::Milliseconds(100));
  std::string token = *Open(Info());
  auto rank = Save(token, "a");
  bool drained = false;
  OnLoop([&] { core_->Drain([&] { drained = true; }); });
  EXPECT_TRUE(Await([&] { return drained; }));
  EXPECT_EQ(OnLoop([&] { return rank->failure.status.code(); }), absl::StatusCode::kUnavailable);
}

TEST_F(CoreTest, DrainingItEndsThoughARootHangs) {
  Start("rename:checkpoints=delay:8s", absl::Milliseconds(100));
  std::string token = *Open(Info());
  auto rank = Save(token, "a");
  ASSERT_TRUE(Await([&] {
    return rank->ticket->attempt && rank->ticket->attempt->state() == Attempt::State::kDurable;
  }));
  int drained = 0;
  OnLoop([&] { core_->Drain([&] { ++drained; }); });
  EXPECT_TRUE(Await([&] { return drained == 1; }));
  EXPECT_TRUE(OnLoop([&] { return !rank->committed && rank->failure.status.ok(); }));
  ASSERT_TRUE(Await([&] { return rank->committed || !rank->failure.status.ok(); }));
  EXPECT_EQ(OnLoop([&] { return drained; }), 1);
}

TEST_F(CoreTest, ItEndsWhileTransfersAreInFlight) {
  for (int i = 0; i < 5; ++i) {
    Start("write:shard=delay:50ms");
    std::string token = *Open(Info());
    auto rank = Save(token, "a");
    ASSERT_TRUE(Await([&] { return rank->staged; }));
    OnLoop([&] { rank->ticket->attempt->StreamGone(0, rank.get()); });
    rank.reset();
    Stop();
  }
  Start("");
  OnLoop([&] { EXPECT_FALSE(core_->attempts().in_flight().empty()) << "it waits for its rank"; });
}

}  // namespace
}  // namespace ckptd
