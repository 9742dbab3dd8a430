#include "tests/bench/workload.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/cpp/worker_pool.h"
#include "storage/base/check.h"
#include "storage/base/clock.h"
#include "storage/base/units.h"

namespace ckptd::bench {
namespace {

using Tensor = Workload::Tensor;

uint64_t Scaled(uint64_t value, double scale) {
  return std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(value) * scale));
}

std::vector<Tensor> LargeTensors(double scale) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 16; ++i) {  // 4096 x 4096 floats, that is 64 MiB, on each of two ranks.
    tensors.push_back({absl::StrCat("layers.", i, ".weight"), {2 * Scaled(4096, scale), 4096}});
  }
  return tensors;
}

std::vector<Tensor> SmallTensors(double scale) {
  std::vector<Tensor> tensors;
  for (uint64_t i = 0; i < Scaled(20'000, scale); ++i) {
    tensors.push_back({absl::StrCat("model.layers.", i / 16, ".block.", i % 16, ".weight"),
                       {2, kGiB / 2 / 20'000 / sizeof(float)}});
  }
  return tensors;
}

void AddLinear(const std::string& name, uint64_t out, uint64_t in, std::vector<Tensor>& tensors) {
  tensors.push_back({name + ".weight", {out, in}});
  tensors.push_back({name + ".bias", {out}, true});
}

void AddNorm(const std::string& name, uint64_t width, std::vector<Tensor>& tensors) {
  tensors.push_back({name + ".weight", {width}, true});
  tensors.push_back({name + ".bias", {width}, true});
}

std::vector<Tensor> EncoderTensors(double scale) {
  constexpr uint64_t kWidth = 384, kInner = 1536;
  std::vector<Tensor> tensors = {
      {"embeddings.word_embeddings.weight", {Scaled(30'522, scale), kWidth}},
      {"embeddings.position_embeddings.weight", {512, kWidth}},
      {"embeddings.token_type_embeddings.weight", {2, kWidth}}};
  AddNorm("embeddings.LayerNorm", kWidth, tensors);
  for (uint64_t layer = 0; layer < Scaled(6, scale); ++layer) {
    const std::string name = absl::StrCat("encoder.layer.", layer);
    for (const char* part : {"query", "key", "value"}) {
      AddLinear(name + ".attention.self." + part, kWidth, kWidth, tensors);
    }
    AddLinear(name + ".attention.output.dense", kWidth, kWidth, tensors);
    AddNorm(name + ".attention.output.LayerNorm", kWidth, tensors);
    AddLinear(name + ".intermediate.dense", kInner, kWidth, tensors);
    AddLinear(name + ".output.dense", kWidth, kInner, tensors);
    AddNorm(name + ".output.LayerNorm", kWidth, tensors);
  }
  AddLinear("pooler.dense", kWidth, kWidth, tensors);
  return tensors;
}

// The rank's rows: as many as any other, the last ranks perhaps fewer or none.
Box PartOf(const Tensor& tensor, uint32_t rank, uint32_t ranks) {
  Box box = WholeBox(tensor.shape);
  if (tensor.replicated) return box;
  const uint64_t rows = tensor.shape[0];
  const uint64_t each = (rows + ranks - 1) / ranks;
  box.offsets[0] = std::min(rows, rank * each);
  box.sizes[0] = std::min(rows - box.offsets[0], each);
  return box;
}

std::span<std::byte> TouchedMemory(uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CKPT_CHECK(memory != MAP_FAILED, "there is memory for the workload");
  std::memset(memory, 1, bytes);
  return {static_cast<std::byte*>(memory), bytes};
}

}  // namespace

absl::StatusOr<Workload> MakeWorkload(const std::string& name, double scale) {
  if (name == "W1") return Workload{name, 2, LargeTensors(scale)};
  if (name == "W2") return Workload{name, 2, SmallTensors(scale)};
  if (name == "model") return Workload{name, 4, EncoderTensors(scale)};
  return absl::InvalidArgumentError(absl::StrCat("no such workload: ", name));
}

RankState::RankState(const Workload& workload, uint32_t rank) : workload_(workload) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : workload_.tensors) {
    Part part = {&tensor, PartOf(tensor, rank, workload_.ranks), bytes, 0, true};
    part.bytes = Elements(part.box.sizes) * sizeof(float);
    part.written = !tensor.replicated || rank == 0;
    bytes += part.bytes;
    if (part.bytes > 0) parts_.push_back(std::move(part));
  }
  memory_ = TouchedMemory(bytes);
  // Every tensor differs from its neighbours, and replicas do not.
  for (const Part& part : parts_) {
    const auto number = part.tensor - workload_.tensors.data();
    std::memset(memory_.data() + part.offset, static_cast<int>(number % 251), part.bytes);
  }
}

RankState::~RankState() {
  munmap(memory_.data(), memory_.size());
  if (!copy_.empty()) munmap(copy_.data(), copy_.size());
}

State RankState::MakeState() const {
  State state;
  for (const Part& part : parts_) {
    state.tensors.push_back({.name = part.tensor->name,
                             .shape = part.tensor->shape,
                             .chunks = {{.box = part.box, .data = &memory_[part.offset]}}});
  }
  return state;
}

std::vector<TensorTarget> RankState::MakeTargets() const {
  std::vector<TensorTarget> targets;
  for (const Part& part : parts_) {
    targets.push_back({.name = part.tensor->name,
                       .shape = part.tensor->shape,
                       .boxes = {{.box = part.box, .data = &memory_[part.offset]}}});
  }
  return targets;
}

double RankState::Copy(uint32_t threads) {
  if (copy_.empty()) copy_ = TouchedMemory(memory_.size());
  WorkerPool pool(threads);
  pool.Run(threads, [](size_t) {});  // The threads exist.
  const absl::Duration begin = SystemClock().Monotonic();
  pool.Run(parts_.size(), [this](size_t i) {
    const Part& part = parts_[i];
    if (part.written) std::memcpy(&copy_[part.offset], &memory_[part.offset], part.bytes);
  });
  return absl::ToDoubleSeconds(SystemClock().Monotonic() - begin);
}

}  // namespace ckptd::bench
