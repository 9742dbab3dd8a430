// The C++ client against a real daemon.
#include "client/cpp/client.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>
#include <optional>
#include <thread>

#include "client/cpp/session.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kLong = absl::Seconds(20);

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() { StartDaemon(); }

  SessionOptions Options() const {
    SessionOptions options;
    options.client.socket = site_.socket();
    options.job = "job";
    options.rank = 0;
    options.world_size = 1;
    return options;
  }

  std::unique_ptr<Session> OpenSession(const SessionOptions& options) {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(options);
    EXPECT_TRUE(session.ok()) << session.status() << "\n" << daemon_->Log();
    return session.ok() ? *std::move(session) : nullptr;
  }
  std::unique_ptr<Session> OpenSession() { return OpenSession(Options()); }

  void TearDown() override {
    if (HasFailure()) std::fprintf(stderr, "%s", daemon_->Log().c_str());
  }

  void StartDaemon() {
    daemon_.emplace(site_,
                    TestDaemon::Options{.flags = {"--block-size", "1MiB", "--log-level", "debug"}});
  }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
};

std::vector<float> Numbers(size_t count, float first = 0) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

State VectorState(const std::vector<float>& numbers) {
  State state;
  state.tensors = {WholeTensor("v", DType::kFloat32, {numbers.size()}, numbers.data())};
  return state;
}

std::vector<float> LoadVector(Session& session, const std::string& id, size_t count,
                              const LoadOptions& options = {}) {
  std::vector<float> numbers(count, -1);
  absl::StatusOr<LoadHandle> load =
      session.Load(id, {WholeTarget("v", DType::kFloat32, {count}, numbers.data())}, options);
  EXPECT_TRUE(load.ok()) << load.status();
  if (load.ok()) {
    EXPECT_TRUE(load->Wait(kLong).ok()) << load->Wait(kLong).status();
  }
  return numbers;
}

