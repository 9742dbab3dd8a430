// Root is one storage folder the daemon was started with: its disk, the workers that call it, and
// its health.
//
// Threads: free space, its warning and folders belong to the control loop; all else is thread-safe.
#ifndef CKPTD_SERVER_ROOT_H_
#define CKPTD_SERVER_ROOT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "server/workers.h"
#include "storage/disk/disk.h"

namespace ckptd {

class Root {
 public:
  // Two pools, so that no question and no load can keep a save waiting: writers run what saves
  // need, readers everything else.
  static constexpr int kWriterThreads = 4;
  static constexpr int kReaderThreads = 4;

  Root(std::string label, std::string path, std::unique_ptr<Disk> disk)
      : label_(std::move(label)),
        path_(std::move(path)),
        disk_(std::move(disk)),
        writers_(kWriterThreads),
        readers_(kReaderThreads) {}

  const std::string& label() const { return label_; }
  const std::string& path() const { return path_; }  // Absolute.
  Disk& disk() { return *disk_; }
  Workers& writers() { return writers_; }
  Workers& readers() { return readers_; }

  // Once set, sticky: until the next start has looked at it the root takes no new attempts, tells
  // no outcome that rests on a sync, and deletes nothing.
  void SetUnhealthy(std::string reason) {
    std::lock_guard lock(mutex_);
    if (!healthy_) return;
    unhealthy_reason_ = std::move(reason);
    healthy_ = false;
  }
  bool healthy() const { return healthy_; }
  std::string unhealthy_reason() const {
    std::lock_guard lock(mutex_);
    return unhealthy_reason_;
  }

  // That it runs full; empty: it does not. It is healthy all the same.
  void SetSpaceWarning(std::string warning) { space_warning_ = std::move(warning); }
  const std::string& space_warning() const { return space_warning_; }

  // This daemon has made the folders of the job, or found them, and synced them.
  void SetFoldersSynced(const std::string& job) {
    if (folders_synced_.size() == kJobsRememberedMax) folders_synced_.clear();
    folders_synced_.insert(job);
  }
  bool folders_synced(const std::string& job) const { return folders_synced_.contains(job); }

  void SetFreeBytes(uint64_t bytes) { free_bytes_ = bytes; }
  std::optional<uint64_t> free_bytes() const { return free_bytes_; }  // As a worker last saw it.

 private:
  static constexpr size_t kJobsRememberedMax = 1000;

  const std::string label_;
  const std::string path_;
  const std::unique_ptr<Disk> disk_;
  mutable std::mutex mutex_;  // Guards unhealthy_reason_.
  std::string unhealthy_reason_;
  std::atomic<bool> healthy_ = true;
  std::string space_warning_;
  std::optional<uint64_t> free_bytes_;
  std::set<std::string> folders_synced_;
  Workers writers_;  // Last: their jobs use the disk.
  Workers readers_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_ROOT_H_
