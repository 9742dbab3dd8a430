#include "tests/server/save_rig.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "storage/base/check.h"
#include "storage/commit/recover.h"
#include "storage/commit/runner.h"
#include "storage/disk/open_disk.h"
#include "tests/server/test_image.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {

FakeRank::FakeRank(SaveRig& rig, Session session, SaveOptions options,
                   std::shared_ptr<const RankPlan> plan)
    : session(std::move(session)), options(std::move(options)), plan(std::move(plan)), rig_(rig) {}

void FakeRank::Admitted(const AttemptName& name) {
  attempt = name;
  told += "admitted ";
}

void FakeRank::Assigned(const std::vector<uint32_t>& written, uint64_t arena_generation) {
  told += "assigned ";
  ordinals = written;
  layout = std::make_shared<const ImageLayout>(LayOutImage(*plan, ordinals));
  image = ImageBytes(*plan, *layout, session.info.rank);
  if (layout->image_bytes == 0) return;
  arena = rig_.arenas().Find(session.info.job, session.info.rank);
  ASSERT_NE(arena, nullptr);
  EXPECT_EQ(arena->generation(), arena_generation);
  rig_.Remember(arena);
}

void FakeRank::Granted(const std::vector<BlockGrant>& grants) {
  absl::StrAppend(&told, "granted:", grants.size(), " ");
  granted.insert(granted.end(), grants.begin(), grants.end());
  Pump();
}

void FakeRank::Pump() {
  while (!granted.empty() && sealed.size() < seal_max) {
    BlockGrant grant = granted.front();
    granted.erase(granted.begin());
    uint64_t block_bytes = arena->block_bytes();
    std::string bytes = image.substr(grant.image_block * block_bytes, block_bytes);
    std::memcpy(arena->Block(grant.arena_block).data(), bytes.data(), bytes.size());
    ResumedBlock block{grant.image_block, grant.arena_block,
                       UnitChecksums(*layout, image, grant.image_block, block_bytes)};
    if (before_seal) before_seal(block.unit_crc32c);
    sealed[grant.image_block] = block;
    rig_.loop().Post([self = shared_from_this(), block] {
      if (self->ticket->attempt) {
        self->ticket->attempt->Sealed(self->ticket->rank, block.image_block, block.arena_block,
                                      block.unit_crc32c);
      }
    });
  }
}

void FakeRank::Committed(const CheckpointInfo& info) {
  EXPECT_FALSE(ended()) << "nothing is told after the end";
  told += "committed ";
  committed = true;
  checkpoint = info;
}

void FakeRank::Failed(const Failure& why) {
  EXPECT_FALSE(ended()) << "nothing is told after the end";
  told += "failed ";
  failed = true;
  failure = why;
}

ResumeState FakeRank::resume() const {
  ResumeState state;
  state.attempt = attempt;
  state.ordinals = ordinals;
  state.staged = staged();
  // Of an arena block that was used twice only the last image block is still there.
  std::map<uint32_t, uint32_t> last;
  for (const auto& [image_block, block] : sealed)
    last[block.arena_block] = std::max(last[block.arena_block], image_block);
  for (const auto& [image_block, block] : sealed) {
    if (last[block.arena_block] == image_block) state.sealed.push_back(block);
  }
  return state;
}

