#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "tests/bench/disk.h"
#include "tests/bench/ranks.h"
#include "tests/bench/row.h"
#include "tests/bench/saver.h"

namespace ckptd::bench {
namespace {

using Measure = std::function<absl::StatusOr<double>()>;

// From the call to the event "durable".
Measure Durable(Saver& saver, uint64_t& bytes) {
  return [&]() -> absl::StatusOr<double> {
    ASSIGN_OR_RETURN(const Saver::Result result, saver.Save());
    bytes = result.bytes;
    return result.durable_s;
  };
}

Measure FioWrite(const Setting& setting, const uint64_t& bytes, bool preallocated) {
  return [&setting, &bytes, preallocated]() -> absl::StatusOr<double> {
    RETURN_IF_ERROR(Settle(setting.folder));
    return setting.fio.Write(bytes, preallocated);
  };
}

Goal AtLeast(double figure) { return {.kind = Goal::Kind::kAtLeast, .figure = figure}; }

absl::StatusOr<Row> DurableNextToFio(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start("W1", setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
  ASSIGN_OR_RETURN(const Saver::Result warm, saver->Save());
  uint64_t bytes = warm.bytes;
  Row row = {.name = name, .yardstick = "fio", .goal = AtLeast(0.95)};
  RETURN_IF_ERROR(RunRounds(setting, {{Durable(*saver, bytes), row.ours},
                                      {FioWrite(setting, bytes, false), row.measure}}));
  return row;
}

// Many small tensors next to few large ones, for as many bytes.
absl::StatusOr<Row> DurableOfSmallTensors(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(Ranks small, Ranks::Start("W2", setting.scale));
  ASSIGN_OR_RETURN(Ranks large, Ranks::Start("W1", setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> ours, Saver::Start(setting, small));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> theirs, Saver::Start(setting, large));
  uint64_t our_bytes = 0, their_bytes = 0;
  Row row = {.name = name, .yardstick = "durable.W1 of as many bytes", .goal = AtLeast(0.85)};
  RETURN_IF_ERROR(ours->Save().status());
  RETURN_IF_ERROR(theirs->Save().status());
  RETURN_IF_ERROR(RunRounds(setting, {{Durable(*ours, our_bytes), row.ours},
                                      {Durable(*theirs, their_bytes), row.measure}}));
  for (double& sample : row.measure) {
    sample *= static_cast<double>(our_bytes) / static_cast<double>(their_bytes);
  }
  return row;
}

absl::StatusOr<Row> DurableByPosix(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start("W1", setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> posix,
                   Saver::Start(setting, ranks, {"--io", "posix"}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> uring, Saver::Start(setting, ranks));
  uint64_t bytes = 0;
  // Where io_uring is forbidden both are posix.
  Row row = {.name = name, .yardstick = "--io auto", .goal = AtLeast(0.9)};
  RETURN_IF_ERROR(posix->Save().status());
  RETURN_IF_ERROR(uring->Save().status());
  RETURN_IF_ERROR(RunRounds(
      setting, {{Durable(*posix, bytes), row.ours}, {Durable(*uring, bytes), row.measure}}));
  return row;
}

// Whether it is faster to preallocate the files, as the daemon does with shards: fio's way of doing
// it, next to fio's without. Met if the daemon's way is not the slower one.
absl::StatusOr<Row> Preallocated(const Setting& setting, const std::string& name) {
  ASSIGN_OR_RETURN(const Workload workload, MakeWorkload("W1", setting.scale));
  uint64_t bytes = 0;
  for (const Workload::Tensor& tensor : workload.tensors) {
    bytes += Elements(tensor.shape) * sizeof(float);
  }
  Row row = {.name = name, .yardstick = "fio without fallocate (ours: fio with)"};
  row.goal = AtLeast(1);
  RETURN_IF_ERROR(RunRounds(setting, {{FioWrite(setting, bytes, true), row.ours},
                                      {FioWrite(setting, bytes, false), row.measure}}));
  return row;
}

// A load with the caches dropped, next to the better of fio's two ways to read the same files, or
// to memcpy where that is slower.
absl::StatusOr<Row> Load(const Setting& setting, const std::string& name,
                         const std::string& workload, uint32_t ranks_loading) {
  ASSIGN_OR_RETURN(Ranks ranks, Ranks::Start(workload, setting.scale));
  ASSIGN_OR_RETURN(const std::unique_ptr<Saver> saver, Saver::Start(setting, ranks));
  RETURN_IF_ERROR(saver->Save(/*keep=*/true).status());
  const std::string id = saver->last();
  RETURN_IF_ERROR(saver->Restart());
  std::vector<std::string> files = saver->daemon().ShardsOf(kJob, id);
  if (files.size() < ranks_loading) return absl::InternalError("a shard is missing");
  files.resize(ranks_loading);
  const auto cold = [&](const Measure& measure) -> Measure {
    return [&setting, &files, measure]() -> absl::StatusOr<double> {
      RETURN_IF_ERROR(Settle(setting.folder));
      RETURN_IF_ERROR(DropCaches(files));
      return measure();
    };
  };
  const Measure ours = [&] { return ranks.Load(saver->session(), id, ranks_loading); };
  const Measure copy = [&] { return ranks.Copy(ranks_loading); };
  RETURN_IF_ERROR(ours().status());  // Both sides are warm.
  RETURN_IF_ERROR(copy().status());
  Row row = {.name = name, .goal = AtLeast(0.95)};
  std::vector<double> direct, buffered, copied;
  RETURN_IF_ERROR(RunRounds(
      setting, {{cold(ours), row.ours},
                {cold([&] { return setting.fio.Read(files, /*direct=*/true); }), direct},
                {cold([&] { return setting.fio.Read(files, /*direct=*/false); }), buffered},
                {copy, copied}}));
  const bool direct_is_better = Median(direct) <= Median(buffered);
  row.yardstick = direct_is_better ? "fio, direct" : "fio, buffered";
  row.measure = direct_is_better ? direct : buffered;
  if (Median(copied) > Median(row.measure)) {
    row.yardstick = "memcpy";
    row.measure = copied;
  }
  return row;
}

}  // namespace

std::vector<RowMaker> DiskRows() {
  const auto load = [](const std::string& workload, uint32_t ranks) {
    return [=](const Setting& setting, const std::string& name) {
      return Load(setting, name, workload, ranks);
    };
  };
  return {{"durable.W1", DurableNextToFio},     {"durable.W2", DurableOfSmallTensors},
          {"durable.W1.posix", DurableByPosix}, {"durable.W1.fallocate", Preallocated},
          {"load.W1", load("W1", 2)},           {"load.W1.one", load("W1", 1)},
          {"load.W2", load("W2", 2)},           {"load.W2.one", load("W2", 1)}};
}

}  // namespace ckptd::bench
