#include "client/cpp/fork_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace ckptd {
namespace {

// What `body` returns in a forked child.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ForkGuard, AChildClosesWhatWasNamedAndIsRefused) {
  ForkGuard guard;
  const int fd = open("/dev/null", O_RDONLY);
  const int other = open("/dev/null", O_RDONLY);
  guard.Add(fd);
  EXPECT_TRUE(guard.Check().ok());
  EXPECT_EQ(InChild([&] {
              if (fcntl(fd, F_GETFD) != -1) return 1;
              if (fcntl(other, F_GETFD) == -1) return 2;
              if (!absl::IsFailedPrecondition(guard.Check())) return 3;
              return absl::IsFailedPrecondition(ForkGuard::CheckProcess()) ? 0 : 4;
            }),
            0);
  EXPECT_NE(fcntl(fd, F_GETFD), -1) << "the parent keeps it";
  guard.Forget(fd);
  close(fd);
  close(other);
}

TEST(ForkGuard, AChildWithoutGuardsIsFree) {
  EXPECT_EQ(InChild([] { return ForkGuard::CheckProcess().ok() ? 0 : 1; }), 0);
}

TEST(ForkGuard, AGrandchildIsRefusedToo) {
  ForkGuard guard;
  EXPECT_EQ(InChild([&] {
              return InChild([&] { return absl::IsFailedPrecondition(guard.Check()) ? 0 : 1; });
            }),
            0);
}

}  // namespace
}  // namespace ckptd