// One daemon's life.
struct SaveRig::Life {
  Life(SaveRig& rig, const std::string& faults)
      : injector(*FaultInjector::Create({.plan = faults, .plan_file = "", .log_file = ""})),
        root(std::make_shared<Root>("default", rig.path(),
                                    MakeFaultDisk(*OpenDisk(rig.path(), {}), *injector))),
        loop(rig.clock_),
        arenas(loop, {.block_bytes = rig.options_.block_bytes,
                      .limit_bytes = rig.options_.arena_limit_bytes,
                      .huge_pages = false,
                      .touch_threads = 1,
                      .on_block_free = [this](const std::string& job,
                                              uint32_t rank) { attempts.BlockFree(job, rank); },
                      .on_no_memory =
                          [this](const std::string& job, uint32_t rank, const Arena& arena) {
                            attempts.NoMemory(job, rank, arena);
                          }}),
        context{.loop = loop,
                .arenas = arenas,
                .node = kNode,
                .join_timeout = rig.options_.join_timeout,
                .attempt_timeout = rig.options_.attempt_timeout,
                .reattach_timeout = rig.options_.reattach_timeout,
                .recheck_every = 1,
                .random = [&rig] { return rig.next_random_++; },
                .on_point =
                    [&rig](absl::string_view point) {
                      std::lock_guard lock(rig.mutex_);
                      ++rig.points_[std::string(point)];
                    },
                .on_event = nullptr,
                .on_change = nullptr,
                .reserved = nullptr,
                .keep_last = rig.options_.keep_last,
                .on_committed =
                    [this](const std::shared_ptr<Root>& where, const Attempt& attempt) {
                      tidier.Committed(where, {.job = attempt.record().job,
                                               .keep_last = attempt.keep_last(),
                                               .replace = attempt.record().replace,
                                               .bytes = attempt.planned_bytes()});
                    },
                .make_room =
                    [this](const std::shared_ptr<Root>& where, uint64_t bytes,
                           std::function<void()> done) {
                      tidier.trash().MakeRoom(where, bytes, std::move(done));
                    },
                .on_left = [&rig](const std::string&, const AttemptName&,
                                  const absl::Status&) { ++rig.left; }},
        attempts(context, {.max_inflight_attempts = rig.options_.max_inflight_attempts,
                           .admit_timeout = rig.options_.admit_timeout}),
        tidier(loop, rig.logger_, rig.options_.trash_grace,
               [&rig](const Root&, const std::string&, const AttemptName& attempt) {
                 return rig.in_use && rig.in_use(attempt);
               }) {
    if (rig.options_.disk_bytes > 0) LimitDisk(*injector, rig.path(), rig.options_.disk_bytes);
  }

  ~Life() {
    loop.Stop();
    root->writers().Stop();
    root->readers().Stop();
  }

  // A disk of that size on which nothing else is.
  static void LimitDisk(FaultInjector& injector, const std::string& path, uint64_t disk_bytes) {
    injector.free_bytes = [path, disk_bytes] {
      uint64_t used = 0;
      std::error_code error;
      std::filesystem::recursive_directory_iterator file(path, error), end;
      for (; !error && file != end; file.increment(error)) {
        std::error_code gone;
        if (!file->is_regular_file(gone)) continue;
        uint64_t bytes = file->file_size(gone);
        if (!gone) used += bytes;
      }
      return disk_bytes - std::min(used, disk_bytes);
    };
  }

  std::shared_ptr<FaultInjector> injector;
  std::shared_ptr<Root> root;
  ControlLoop loop;
  ArenaPool arenas;
  AttemptContext context;
  Attempts attempts;
  Tidier tidier;
};

SaveRig::SaveRig(Options options) : options_(std::move(options)) {
  foreign_.PlantJobs(path());
  foreign_.PlantInRoot(path());
  life_ = std::make_unique<Life>(*this, options_.faults);
}

SaveRig::~SaveRig() {
  Crash();
  foreign_.Check();
}

void SaveRig::Crash() {
  if (life_ == nullptr) return;
  // A transfer that was started is left to the kernel, as it would be; nobody hears of it.
  ForEachRank([](Attempt&, const RankSave& rank) {
    if (rank.writer) rank.writer->Stop();
  });
  Await([&] {
    return std::all_of(seen_attempts_.begin(), seen_attempts_.end(), [](const auto& attempt) {
      return std::none_of(attempt->ranks().begin(), attempt->ranks().end(), [](const auto& entry) {
        return entry.second.writer && entry.second.writer->in_flight() > 0;
      });
    });
  });
  ForEachRank([](Attempt& attempt, const RankSave& rank) {  // Every stream breaks.
    attempt.StreamGone(rank.rank, rank.stream.get());
  });
  seen_attempts_.clear();
  former_disks_.emplace_back(life_->injector, life_->root);
  life_.reset();
  seen_arenas_.clear();
}

void SaveRig::ForEachRank(const std::function<void(Attempt&, const RankSave&)>& act) {
  OnLoop([&] {
    for (const auto& attempt : seen_attempts_) {
      for (const auto& [number, rank] : attempt->ranks()) act(*attempt, rank);
    }
  });
}

void SaveRig::Start(const std::string& faults) {
  CKPT_CHECK(life_ == nullptr, "one daemon at a time");
  foreign_.PlantInRoot(path());
  life_ = std::make_unique<Life>(*this, faults);
  OnLoop([&] {
    Recover machine(
        {.node = kNode, .file_mode = 0644, .root_label = "default", .now = clock_.Wall()});
    ActionRunner(root().disk(), nullptr).RunToEnd(machine);
    EXPECT_TRUE(machine.status().ok()) << machine.status();
    for (const AttemptRecord& record : machine.waiting()) attempts().Restore(life_->root, record);
  });
}

