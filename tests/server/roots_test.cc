#include "server/roots.h"

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "storage/base/clock.h"
#include "storage/disk/open_disk.h"
#include "tests/support/fault_disk.h"
#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

class RootsTest : public testing::Test {
 protected:
  RootsTest() : loop_(SystemClock()) {}
  ~RootsTest() override { End(); }

  void End() {
    loop_.Stop();
    roots_.reset();
  }

  absl::StatusOr<std::shared_ptr<Root>> Open(const std::string& label) {
    std::string path = absl::StrCat(folder_.path(), "/", label);
    std::filesystem::create_directory(path);
    return std::make_shared<Root>(label, path, MakeFaultDisk(*OpenDisk(path, {}), *injector_));
  }

  Roots::Source Source(const std::string& label, std::function<absl::Status()> first = nullptr) {
    auto open = [this, label, first]() -> absl::StatusOr<std::shared_ptr<Root>> {
      absl::Status status = first ? first() : absl::OkStatus();
      if (!status.ok()) return status;
      return Open(label);
    };
    return {label, absl::StrCat(folder_.path(), "/", label), open};
  }

  absl::Status Start(std::vector<Roots::Source> sources, absl::Duration patience) {
    Roots::Options options;
    options.node = "node";
    options.patience = patience;
    options.on_started = [this](const RootStart& start) {
      if (start.root != nullptr) started_.push_back(start.root->label());
    };
    options.on_late = [this](const std::string& label, const std::string&) {
      late_.push_back(label);
    };
    roots_ = std::make_unique<Roots>(loop_, std::move(sources), std::move(options));
    return roots_->Start();
  }

  template <class F>
  auto OnLoop(F f) -> decltype(f()) {
    std::packaged_task<decltype(f())()> task(std::move(f));
    auto result = task.get_future();
    loop_.Post([&task] { task(); });
    return result.get();
  }

  bool Await(const std::function<bool()>& check) {
    for (int i = 0; i < 30000; ++i) {
      if (check()) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  TempFolder folder_;
  std::unique_ptr<FaultInjector> injector_ =
      *FaultInjector::Create({.plan = "", .plan_file = "", .log_file = ""});
  ControlLoop loop_;
  std::vector<std::string> started_;  // The loop's.
  std::vector<std::string> late_;
  std::unique_ptr<Roots> roots_;
};

TEST_F(RootsTest, OneThatHangsKeepsNobodyWaiting) {
  std::promise<absl::Status> answer;
  ASSERT_TRUE(Start({Source("stuck", [&] { return answer.get_future().get(); }), Source("good")},
                    absl::Milliseconds(300))
                  .ok());
  EXPECT_EQ(late_, std::vector<std::string>{"stuck"});
  EXPECT_EQ(OnLoop([&] { return started_; }), std::vector<std::string>{"good"});
  EXPECT_TRUE(roots_->AnyStarting());
  EXPECT_TRUE(roots_->Find("good").ok());
  EXPECT_EQ(roots_->usable().size(), 1u);
  // It has a name, and a reason not to be used.
  EXPECT_EQ(*roots_->Label(""), "stuck");
  absl::Status why = roots_->Find("").status();
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  for (const char* part : {"\"stuck\"", "it is still being opened"}) {
    EXPECT_TRUE(absl::StrContains(why.message(), part)) << why;
  }
  EXPECT_EQ(roots_->states()[0].reason, "it is still being opened");
  EXPECT_EQ(roots_->states()[1].reason, "");
  EXPECT_TRUE(absl::StrContains(roots_->Find("none").status().message(), "stuck, good"));

  std::promise<bool> usable;
  OnLoop([&] {
    EXPECT_FALSE(roots_->IsStarting("good"));
    ASSERT_TRUE(roots_->IsStarting("stuck"));
    roots_->WhenStarted("stuck", [&] { usable.set_value(roots_->Find("stuck").ok()); });
  });
  answer.set_value(absl::OkStatus());
  EXPECT_TRUE(usable.get_future().get());
  EXPECT_EQ(OnLoop([&] { return started_; }), (std::vector<std::string>{"good", "stuck"}));
  EXPECT_FALSE(roots_->AnyStarting());
  EXPECT_EQ(roots_->states()[0].reason, "");
}

TEST_F(RootsTest, AnErrorOfOpeningOneIsTheErrorOfTheStart) {
  absl::Status status =
      Start({Source("a"), Source("b", [] { return absl::AlreadyExistsError("held"); })},
            absl::Seconds(30));
  EXPECT_EQ(status, absl::AlreadyExistsError("held"));
  EXPECT_TRUE(started_.empty());
}

TEST_F(RootsTest, ALateErrorIsTheReasonNotToUseIt) {
  std::promise<absl::Status> answer;
  ASSERT_TRUE(
      Start({Source("a", [&] { return answer.get_future().get(); })}, absl::Milliseconds(10)).ok());
  answer.set_value(absl::AlreadyExistsError("held by another"));
  EXPECT_TRUE(Await([&] { return roots_->states()[0].reason == "held by another"; }));
  EXPECT_EQ(roots_->Find("a").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(roots_->usable().empty());
}

TEST_F(RootsTest, NothingIsServedFromOneThatCouldNotBeSynced) {
  std::filesystem::create_directories(folder_.path() + "/a/job/checkpoints");
  injector_ = *FaultInjector::Create(
      {.plan = "fsyncdir:job/checkpoints=error:EIO", .plan_file = "", .log_file = ""});
  ASSERT_TRUE(Start({Source("a")}, absl::Seconds(30)).ok());
  EXPECT_TRUE(absl::StrContains(roots_->states()[0].reason, "recovery: "))
      << roots_->states()[0].reason;
  EXPECT_NE(roots_->states()[0].root, nullptr) << "for status";
  EXPECT_EQ(roots_->Find("a").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RootsTest, RootsAreStartedAtTheSameTime) {
  std::promise<void> first, second;  // Each waits for the other.
  ASSERT_TRUE(Start({Source("a",
                            [&] {
                              first.set_value();
                              second.get_future().wait();
                              return absl::OkStatus();
                            }),
                     Source("b",
                            [&] {
                              second.set_value();
                              first.get_future().wait();
                              return absl::OkStatus();
                            })},
                    absl::Seconds(30))
                  .ok());
  EXPECT_EQ(roots_->usable().size(), 2u);
}

}  // namespace
}  // namespace ckptd