TEST_F(ClientTest, LoadsWhatItSaved) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> matrix = Numbers(600 * 500);
  const double scalar = 2.5;
  State state;
  state.tensors.push_back(WholeTensor("a/matrix", DType::kFloat32, {600, 500}, matrix.data()));
  state.tensors.push_back(WholeTensor("transposed", DType::kFloat32, {500, 600}, matrix.data()));
  state.tensors.back().chunks[0].strides_bytes = {4, 2000};
  state.tensors.push_back(WholeTensor("every third", DType::kFloat32, {1000}, matrix.data() + 1));
  state.tensors.back().chunks[0].strides_bytes = {12};
  state.tensors.push_back(WholeTensor("expanded", DType::kFloat32, {50, 50}, matrix.data() + 7));
  state.tensors.back().chunks[0].strides_bytes = {0, 0};
  state.tensors.push_back(WholeTensor("scalar", DType::kFloat64, {}, &scalar));
  state.tensors.push_back(WholeTensor("empty", DType::kInt64, {0, 4}, nullptr));
  state.tensors.push_back(WholeTensor("local", DType::kFloat32, {3}, matrix.data()));
  state.tensors.back().rank_local = true;
  state.items = {{"step", ItemKind::kJson, false, "1"},
                 {"big", ItemKind::kBytes, false, std::string(200'000, 'B')},
                 {"mine", ItemKind::kText, true, "r0"}};
  auto save = session->AsyncSave("one", 1, state);
  ASSERT_TRUE(save.ok()) << save.status();
  ASSERT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_GT(save->report().bytes, 2'400'000u);
  EXPECT_GT(save->report().committed_s, 0);

  std::vector<float> whole(600 * 500), transposed(500 * 600), third(1000), expanded(2500);
  std::vector<float> top(10 * 500), corner(4 * 2), local(3);
  double loaded_scalar = 0;
  std::vector<TensorTarget> targets;
  targets.push_back(WholeTarget("a/matrix", DType::kFloat32, {600, 500}, whole.data()));
  targets.back().boxes.push_back({{{0, 0}, {10, 500}}, top.data()});
  targets.back().boxes.push_back({{{596, 498}, {4, 2}}, corner.data(), {4, 16}});
  targets.push_back(WholeTarget("transposed", DType::kFloat32, {500, 600}, transposed.data()));
  targets.push_back(WholeTarget("every third", DType::kFloat32, {1000}, third.data()));
  targets.push_back(WholeTarget("expanded", DType::kFloat32, {50, 50}, expanded.data()));
  targets.push_back(WholeTarget("scalar", DType::kFloat64, {}, &loaded_scalar));
  targets.push_back(WholeTarget("empty", DType::kInt64, {0, 4}, nullptr));
  targets.push_back(WholeTarget("local", DType::kFloat32, {3}, local.data()));
  targets.back().rank_local = true;
  auto load = session->Load("one", targets);
  ASSERT_TRUE(load.ok()) << load.status();
  auto report = load->Wait(kLong);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(whole, matrix);
  for (size_t i = 0; i < 500 * 600; ++i) ASSERT_EQ(transposed[i], matrix[i % 600 * 500 + i / 600]);
  for (size_t i = 0; i < 1000; ++i) ASSERT_EQ(third[i], matrix[1 + 3 * i]);
  EXPECT_EQ(std::count(expanded.begin(), expanded.end(), matrix[7]), 2500);
  EXPECT_TRUE(std::equal(top.begin(), top.end(), matrix.begin()));
  for (size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(corner[row], matrix[(596 + row) * 500 + 498]);
    EXPECT_EQ(corner[4 + row], matrix[(596 + row) * 500 + 499]);
  }
  EXPECT_EQ(loaded_scalar, scalar);
  EXPECT_EQ(local, Numbers(3));
  EXPECT_EQ(report->checkpoint.step, 1);
  EXPECT_THAT(report->missing, IsEmpty());
  EXPECT_THAT(report->extra, IsEmpty());
  ASSERT_EQ(report->items.size(), 3u);
  for (const ItemValue& item : report->items) {
    auto want = std::find_if(state.items.begin(), state.items.end(),
                             [&](const ItemValue& i) { return i.name == item.name; });
    ASSERT_NE(want, state.items.end());
    EXPECT_EQ(item.value, want->value);
    EXPECT_EQ(item.kind, want->kind);
  }
}

TEST_F(ClientTest, TensorsMayChangeOnceTheSaveHasReturned) {
  std::unique_ptr<Session> session = OpenSession();
  std::vector<float> weights(1'000'000, 1);
  auto save = session->AsyncSave("one", 1, VectorState(weights));
  ASSERT_TRUE(save.ok()) << save.status();
  std::fill(weights.begin(), weights.end(), 2);
  ASSERT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ(LoadVector(*session, "one", weights.size()), std::vector<float>(weights.size(), 1));
}

TEST_F(ClientTest, ADeferredSaveReadsUntilLockReturns) {
  std::unique_ptr<Session> session = OpenSession();
  std::vector<float> weights = Numbers(500'000);
  SaveOptions deferred;
  deferred.deferred = true;
  std::vector<SaveHandle> saves;
  for (int i = 0; i < 3; ++i) {
    std::fill(weights.begin(), weights.end(), static_cast<float>(i));
    auto save = session->AsyncSave("s" + std::to_string(i), i, VectorState(weights), deferred);
    ASSERT_TRUE(save.ok()) << save.status();
    saves.push_back(*save);
    ASSERT_TRUE(session->Lock(kLong).ok());
    EXPECT_GE(save->state(), SaveState::kStaged);
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(saves[i].Wait(SaveState::kCommitted, kLong).ok());
    EXPECT_EQ(LoadVector(*session, "s" + std::to_string(i), weights.size()),
              std::vector<float>(weights.size(), static_cast<float>(i)));
  }
}

TEST_F(ClientTest, SavesOfOneSessionKeepTheirOrder) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(1000);
  SaveOptions deferred;
  deferred.deferred = true;
  std::vector<SaveHandle> saves;
  for (int i = 0; i < 10; ++i) {
    auto save = session->AsyncSave("s" + std::to_string(i), i, VectorState(numbers), deferred);
    ASSERT_TRUE(save.ok()) << save.status();
    saves.push_back(*save);
  }
  for (SaveHandle& save : saves) {
    EXPECT_TRUE(save.Wait(SaveState::kCommitted, kLong).ok()) << save.failure().status;
  }
  auto client = Client::Connect({site_.socket()});
  ASSERT_TRUE(client.ok());
  auto list = (*client)->List("job");
  ASSERT_TRUE(list.ok()) << list.status();
  ASSERT_EQ(list->checkpoints.size(), 10u);
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(list->checkpoints[i].step, static_cast<int64_t>(i));
}

TEST_F(ClientTest, CallbacksHearEveryStateInOrder) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(1000);
  std::vector<SaveState> seen;
  std::promise<void> done;
  SaveOptions options;
  options.on_state = [&](SaveState state, const FailureInfo&) {
    seen.push_back(state);
    if (state >= SaveState::kCommitted) done.set_value();
  };
  ASSERT_TRUE(session->AsyncSave("one", 1, VectorState(numbers), options).ok());
  done.get_future().wait();
  EXPECT_THAT(seen, ElementsAre(SaveState::kAdmitted, SaveState::kStaged, SaveState::kDurable,
                                SaveState::kCommitted));
}

