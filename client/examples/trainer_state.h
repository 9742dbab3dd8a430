// TrainerState: the tensors and items of one rank of the trainer, their bytes at each step, and the
// views that a session takes.
#ifndef CKPTD_CLIENT_EXAMPLES_TRAINER_STATE_H_
#define CKPTD_CLIENT_EXAMPLES_TRAINER_STATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"
#include "client/examples/trainer_data.h"

namespace ckptd {

// For one thread at a time. Views point into this object.
class TrainerState {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t world_size = 1;
    std::string model;                 // A safetensors file, or empty.
    std::vector<std::string> tensors;  // --tensor
    std::vector<std::string> items;    // --item NAME=JSON, replicated.
  };
  static absl::StatusOr<TrainerState> Create(const Options& options);

  // Gives every tensor its bytes of the step.
  void Fill(uint64_t step);

  // The first byte that is not the step's.
  struct Difference {
    std::string tensor;
    uint64_t offset_bytes = 0;  // In this rank's part.
  };
  std::optional<Difference> Check(uint64_t step) const;

  // Items that came with a checkpoint of that step: the name of the first that is wrong or missing.
  std::optional<std::string> CheckItems(uint64_t step, const std::vector<ItemValue>& items) const;

  // Fields: step (shared), lr and rank (rank-local), and the --item ones.
  State MakeState(uint64_t step) const;
  std::vector<TensorTarget> MakeTargets();

 private:
  struct Part {
    TensorSpec spec;
    std::optional<Box> box;
    std::vector<std::byte> bytes;  // Of the box.
    std::vector<std::byte>
        model_bytes;  // The same region of the model file; empty if it is generated.
  };

  absl::Status AddModel(const std::string& path);
  absl::Status AddPart(TensorSpec spec);
  void BytesAt(const Part& part, uint64_t step, std::vector<std::byte>& out) const;
  std::vector<ItemValue> ItemsAt(uint64_t step) const;

  uint32_t rank_ = 0;
  uint32_t world_size_ = 1;
  std::vector<Part> parts_;
  std::vector<ItemValue> items_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_EXAMPLES_TRAINER_STATE_H_
