// What is saved: the tensors of one rank, with their memory.
#ifndef CKPTD_TESTS_BENCH_WORKLOAD_H_
#define CKPTD_TESTS_BENCH_WORKLOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace ckptd::bench {

// Which tensors there are, all ranks together. A scale below 1 makes it smaller, for tests.
//   W1     2 ranks, 1 GiB each in 64 MiB tensors
//   W2     2 ranks, 20 000 tensors each, 1 GiB in all
//   model  4 ranks, 90.9 MB: the 103 tensors of a sentence encoder of six layers, as the demo
//          splits them
struct Workload {
  std::string name;
  uint32_t ranks = 0;

  struct Tensor {
    std::string name;
    Shape shape;              // float32.
    bool replicated = false;  // Every rank holds the whole; else split along dimension 0.
  };
  std::vector<Tensor> tensors;
};

absl::StatusOr<Workload> MakeWorkload(const std::string& name, double scale);

// The part of one rank: tensor after tensor in one piece of private memory, which is touched.
class RankState {
 public:
  RankState(const Workload& workload, uint32_t rank);
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;
  ~RankState();

  State MakeState() const;
  std::vector<TensorTarget> MakeTargets() const;

  // Copies what this rank writes (replicas are rank 0's) to other warm memory, a call of memcpy
  // for each tensor, on so many threads. Seconds.
  double Copy(uint32_t threads);

 private:
  struct Part {
    const Workload::Tensor* tensor;
    Box box;
    uint64_t offset;  // In the memory.
    uint64_t bytes;
    bool written;
  };

  const Workload workload_;
  std::vector<Part> parts_;  // Without empty ones.
  std::span<std::byte> memory_;
  std::span<std::byte> copy_;  // As large; made by the first Copy().
};

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_WORKLOAD_H_