TEST_F(ClientTest, AnExistingIdIsRefusedOrReplacedAndARequestIsAnsweredTwice) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> one(1000, 1), two(1000, 2);
  SaveOptions options;
  options.request_id = "r-1";
  auto first = session->AsyncSave("one", 1, VectorState(one), options);
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(first->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ(session->AsyncSave("one", 1, VectorState(two)).status().code(),
            absl::StatusCode::kAlreadyExists);
  auto again = session->AsyncSave("one", 1, VectorState(one), options);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->Wait(SaveState::kCommitted, kLong).ok());
  SaveOptions replace;
  replace.on_existing = OnExisting::kReplace;
  auto second = session->AsyncSave("one", 1, VectorState(two), replace);
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(second->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ(LoadVector(*session, "one", 1000), two);
}

TEST_F(ClientTest, ACancelledSaveFailsAndTheNextOneCommits) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(2'000'000);
  std::promise<void> cancelled;
  std::shared_future<void> gate = cancelled.get_future().share();
  SaveOptions options;
  options.deferred = true;
  options.on_copied = [gate](uint64_t) { gate.wait(); };
  auto save = session->AsyncSave("one", 1, VectorState(numbers), options);
  ASSERT_TRUE(save.ok());
  save->Cancel();
  cancelled.set_value();
  EXPECT_FALSE(save->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ(save->state(), SaveState::kFailed);
  auto next = session->AsyncSave("two", 2, VectorState(numbers));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_TRUE(next->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ((*session->Latest())->id, "two");
}

TEST_F(ClientTest, ASaveThatTakesTooLongIsGivenUp) {
  SessionOptions two_ranks = Options();
  two_ranks.world_size = 2;
  two_ranks.replicas = Replicas::kLowestRank;  // Nobody is planned before all have joined.
  std::unique_ptr<Session> session = OpenSession(two_ranks);
  std::vector<float> numbers = Numbers(1000);
  SaveOptions options;
  options.block_timeout = absl::Milliseconds(300);
  EXPECT_EQ(session->AsyncSave("one", 1, VectorState(numbers), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, ARankThatDoesNotJoinIsNamed) {
  SessionOptions two_ranks = Options();
  two_ranks.world_size = 2;
  std::unique_ptr<Session> session = OpenSession(two_ranks);
  const std::vector<float> numbers = Numbers(1000);
  SaveOptions options;
  options.join_timeout = absl::Seconds(2);
  options.deferred = true;
  auto save = session->AsyncSave("one", 1, VectorState(numbers), options);
  ASSERT_TRUE(save.ok());
  const absl::Status status = save->Wait(SaveState::kCommitted, kLong);
  EXPECT_THAT(std::string(status.message()), HasSubstr("1"));
  EXPECT_EQ(save->failure().phase, "join");
}

TEST_F(ClientTest, APlanErrorLeavesTargetsUntouched) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(1000);
  auto save = session->AsyncSave("one", 1, VectorState(numbers));
  ASSERT_TRUE(save.ok() && save->Wait(SaveState::kCommitted, kLong).ok());
  std::vector<float> target(2000, 7), other(5, 7);
  const auto outcome = [&](std::vector<TensorTarget> targets, LoadOptions options = {}) {
    auto load = session->Load("one", std::move(targets), options);
    return load.ok() ? load->Wait(kLong).status() : load.status();
  };
  const TensorTarget good = WholeTarget("v", DType::kFloat32, {1000}, target.data());
  const TensorTarget missing = WholeTarget("w", DType::kFloat32, {5}, other.data());
  EXPECT_THAT(
      std::string(outcome({WholeTarget("v", DType::kFloat32, {2000}, target.data())}).message()),
      HasSubstr("\"v\""));
  EXPECT_FALSE(outcome({WholeTarget("v", DType::kFloat64, {1000}, target.data())}).ok());
  EXPECT_EQ(outcome({good, missing}).code(), absl::StatusCode::kNotFound);
  LoadOptions strict;
  strict.strict = true;
  EXPECT_FALSE(outcome({}, strict).ok());
  EXPECT_EQ(target, std::vector<float>(2000, 7));

  LoadOptions partial;
  partial.partial = true;
  auto load = session->Load("one", {good, missing}, partial);
  ASSERT_TRUE(load.ok());
  auto report = load->Wait(kLong);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->missing, ElementsAre("w"));
  EXPECT_EQ(other, std::vector<float>(5, 7));
  auto extra = session->Load("one", {});
  ASSERT_TRUE(extra.ok());
  EXPECT_THAT(extra->Wait(kLong)->extra, ElementsAre("v"));
}

TEST_F(ClientTest, AWrongByteThatIsFoundHalfWaySaysThatTheTargetsAreUndefined) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(8'000'000);
  auto save = session->AsyncSave("one", 1, VectorState(numbers));
  ASSERT_TRUE(save.ok() && save->Wait(SaveState::kCommitted, kLong).ok());
  {
    std::fstream shard(site_.root() + "/job/checkpoints/one/shard-00000-of-00001.safetensors",
                       std::ios::in | std::ios::out | std::ios::binary);
    shard.seekp(-5, std::ios::end);
    shard.put('\x55');
    ASSERT_TRUE(shard.flush().good());
  }
  std::vector<float> loaded(numbers.size(), -1);
  auto load =
      session->Load("one", {WholeTarget("v", DType::kFloat32, {loaded.size()}, loaded.data())});
  ASSERT_TRUE(load.ok()) << load.status();
  const absl::Status found = load->Wait(kLong).status();
  EXPECT_EQ(found.code(), absl::StatusCode::kDataLoss) << found;
  EXPECT_THAT(std::string(found.message()), HasSubstr("the targets are undefined now"));
}

