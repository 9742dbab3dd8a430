// How long the copy of an image takes, checksums included, next to one plain memcpy of the same
// bytes. Prints a line per case: ratio of the medians, and both medians. Argument: MiB per case
// (default 512).
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "client/cpp/image_source.h"
#include "client/cpp/worker_pool.h"
#include "storage/base/units.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

constexpr int kRounds = 9;

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

std::byte* TouchedMemory(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  std::memset(memory, 1, bytes);
  return static_cast<std::byte*>(memory);
}

// `count` equal tensors, one after the other in memory.
void Measure(const char* name, uint64_t bytes, uint64_t count, uint32_t threads) {
  std::byte* source = TouchedMemory(bytes);
  std::byte* target = TouchedMemory(bytes);
  RankPlan plan;
  std::vector<StridedView> views;
  for (uint64_t i = 0; i < count; ++i) {
    TensorEntry& tensor = plan.tensors.emplace_back();
    tensor.name = std::to_string(i);
    tensor.dtype = DType::kUInt8;
    tensor.shape = {bytes / count};
    tensor.chunks = {WholeBox(tensor.shape)};
    views.emplace_back(source + i * (bytes / count), tensor.shape, 1, std::vector<int64_t>{});
  }
  std::vector<uint32_t> ordinals(count);
  std::iota(ordinals.begin(), ordinals.end(), 0);
  const ImageLayout layout = LayOutImage(plan, ordinals);
  const std::vector<Unit> units = UnitsOf(layout, 0, layout.image_bytes);
  const ImageSource image(layout, views);
  WorkerPool pool(threads);
  std::vector<double> ours, plain;
  for (int round = 0; round < kRounds; ++round) {
    plain.push_back(SecondsOf([&] { std::memcpy(target, source, bytes); }));
    ours.push_back(SecondsOf([&] {
      pool.Run(units.size(),
               [&](size_t i) { image.CopyUnit(units[i], target + units[i].image_offset_bytes); });
    }));
  }
  std::printf("%-28s threads %u  ratio %.2f  ours %.4f s  memcpy %.4f s  %.1f GB/s\n", name,
              threads, Median(ours) / Median(plain), Median(ours), Median(plain),
              static_cast<double>(bytes) / Median(ours) / 1e9);
  munmap(source, bytes);
  munmap(target, bytes);
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  const uint64_t bytes = (argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512) * ckptd::kMiB;
  for (uint32_t threads : {1, 2}) {
    ckptd::Measure("one tensor", bytes, 1, threads);
    ckptd::Measure("100 tensors", bytes, 100, threads);
    ckptd::Measure("20 000 tensors", bytes, 20'000, threads);
  }
}
