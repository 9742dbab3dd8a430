// How often and how long what failed is cleaned up again.
#include "server/failed_cleanup.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "storage/disk/open_disk.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fault_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

TEST(FailedCleanUp, ItIsTriedLessAndLessOftenAndNotForEver) {
  TempFolder folder;
  auto injector = *FaultInjector::Create({.plan = "read:OUTCOME=error:EIO;list:failed=error:EIO;"
                                                  "open:OUTCOME=error:EIO",
                                          .plan_file = "",
                                          .log_file = ""});
  auto root = std::make_shared<Root>("default", folder.path(),
                                     MakeFaultDisk(*OpenDisk(folder.path(), {}), *injector));
  FakeClock clock;
  ControlLoop loop(clock);
  int troubles = 0;
  auto clean_up = std::make_shared<FailedCleanUp>(
      loop, root, FinishFailed::Options{.job = "job", .attempt = {}, .otherwise = {}},
      [&](const absl::Status&) { ++troubles; });
  auto tries = [&] {
    int result = 0;
    std::promise<void> done;
    loop.Post([&] {
      result = clean_up->tries();
      done.set_value();
    });
    done.get_future().wait();
    return result;
  };
  auto await = [&](int count) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (tries() < count && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return tries();
  };
  loop.Post([&] { clean_up->Try(); });
  ASSERT_EQ(await(1), 1);
  absl::Duration pause = FailedCleanUp::kFirstPause;
  for (int count = 2; count <= FailedCleanUp::kTriesMax; ++count) {
    clock.Advance(pause - absl::Milliseconds(1));
    tries();
    EXPECT_EQ(tries(), count - 1) << "too early";
    clock.Advance(absl::Milliseconds(1));
    ASSERT_EQ(await(count), count);
    pause = std::min(2 * pause, FailedCleanUp::kPauseMax);
  }
  std::weak_ptr<FailedCleanUp> weak = clean_up;
  clock.Advance(absl::Hours(24));
  tries();
  EXPECT_EQ(tries(), FailedCleanUp::kTriesMax);
  EXPECT_EQ(troubles, 1);
  EXPECT_EQ(weak.use_count(), 1) << "nothing pins it";
  loop.Stop();
}

}  // namespace
}  // namespace ckptd