TEST_F(ClientTest, NothingThereAndNotCommittedAreTwoAnswers) {
  std::unique_ptr<Session> session = OpenSession();
  auto nothing = session->Latest();
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->has_value());
  EXPECT_EQ(session->Load("none", {})->Wait(kLong).status().code(), absl::StatusCode::kNotFound);

  const std::vector<float> numbers = Numbers(2'000'000);
  std::promise<void> go_on;
  std::shared_future<void> gate = go_on.get_future().share();
  SaveOptions paused;
  paused.deferred = true;
  paused.on_copied = [gate](uint64_t) { gate.wait(); };
  auto save = session->AsyncSave("one", 1, VectorState(numbers), paused);
  ASSERT_TRUE(save.ok());
  while (save->state() < SaveState::kAdmitted) std::this_thread::yield();
  EXPECT_EQ(session->Load("one", {})->Wait(kLong).status().code(),
            absl::StatusCode::kFailedPrecondition);
  LoadOptions patient;
  patient.wait = kLong;
  std::vector<float> loaded(numbers.size());
  auto load = session->Load(
      "one", {WholeTarget("v", DType::kFloat32, {loaded.size()}, loaded.data())}, patient);
  ASSERT_TRUE(load.ok());
  go_on.set_value();
  EXPECT_TRUE(load->Wait(kLong).ok()) << load->Wait(kLong).status();
  EXPECT_EQ(loaded, numbers);
}

