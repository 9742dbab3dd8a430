// The bytes that the trainer's tensors have at each step: known to everyone, so that a loaded
// checkpoint can be checked without the run that saved it. Pure functions.
#ifndef CKPTD_CLIENT_EXAMPLES_TRAINER_DATA_H_
#define CKPTD_CLIENT_EXAMPLES_TRAINER_DATA_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "storage/plan/box.h"
#include "storage/plan/dtype.h"

namespace ckptd {

uint64_t SplitMix64(uint64_t x);
uint64_t Fnv1a64(absl::string_view text);

// What the words of a tensor are made from: fnv1a64("NAME|STEP"), of a rank-local one
// "NAME|STEP|RANK".
uint64_t TensorSeed(absl::string_view name, uint64_t step, std::optional<uint32_t> rank);

// Bytes [offset_bytes, + out.size()) of a tensor whose little-endian 64-bit word i is
// splitmix64(seed + i).
void GenerateBytes(uint64_t seed, uint64_t offset_bytes, std::span<std::byte> out);

enum class Split { kDimension, kReplicated, kLocal };

// --tensor NAME:DTYPE:3x5[:split=D|:replicated|:local]. Without the last part as tensors of a
// model: split along dimension 0, or replicated if there are fewer than two dimensions. An empty
// shape is 0-d.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;
  Split split = Split::kReplicated;
  size_t dimension = 0;  // Of a split.
};
absl::StatusOr<TensorSpec> ParseTensorSpec(absl::string_view text);
Split DefaultSplit(const Shape& shape);

// What the rank holds: torch.chunk's part of a split. Nullopt if that is nothing of a tensor that
// has elements.
std::optional<Box> BoxOf(const TensorSpec& spec, uint32_t rank, uint32_t world_size);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_EXAMPLES_TRAINER_DATA_H_
