#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "tests/bench/child.h"
#include "tests/bench/ranks.h"
#include "tests/bench/row.h"
#include "tests/bench/saver.h"

namespace ckptd::bench {
namespace {

constexpr double kSecondsPerGib = 0.25;
constexpr double kIdleSeconds = 0.020;
constexpr absl::Duration kIdleFor = absl::Seconds(20);
constexpr uint64_t kBaseBytes = 64 * kMiB;
constexpr uint64_t kTensorBytes = 400;

// Time that the daemon's threads run for one GiB, the checksum after the write included.
absl::StatusOr<Row> CpuOfWriting(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start("W1", setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
  RETURN_IF_ERROR(saver->Save().status());
  Row row = {.name = name, .yardstick = "0.25 s per GiB"};
  for (int round = 0; round < setting.rounds; ++round) {
    ASSIGN_OR_RETURN(const double before, CpuSeconds(saver->daemon().pid()));
    ASSIGN_OR_RETURN(const Saver::Result result, saver->Save());
    ASSIGN_OR_RETURN(const double after, CpuSeconds(saver->daemon().pid()));
    row.ours.push_back((after - before) * static_cast<double>(kGiB) /
                       static_cast<double>(result.bytes));
    row.measure.push_back(kSecondsPerGib);
  }
  return row;
}

// Four ranks have saved and train on. A sample takes long and varies little: three are enough.
absl::StatusOr<Row> CpuWhenIdle(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start("model", setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
  RETURN_IF_ERROR(saver->Save().status());
  const absl::Duration idle = std::max(absl::Milliseconds(100), kIdleFor * setting.scale);
  absl::SleepFor(idle / 10);
  Row row = {.name = name, .yardstick = "20 ms in 20 s"};
  for (int round = 0; round < std::min(setting.rounds, 3); ++round) {
    ASSIGN_OR_RETURN(const double before, CpuSeconds(saver->daemon().pid()));
    absl::SleepFor(idle);
    ASSIGN_OR_RETURN(const double after, CpuSeconds(saver->daemon().pid()));
    row.ours.push_back((after - before) * absl::FDivDuration(kIdleFor, idle));
    row.measure.push_back(kIdleSeconds);
  }
  return row;
}

// The most anonymous memory that a process was seen with.
class MemorySampler {
 public:
  explicit MemorySampler(pid_t pid)
      : thread_([this, pid] {
          while (!stopping_) {
            if (const auto now = AnonymousBytes(pid); now.ok()) bytes_ = std::max(bytes_, *now);
            absl::SleepFor(absl::Milliseconds(2));
          }
        }) {}
  ~MemorySampler() {
    if (thread_.joinable()) Stop();
  }

  uint64_t Stop() {
    stopping_ = true;
    thread_.join();
    return bytes_;
  }

 private:
  std::atomic<bool> stopping_{false};
  uint64_t bytes_ = 0;  // The thread's, until it was joined.
  std::thread thread_;
};

absl::StatusOr<Row> MemoryOfPlans(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start("W2", setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
  RETURN_IF_ERROR(saver->Save().status());
  uint64_t allowed = kBaseBytes;
  for (const Workload::Tensor& tensor : ranks.workload().tensors) {
    allowed += ranks.count() * (kTensorBytes + tensor.name.size());
  }
  Row row = {.name = name,
             .yardstick = "64 MiB + 400 bytes and the name of each tensor",
             .unit = Unit::kBytes};
  for (int round = 0; round < setting.rounds; ++round) {
    MemorySampler sampler(saver->daemon().pid());
    RETURN_IF_ERROR(saver->Save().status());
    row.ours.push_back(static_cast<double>(sampler.Stop()));
    row.measure.push_back(static_cast<double>(allowed));
  }
  return row;
}

}  // namespace

std::vector<RowMaker> DaemonRows() {
  return {{"cpu.write", CpuOfWriting}, {"cpu.idle", CpuWhenIdle}, {"rss.plan", MemoryOfPlans}};
}

}  // namespace ckptd::bench