TEST_F(ClientTest, DescribeListAndLatestTellWhatIsThere) {
  std::unique_ptr<Session> session = OpenSession();
  auto client = Client::Connect({site_.socket()});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_FALSE((*client)->Latest("job")->has_value());
  const std::vector<float> numbers = Numbers(12);
  State state = VectorState(numbers);
  state.tensors[0].shape = {3, 4};
  state.tensors[0].chunks[0].box = WholeBox({3, 4});
  state.items = {{"lr", ItemKind::kJson, true, "0.5"}};
  auto save = session->AsyncSave("one", 17, state);
  ASSERT_TRUE(save.ok() && save->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ((*client)->Latest("job")->value().id, "one");
  auto description = (*client)->Describe("one", "job");
  ASSERT_TRUE(description.ok()) << description.status();
  ASSERT_EQ(description->tensors.size(), 1u);
  EXPECT_EQ(description->tensors[0].name, "v");
  EXPECT_EQ(description->tensors[0].shape, (Shape{3, 4}));
  EXPECT_EQ(description->tensors[0].chunks[0].bytes, 48u);
  ASSERT_EQ(description->items.size(), 1u);
  EXPECT_EQ(description->items[0].value, "0.5");
  EXPECT_EQ(description->items[0].rank, 0u);
  EXPECT_EQ(description->checkpoint.step, 17);
}

TEST_F(ClientTest, ForkedChildrenHaveNothingAndTheParentGoesOn) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(100'000);
  auto first = session->AsyncSave("s0", 0, VectorState(numbers));
  ASSERT_TRUE(first.ok()) << first.status();
  for (int i = 1; i <= 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      if (!absl::IsFailedPrecondition(session->AsyncSave("c", 1, VectorState(numbers)).status())) {
        _exit(1);
      }
      if (!absl::IsFailedPrecondition(first->Wait(SaveState::kCommitted, kLong))) _exit(2);
      if (!absl::IsFailedPrecondition(Session::Open(Options()).status())) _exit(3);
      for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code error;
        const std::string target = std::filesystem::read_symlink(entry, error).string();
        if (target.find("memfd:") != std::string::npos) _exit(4);
        if (target.find("socket:") != std::string::npos) _exit(5);
      }
      session = nullptr;
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    auto save = session->AsyncSave("s" + std::to_string(i), i, VectorState(numbers));
    ASSERT_TRUE(save.ok()) << save.status();
    EXPECT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok());
  }
}

TEST_F(ClientTest, ADaemonKilledBeforeOrAfterStagingFinishesTheSaveWhenItIsBack) {
  SessionOptions options = Options();
  std::atomic<int> lost = 0, back = 0;
  options.on_connection = [&](bool is_lost, const std::string&) { ++(is_lost ? lost : back); };
  std::unique_ptr<Session> session = OpenSession(options);
  const std::vector<float> numbers = Numbers(4'000'000);
  for (int round = 0; round < 4; ++round) {
    const std::string id = "s" + std::to_string(round);
    std::promise<void> half;
    std::atomic<bool> told = false;
    SaveOptions deferred;
    deferred.deferred = true;
    deferred.on_copied = [&](uint64_t bytes) {
      if (bytes > 6'000'000 && !told.exchange(true)) half.set_value();
    };
    auto save = session->AsyncSave(id, round, VectorState(numbers), deferred);
    ASSERT_TRUE(save.ok()) << save.status();
    half.get_future().wait();
    if (round % 2 != 0) {
      ASSERT_TRUE(session->Lock(kLong).ok());
    }
    const std::string attempt = save->attempt();
    daemon_->Kill();
    StartDaemon();
    EXPECT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok())
        << save->Wait(SaveState::kCommitted, kLong);
    EXPECT_EQ(save->attempt(), attempt);
    EXPECT_EQ(LoadVector(*session, id, numbers.size()), numbers);
  }
  EXPECT_GE(lost, 4);
  EXPECT_GE(back, 4);
}

