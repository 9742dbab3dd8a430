#include "server/locks.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A folder whose path leaves room for a socket.
class Locks : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/ckptd-locks-XXXXXX";
    ASSERT_NE(::mkdtemp(path), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
};

// Runs `body` in a child, and returns once it has returned true; the child then waits to be killed.
template <typename Body>
pid_t ChildThatHolds(Body body) {
  int pipe_ends[2];
  EXPECT_EQ(::pipe(pipe_ends), 0);
  pid_t child = ::fork();
  if (child == 0) {
    auto held = body();
    char answer = held.ok() ? 'y' : 'n';
    if (::write(pipe_ends[1], &answer, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char answer = 0;
  EXPECT_EQ(::read(pipe_ends[0], &answer, 1), 1);
  EXPECT_EQ(answer, 'y');
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
  return child;
}

void Kill(pid_t child) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

std::string HostName() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

TEST_F(Locks, ASecondHolderOfASocketIsToldWhoHasIt) {
  std::string socket = folder_ + "/s/ckptd.sock";
  pid_t child = ChildThatHolds([&] { return SocketLock::Acquire(socket); });
  absl::Status status = SocketLock::Acquire(socket).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(socket), HasSubstr(absl::StrCat("pid ", child)),
                    HasSubstr(absl::StrCat("host ", HostName()))));
  Kill(child);
}

TEST_F(Locks, AKilledHolderLeavesNothingBehind) {
  std::string socket = folder_ + "/ckptd.sock";
  Kill(ChildThatHolds([&] { return SocketLock::Acquire(socket); }));
  EXPECT_TRUE(SocketLock::Acquire(socket).ok());
  Kill(ChildThatHolds([&] { return NodeLock::Acquire(folder_, "a"); }));
  EXPECT_TRUE(NodeLock::Acquire(folder_, "a").ok());
}

TEST_F(Locks, ASecondHolderInTheSameProcessIsRefusedToo) {
  std::string socket = folder_ + "/ckptd.sock";
  auto first = SocketLock::Acquire(socket);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(SocketLock::Acquire(socket).status().code(), absl::StatusCode::kAlreadyExists);
  first = absl::CancelledError("released");
  EXPECT_TRUE(SocketLock::Acquire(socket).ok());
}

TEST_F(Locks, TheSocketFolderIsMadeForItsUserOnly) {
  ASSERT_TRUE(SocketLock::Acquire(folder_ + "/x/y/ckptd.sock").ok());
  struct stat info;
  ASSERT_EQ(::stat((folder_ + "/x/y").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/x/y/ckptd.sock.lock"));
}

TEST_F(Locks, ATooLongSocketPathIsRefusedBeforeAnythingIsMade) {
  std::string socket = folder_ + "/" + std::string(100, 'x') + "/s";
  EXPECT_EQ(SocketLock::Acquire(socket).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Locks, OneNodeNameHasOneHolderPerRoot) {
  std::filesystem::create_directory(folder_ + "/r");
  std::filesystem::create_directory(folder_ + "/q");
  pid_t child = ChildThatHolds([&] { return NodeLock::Acquire(folder_ + "/r", "node a"); });
  absl::Status status = NodeLock::Acquire(folder_ + "/r", "node a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("node a"), HasSubstr(absl::StrCat("pid ", child))));
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/r/.ckptd/nodes/node%20a.lock"));
  auto other = NodeLock::Acquire(folder_ + "/r", "b");
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->warning(), "");
  EXPECT_TRUE(NodeLock::Acquire(folder_ + "/q", "node a").ok());
  Kill(child);
}

// Another thread binds a socket just then.
TEST_F(Locks, FoldersHaveTheirModeWhateverTheUmaskIs) {
  const mode_t before = ::umask(0177);
  const absl::Status status = NodeLock::Acquire(folder_, "a").status();
  ::umask(before);
  EXPECT_TRUE(status.ok()) << status;
  for (const char* name : {"/.ckptd", "/.ckptd/nodes"}) {
    struct stat info;
    ASSERT_EQ(::stat((folder_ + name).c_str(), &info), 0) << name;
    EXPECT_EQ(info.st_mode & 0777, 0700u) << name;
  }
}

TEST_F(Locks, ARootThatIsMissingIsAnError) {
  EXPECT_EQ(NodeLock::Acquire(folder_ + "/none", "a").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(Locks, ARootThatCannotBeWrittenIsAPermissionError) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  std::filesystem::permissions(
      folder_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  EXPECT_EQ(NodeLock::Acquire(folder_, "a").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(SocketLock::Acquire(folder_ + "/s").status().code(),
            absl::StatusCode::kPermissionDenied);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace ckptd
