// A memory limit for a process of a test.
#ifndef CKPTD_TESTS_SUPPORT_MEMORY_GROUP_H_
#define CKPTD_TESTS_SUPPORT_MEMORY_GROUP_H_

#include <sys/types.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ckptd {

// A memory cgroup (version 1) of its own for one process, which is moved into it: what it touches
// from then on counts. The process must have ended, or have left it, before the group goes.
class MemoryGroup {
 public:
  // `limit` in bytes, as text.
  MemoryGroup(pid_t pid, const std::string& limit)
      : folder_(std::string(kParent) + "/ckptd-test-" + std::to_string(pid)) {
    std::error_code error;
    made_ = std::filesystem::create_directory(folder_, error) &&
            Write(folder_ + "/memory.limit_in_bytes", limit) &&
            Write(folder_ + "/cgroup.procs", std::to_string(pid));
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;
  ~MemoryGroup() { rmdir(folder_.c_str()); }

  // False without the right to make one.
  bool made() const { return made_; }

  // Moves a process out of it, with its future pages only.
  static void Leave(pid_t pid) {
    Write(std::string(kParent) + "/cgroup.procs", std::to_string(pid));
  }

 private:
  static constexpr char kParent[] = "/sys/fs/cgroup/memory";

  static bool Write(const std::string& file, const std::string& text) {
    std::ofstream stream(file);
    stream << text;
    stream.flush();
    return stream.good();
  }

  const std::string folder_;
  bool made_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_SUPPORT_MEMORY_GROUP_H_
