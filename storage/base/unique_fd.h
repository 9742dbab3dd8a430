// UniqueFd owns one file descriptor and closes it. For one thread at a time.
#ifndef CKPTD_STORAGE_BASE_UNIQUE_FD_H_
#define CKPTD_STORAGE_BASE_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace ckptd {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_UNIQUE_FD_H_