ControlLoop& SaveRig::loop() { return life_->loop; }
Attempts& SaveRig::attempts() { return life_->attempts; }
Tidier& SaveRig::tidier() { return life_->tidier; }
ArenaPool& SaveRig::arenas() { return life_->arenas; }
Root& SaveRig::root() { return *life_->root; }
std::shared_ptr<Root> SaveRig::root_pointer() { return life_->root; }

bool SaveRig::Await(const std::function<bool()>& check) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!OnLoop([&] { return check(); })) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

void SaveRig::Advance(absl::Duration duration) {
  clock_.Advance(duration);
  for (int i = 0; i < 3; ++i) OnLoop([] {});
}

Session SaveRig::NewSession(uint32_t rank, uint32_t world_size) {
  Session session;
  session.info.job = kJob;
  session.info.rank = rank;
  session.info.world_size = world_size;
  session.info.pid = 1000 + rank;
  session.token = absl::StrCat("token", next_token_++);
  session.opened = next_order_++;
  return session;
}

void SaveRig::EndSession(Session session, SessionEnd end) {
  OnLoop([&] {
    session.ended = next_order_++;
    attempts().SessionEnded(session, end);
    if (end == SessionEnd::kDead) {
      arenas().Orphan(session.info.job, session.info.rank);
    } else {
      arenas().Drop(session.info.job, session.info.rank);
    }
  });
}

std::shared_ptr<FakeRank> SaveRig::Rank(uint32_t rank, uint32_t world_size, const std::string& id,
                                        std::shared_ptr<const RankPlan> plan) {
  SaveOptions options;
  options.checkpoint_id = id;
  options.step = 7;
  options.request_id = absl::StrCat("request-", id, "-", rank);
  if (plan == nullptr) plan = TestPlan(rank, world_size);
  return std::make_shared<FakeRank>(*this, NewSession(rank, world_size), options, plan);
}

void SaveRig::Save(const std::shared_ptr<FakeRank>& rank, std::optional<ResumeState> resume) {
  OnLoop([&] {
    attempts().Save(rank->session, life_->root, rank->options, rank->plan, std::move(resume), rank,
                    rank->ticket);
    if (rank->ticket->attempt) seen_attempts_.insert(rank->ticket->attempt);
  });
}

std::vector<std::shared_ptr<FakeRank>> SaveRig::SaveAll(
    uint32_t world_size, const std::string& id, const std::function<void(FakeRank&)>& prepare) {
  std::vector<std::shared_ptr<FakeRank>> ranks;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    ranks.push_back(Rank(rank, world_size, id));
    prepare(*ranks.back());
    Save(ranks.back());
  }
  return ranks;
}

void SaveRig::OfferArena(const FakeRank& rank) {
  ASSERT_NE(rank.arena, nullptr);
  UniqueFd fd(fcntl(rank.arena->fd(), F_DUPFD_CLOEXEC, 0));
  auto adopted = OnLoop([&] {
    const SessionInfo& info = rank.session.info;
    auto arena = arenas().Adopt(info.job, info.rank, std::move(fd), rank.arena->block_bytes(),
                                rank.arena->block_count());
    arenas().AttachAdopted(info.job, info.rank, root());
    return arena;
  });
  ASSERT_TRUE(adopted.ok()) << adopted.status();
}

bool SaveRig::AwaitEnd(const std::vector<std::shared_ptr<FakeRank>>& ranks) {
  return Await([&] {
    return std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank->ended(); });
  });
}

bool SaveRig::AwaitCommitted(const std::vector<std::shared_ptr<FakeRank>>& ranks) {
  bool ended = AwaitEnd(ranks);
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->committed) << "rank " << rank->session.info.rank << ": " << rank->told
                                 << rank->failure.phase << " " << rank->failure.status;
  }
  return ended;
}

bool SaveRig::AwaitFailed(const std::vector<std::shared_ptr<FakeRank>>& ranks) {
  bool ended = AwaitEnd(ranks);
  for (const auto& rank : ranks)
    EXPECT_TRUE(rank->failed) << "rank " << rank->session.info.rank << ": " << rank->told;
  return ended;
}

void SaveRig::ExpectStored(const std::string& id,
                           const std::vector<std::shared_ptr<FakeRank>>& ranks) {
  std::map<uint32_t, std::shared_ptr<const RankPlan>> plans;
  for (const auto& rank : ranks) plans[rank->session.info.rank] = rank->plan;
  ExpectStored(id, plans);
}

