#include "tests/support/fault_disk.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

using Kind = FaultAction::Kind;
using Job = absl::AnyInvocable<void() &&>;

// Runs jobs at their time, on one thread. The destructor drops those that are left.
class Later {
 public:
  using Time = std::chrono::steady_clock::time_point;

  Later() : thread_([this] { Run(); }) {}
  ~Later() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  void At(Time time, Job job) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      jobs_.emplace(time, std::move(job));
    }
    changed_.notify_one();
  }

  void After(absl::Duration delay, Job job) {
    At(std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(delay), std::move(job));
  }

  // Keeps a job for ever without running it.
  void Park(Job job) {
    std::lock_guard<std::mutex> lock(mutex_);
    parked_.push_back(std::move(job));
  }

  // When `bytes` more have gone through at this rate, after all that `name` was charged with
  // before.
  Time Charge(const std::string& name, uint64_t bytes, uint64_t bytes_per_second) {
    std::lock_guard<std::mutex> lock(mutex_);
    Time& free = free_at_[name];
    free = std::max(free, std::chrono::steady_clock::now());
    free += std::chrono::nanoseconds(
        static_cast<int64_t>(1e9 * static_cast<double>(bytes) / bytes_per_second));
    return free;
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopping_) {
      if (jobs_.empty()) {
        changed_.wait(lock);
      } else if (Time first = jobs_.begin()->first; first > std::chrono::steady_clock::now()) {
        changed_.wait_until(lock, first);
      } else {
        Job job = std::move(jobs_.begin()->second);
        jobs_.erase(jobs_.begin());
        lock.unlock();
        std::move(job)();
        lock.lock();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Time, Job> jobs_;
  std::vector<Job> parked_;
  std::map<std::string, Time> free_at_;
  bool stopping_ = false;
  std::thread thread_;
};

// Carries out a call: what the plan says before, the call itself, what the plan says after.
template <typename Call>
auto DoCall(FaultInjector& injector, FaultOperation operation, absl::string_view path, Call call)
    -> decltype(call()) {
  std::optional<FaultAction> action = injector.OnOperation(operation, path);
  if (!action.has_value()) return call();
  switch (action->kind) {
    case Kind::kError:
      return ErrnoStatus(action->error, absl::StrCat(FaultOperationName(operation), " ",
                                                     path.empty() ? "." : path));
    case Kind::kDelay:
      absl::SleepFor(action->delay);
      return call();
    case Kind::kHang:
      HangForEver();
    case Kind::kStop:
      StopSelf();
      return call();
    case Kind::kKill:
      KillSelf();
    case Kind::kKillAfter:
      static_cast<void>(call());
      KillSelf();
    case Kind::kShort:
    case Kind::kFlip:
    case Kind::kRate:
      break;  // Of transfers only; the plan's parser sees to it.
  }
  return call();
}

// Copies the bytes, as fit for direct transfers as they may have been, with one inverted.
std::shared_ptr<std::byte> CopyFlipped(std::span<const std::byte> data, uint64_t flipped) {
  std::shared_ptr<std::byte> copy(
      static_cast<std::byte*>(
          std::aligned_alloc(Disk::kDirectAlignment, RoundUp(data.size(), Disk::kDirectAlignment))),
      &std::free);
  std::memcpy(copy.get(), data.data(), data.size());
  std::byte& byte = copy.get()[std::min<uint64_t>(flipped, data.size() - 1)];
  byte = ~byte;
  return copy;
}

class FaultFile final : public File {
 public:
  FaultFile(std::string path, std::unique_ptr<File> file, FaultInjector& injector, Later& later)
      : path_(std::move(path)), file_(std::move(file)), injector_(injector), later_(later) {}

  void Write(uint64_t offset, std::span<const std::byte> data, TransferDone done) override {
    std::optional<FaultAction> action = injector_.OnOperation(FaultOperation::kWrite, path_);
    if (action.has_value() && action->kind == Kind::kFlip && !data.empty()) {
      std::shared_ptr<std::byte> copy = CopyFlipped(data, action->bytes);
      file_->Write(offset, {copy.get(), data.size()},
                   [copy, done = std::move(done)](absl::StatusOr<size_t> moved) mutable {
                     std::move(done)(std::move(moved));
                   });
      return;
    }
    if (action.has_value() && action->kind == Kind::kShort) {
      data = data.first(std::min<uint64_t>(data.size(), action->bytes));
    }
    DoTransfer(action, "write", data.size(), std::move(done),
               [file = file_.get(), offset, data](TransferDone finish) {
                 file->Write(offset, data, std::move(finish));
               });
  }

  void Read(uint64_t offset, std::span<std::byte> data, TransferDone done) override {
    std::optional<FaultAction> action = injector_.OnOperation(FaultOperation::kRead, path_);
    if (action.has_value() && action->kind == Kind::kFlip) {
      done = [data, flipped = action->bytes,
              done = std::move(done)](absl::StatusOr<size_t> moved) mutable {
        if (moved.ok() && *moved > 0) {
          std::byte& byte = data[std::min<uint64_t>(flipped, *moved - 1)];
          byte = ~byte;
        }
        std::move(done)(std::move(moved));
      };
    }
    if (action.has_value() && action->kind == Kind::kShort) {
      data = data.first(std::min<uint64_t>(data.size(), action->bytes));
    }
    DoTransfer(action, "read", data.size(), std::move(done),
               [file = file_.get(), offset, data](TransferDone finish) {
                 file->Read(offset, data, std::move(finish));
               });
  }

  absl::Status Allocate(uint64_t size_bytes) override {
    return DoCall(injector_, FaultOperation::kAllocate, path_,
                  [&] { return file_->Allocate(size_bytes); });
  }
  absl::Status Truncate(uint64_t size_bytes) override {
    return DoCall(injector_, FaultOperation::kTruncate, path_,
                  [&] { return file_->Truncate(size_bytes); });
  }
  absl::Status Sync() override {
    return DoCall(injector_, FaultOperation::kSync, path_, [&] { return file_->Sync(); });
  }
  absl::StatusOr<uint64_t> Size() override {
    return DoCall(injector_, FaultOperation::kStat, path_, [&] { return file_->Size(); });
  }
  absl::Status Close() override { return file_->Close(); }

 private:
  using Start = absl::AnyInvocable<void(TransferDone) &&>;

  void DoTransfer(const std::optional<FaultAction>& action, absl::string_view call, size_t bytes,
                  TransferDone done, Start start) {
    if (!action.has_value()) return std::move(start)(std::move(done));
    switch (action->kind) {
      case Kind::kError:
        later_.After(
            absl::ZeroDuration(),
            [done = std::move(done),
             status = ErrnoStatus(action->error, absl::StrCat(call, " ", path_))]() mutable {
              std::move(done)(status);
            });
        return;
      case Kind::kDelay:
        later_.After(action->delay, Bind(std::move(start), std::move(done)));
        return;
      case Kind::kRate:
        later_.At(later_.Charge(action->rule, bytes, action->bytes),
                  Bind(std::move(start), std::move(done)));
        return;
      case Kind::kHang:
        later_.Park(Bind(std::move(start), std::move(done)));
        return;
      case Kind::kKill:
        KillSelf();
      case Kind::kKillAfter:
        std::move(start)([](absl::StatusOr<size_t>) { KillSelf(); });
        return;
      case Kind::kStop:
        StopSelf();
        break;
      case Kind::kShort:
      case Kind::kFlip:
        break;  // Done by the caller.
    }
    std::move(start)(std::move(done));
  }

  static Job Bind(Start start, TransferDone done) {
    return [start = std::move(start), done = std::move(done)]() mutable {
      std::move(start)(std::move(done));
    };
  }

  const std::string path_;
  const std::unique_ptr<File> file_;
  FaultInjector& injector_;
  Later& later_;
};

class FaultDisk final : public Disk {
 public:
  FaultDisk(std::unique_ptr<Disk> disk, FaultInjector& injector)
      : disk_(std::move(disk)), injector_(injector) {}

  absl::StatusOr<std::unique_ptr<File>> OpenForRead(absl::string_view path) override {
    return Wrap(path, DoCall(injector_, FaultOperation::kOpen, path,
                             [&] { return disk_->OpenForRead(path); }));
  }
  absl::StatusOr<std::unique_ptr<File>> Create(absl::string_view path, uint32_t mode) override {
    return Wrap(path, DoCall(injector_, FaultOperation::kCreate, path,
                             [&] { return disk_->Create(path, mode); }));
  }
  absl::Status MakeDir(absl::string_view path, uint32_t mode) override {
    return DoCall(injector_, FaultOperation::kMakeDir, path,
                  [&] { return disk_->MakeDir(path, mode); });
  }
  absl::Status Rename(absl::string_view from, absl::string_view to) override {
    return DoCall(injector_, FaultOperation::kRename, absl::StrCat(from, " to ", to),
                  [&] { return disk_->Rename(from, to); });
  }
  absl::Status Unlink(absl::string_view path) override {
    return DoCall(injector_, FaultOperation::kUnlink, path, [&] { return disk_->Unlink(path); });
  }
  absl::Status RemoveDir(absl::string_view path) override {
    return DoCall(injector_, FaultOperation::kUnlink, path, [&] { return disk_->RemoveDir(path); });
  }
  absl::StatusOr<std::vector<DirEntry>> List(absl::string_view path) override {
    return DoCall(injector_, FaultOperation::kList, path, [&] { return disk_->List(path); });
  }
  absl::StatusOr<FileInfo> Stat(absl::string_view path) override {
    return DoCall(injector_, FaultOperation::kStat, path, [&] { return disk_->Stat(path); });
  }
  absl::Status SyncDir(absl::string_view path) override {
    return DoCall(injector_, FaultOperation::kSyncDir, path, [&] { return disk_->SyncDir(path); });
  }
  absl::StatusOr<DiskSpace> Space() override {
    absl::StatusOr<DiskSpace> space = disk_->Space();
    if (space.ok() && injector_.free_bytes) space->free_bytes = injector_.free_bytes();
    return space;
  }
  void AttachMemory(std::span<std::byte> memory) override { disk_->AttachMemory(memory); }
  void DetachMemory(std::span<std::byte> memory) override { disk_->DetachMemory(memory); }
  DiskFacts Facts() const override { return disk_->Facts(); }

 private:
  absl::StatusOr<std::unique_ptr<File>> Wrap(absl::string_view path,
                                             absl::StatusOr<std::unique_ptr<File>> file) {
    if (!file.ok()) return file;
    return std::make_unique<FaultFile>(std::string(path), *std::move(file), injector_, later_);
  }

  const std::unique_ptr<Disk> disk_;
  FaultInjector& injector_;
  Later later_;  // Stops before the disk that its jobs use.
};

}  // namespace

std::unique_ptr<Disk> MakeFaultDisk(std::unique_ptr<Disk> disk, FaultInjector& injector) {
  return std::make_unique<FaultDisk>(std::move(disk), injector);
}

}  // namespace ckptd
