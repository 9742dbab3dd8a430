#include "storage/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace ckptd {
namespace {

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

int OpenSomething() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

TEST(UniqueFd, ClosesWhatItOwns) {
  int fd = OpenSomething();
  {
    UniqueFd owner(fd);
    EXPECT_TRUE(owner.valid());
    EXPECT_EQ(owner.get(), fd);
  }
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_FALSE(UniqueFd().valid());
}

TEST(UniqueFd, MovingHandsTheDescriptorOn) {
  int fd = OpenSomething();
  UniqueFd first(fd);
  UniqueFd second(std::move(first));
  EXPECT_EQ(second.get(), fd);
  int other = OpenSomething();
  UniqueFd third(other);
  third = std::move(second);
  EXPECT_EQ(third.get(), fd);
  EXPECT_FALSE(IsOpen(other));
  EXPECT_TRUE(IsOpen(fd));
  EXPECT_EQ(third.release(), fd);
  third.Reset();
  EXPECT_TRUE(IsOpen(fd));
  ::close(fd);
}

}  // namespace
}  // namespace ckptd