void SaveRig::ExpectStored(const std::string& id,
                           const std::map<uint32_t, std::shared_ptr<const RankPlan>>& plans) {
  auto found = FindCheckpoint(root().disk(), kJob, id);
  ASSERT_TRUE(found.ok()) << found.status();
  auto fragments = LoadFragments(root().disk(), *found);
  ASSERT_TRUE(fragments.ok()) << fragments.status();
  std::set<std::string> tensors, items;
  for (const auto& [rank, plan] : plans) {
    for (const TensorEntry& tensor : plan->tensors)
      tensors.insert(absl::StrCat(tensor.name, "|", tensor.rank_local ? rank : 0));
    for (const ItemEntry& item : plan->items)
      items.insert(absl::StrCat(item.name, "|", item.rank_local ? rank : 0));
  }
  std::set<std::string> stored_tensors, stored_items;
  for (const Fragment& fragment : *fragments) {
    for (const StoredTensor& stored : fragment.tensors) {
      stored_tensors.insert(absl::StrCat(stored.name, "|", stored.rank_local.value_or(0)));
      TensorEntry entry = Whole(stored.name, stored.dtype, stored.shape);
      entry.rank_local = stored.rank_local.has_value();
      std::set<Box> boxes;
      for (const StoredChunk& chunk : stored.chunks) {
        EXPECT_TRUE(boxes.insert(chunk.box).second) << stored.name << ": a box twice";
        std::string bytes(chunk.bytes, '\0');
        auto file = root().disk().OpenForRead(Join(found->path, fragment.files[chunk.file].name));
        ASSERT_TRUE(file.ok()) << file.status();
        absl::Status status =
            ReadAll(**file, chunk.file_offset_bytes, std::as_writable_bytes(std::span(bytes)));
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_TRUE(bytes == BoxBytes(entry, chunk.box, stored.rank_local.value_or(0)))
            << stored.name << " " << ToString(chunk.box) << " differs";
      }
    }
    for (const StoredItem& item : fragment.items) {
      EXPECT_TRUE(
          stored_items.insert(absl::StrCat(item.name, "|", item.rank_local.value_or(0))).second)
          << item.name << " twice";
    }
  }
  EXPECT_EQ(stored_tensors, tensors);
  EXPECT_EQ(stored_items, items);
}

void SaveRig::ExpectQuiet() {
  EXPECT_TRUE(Await([&] { return attempts().in_flight().empty(); }));
  EXPECT_TRUE(Await([&] {  // Transfers of what has failed may take a little longer.
    return std::all_of(seen_arenas_.begin(), seen_arenas_.end(), [](const auto& weak) {
      std::shared_ptr<Arena> arena = weak.lock();
      return arena == nullptr || arena->busy_count() == 0;
    });
  })) << "blocks are in use";
}

std::vector<std::string> SaveRig::List(const std::string& folder) {
  std::vector<std::string> names;
  auto entries = root().disk().List(Join(kJob, folder));
  if (!entries.ok()) return {std::string(entries.status().message())};
  for (const DirEntry& entry : *entries) {
    if (!ForeignFiles::IsOne(entry.name)) names.push_back(entry.name);
  }
  return names;
}

int SaveRig::Passed(const std::string& point) {
  std::lock_guard lock(mutex_);
  return points_[point];
}

std::shared_ptr<const RankPlan> TestPlan(uint32_t rank, uint32_t world_size) {
  auto plan = std::make_shared<RankPlan>();
  constexpr uint64_t kRows = 650;
  plan->tensors.push_back(Tensor("w", DType::kFloat32, {world_size * kRows, 1000},
                                 {{{rank * kRows, 0}, {kRows, 1000}}}));
  plan->tensors.push_back(Whole("bias", DType::kFloat32, {1000}));
  plan->tensors.push_back(RankLocal(Whole("rng", DType::kUInt8, {16})));
  plan->tensors.push_back(Whole("nothing", DType::kFloat32, {0, 3}));
  plan->items.push_back(Item("step", "7", ItemKind::kJson));
  plan->items.push_back(RankLocal(Item("lr", absl::StrCat("0.", rank + 1), ItemKind::kJson)));
  plan->items.push_back(Item("vocabulary", TestBytes("vocabulary", 70000), ItemKind::kBytes));
  return plan;
}

}  // namespace ckptd