TEST_F(ClientTest, AnAbsentDaemonFailsTheSaveInTimeAndTheSessionComesBack) {
  SessionOptions options = Options();
  options.daemon_lost_timeout = absl::Milliseconds(300);
  std::unique_ptr<Session> raising = OpenSession(options);
  options.on_daemon_lost = OnDaemonLost::kContinue;
  options.job = "other";
  std::unique_ptr<Session> continuing = OpenSession(options);
  const std::vector<float> numbers = Numbers(1000);
  daemon_->Kill();
  // The loss may be seen a moment later: the save is then begun and waits for the daemon all the
  // same.
  const absl::Status raised = raising->AsyncSave("one", 1, VectorState(numbers)).status();
  EXPECT_EQ(raised.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(raised.message()), HasSubstr(site_.socket()));
  auto failed = continuing->AsyncSave("one", 1, VectorState(numbers));
  ASSERT_TRUE(failed.ok()) << failed.status();
  EXPECT_EQ(failed->Wait(SaveState::kCommitted, kLong).code(), absl::StatusCode::kUnavailable);
  StartDaemon();
  for (int i = 0; i < 100; ++i) {
    auto save = raising->AsyncSave("two-" + std::to_string(i), 2, VectorState(numbers));
    if (!save.ok()) continue;
    EXPECT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok());
    return;
  }
  FAIL() << "the session does not find the daemon again";
}

TEST_F(ClientTest, ClosingWaitsDetachesOrAborts) {
  const std::vector<float> numbers = Numbers(500'000);
  for (CloseMode mode : {CloseMode::kWait, CloseMode::kDetach, CloseMode::kAbort}) {
    std::unique_ptr<Session> session = OpenSession();
    auto save =
        session->AsyncSave("s" + std::to_string(static_cast<int>(mode)), 1, VectorState(numbers));
    ASSERT_TRUE(save.ok()) << save.status();
    EXPECT_TRUE(session->Close(mode, kLong).ok());
    EXPECT_EQ(session->AsyncSave("late", 1, VectorState(numbers)).status().code(),
              absl::StatusCode::kFailedPrecondition);
    const absl::Status outcome = save->Wait(SaveState::kCommitted, absl::ZeroDuration());
    if (mode == CloseMode::kWait) {
      EXPECT_TRUE(outcome.ok()) << outcome;
    }
    EXPECT_FALSE(absl::IsDeadlineExceeded(outcome)) << "nobody waits for a closed session";
  }
  // What was staged went on.
  auto client = Client::Connect({site_.socket()});
  ASSERT_TRUE(client.ok());
  const absl::Time give_up = absl::Now() + kLong;
  while (absl::Now() < give_up && !(*client)->Describe("s1", "job").ok()) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_TRUE((*client)->Describe("s1", "job").ok());
}

TEST_F(ClientTest, AStateLargerThanTheArenaStreamsThroughIt) {
  TestSite site;
  TestDaemon small(site, {.flags = {"--block-size", "1MiB", "--arena-limit", "4MiB"}});
  SessionOptions options = Options();
  options.client.socket = site.socket();
  std::unique_ptr<Session> session = OpenSession(options);
  const std::vector<float> numbers = Numbers(8'000'000);
  auto save = session->AsyncSave("one", 1, VectorState(numbers));
  ASSERT_TRUE(save.ok()) << save.status() << small.Log();
  EXPECT_TRUE(save->Wait(SaveState::kCommitted, kLong).ok());
  EXPECT_EQ(LoadVector(*session, "one", numbers.size()), numbers);
}

TEST_F(ClientTest, BadInputIsRefusedAtOnceAndNamed) {
  std::unique_ptr<Session> session = OpenSession();
  const std::vector<float> numbers = Numbers(10);
  EXPECT_THAT(std::string(session->AsyncSave("", 1, VectorState(numbers)).status().message()),
              HasSubstr("checkpoint id"));
  State twice = VectorState(numbers);
  twice.tensors.push_back(twice.tensors[0]);
  EXPECT_THAT(std::string(session->AsyncSave("x", 1, twice).status().message()),
              HasSubstr("\"v\""));
  EXPECT_FALSE(session->Load(std::string(300, 'x'), {}).ok());
  SessionOptions same = Options();
  same.incarnation = session->incarnation();
  same.rank = 1;
  EXPECT_EQ(Session::Open(same).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ckptd
