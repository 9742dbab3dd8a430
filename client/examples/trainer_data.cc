#include "client/examples/trainer_data.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

absl::StatusOr<Shape> ParseShape(absl::string_view text) {
  Shape shape;
  if (text.empty()) return shape;
  for (absl::string_view part : absl::StrSplit(text, 'x')) {
    uint64_t size;
    if (!absl::SimpleAtoi(part, &size)) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is no shape such as 3x5"));
    }
    shape.push_back(size);
  }
  return shape;
}

// True if `text` says how the tensor is split.
absl::StatusOr<bool> ParseSplit(absl::string_view text, TensorSpec& spec) {
  if (text == "replicated" || text == "local") {
    spec.split = text == "local" ? Split::kLocal : Split::kReplicated;
    return true;
  }
  if (!absl::ConsumePrefix(&text, "split=")) return false;
  spec.split = Split::kDimension;
  if (absl::SimpleAtoi(text, &spec.dimension)) return true;
  return absl::InvalidArgumentError(absl::StrCat("split=", text, " names no dimension"));
}

}  // namespace

uint64_t SplitMix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

uint64_t Fnv1a64(absl::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

uint64_t TensorSeed(absl::string_view name, uint64_t step, std::optional<uint32_t> rank) {
  std::string text = absl::StrCat(name, "|", step);
  if (rank) absl::StrAppend(&text, "|", *rank);
  return Fnv1a64(text);
}

void GenerateBytes(uint64_t seed, uint64_t offset_bytes, std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const uint64_t at = offset_bytes + done;
    const uint64_t word = SplitMix64(seed + at / 8);  // This machine is little-endian.
    const size_t part = std::min<size_t>(8 - at % 8, out.size() - done);
    std::memcpy(out.data() + done, reinterpret_cast<const std::byte*>(&word) + at % 8, part);
    done += part;
  }
}

Split DefaultSplit(const Shape& shape) {
  return shape.size() < 2 ? Split::kReplicated : Split::kDimension;
}

absl::StatusOr<TensorSpec> ParseTensorSpec(absl::string_view text) {
  std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  TensorSpec spec;
  bool explicit_split = false;
  if (parts.size() > 3) {
    ASSIGN_OR_RETURN(explicit_split, ParseSplit(parts.back(), spec));
    if (explicit_split) parts.pop_back();
  }
  if (parts.size() < 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor ", text, " is not NAME:DTYPE:3x5[:split=D|:replicated|:local]"));
  }
  ASSIGN_OR_RETURN(spec.shape, ParseShape(parts.back()));
  parts.pop_back();
  const std::optional<DType> dtype = DTypeFromName(parts.back());
  if (!dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor ", text, ": no dtype is named \"", parts.back(), "\""));
  }
  spec.dtype = *dtype;
  parts.pop_back();
  spec.name = absl::StrJoin(parts, ":");  // A name may hold colons.
  if (!explicit_split) spec.split = DefaultSplit(spec.shape);
  if (spec.split == Split::kDimension && spec.dimension >= spec.shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tensor ", text, ": there is no dimension ", spec.dimension));
  }
  return spec;
}

std::optional<Box> BoxOf(const TensorSpec& spec, uint32_t rank, uint32_t world_size) {
  Box box = WholeBox(spec.shape);
  if (spec.split != Split::kDimension || Elements(spec.shape) == 0) return box;
  const uint64_t size = spec.shape[spec.dimension];
  const uint64_t part = (size + world_size - 1) / world_size;
  const uint64_t begin = rank * part;
  if (begin >= size) return std::nullopt;
  box.offsets[spec.dimension] = begin;
  box.sizes[spec.dimension] = std::min(part, size - begin);
  return box;
}

}  // namespace ckptd
