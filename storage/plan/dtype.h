// DType is the element type of a tensor: the one table of types, in torch's words.
//
// The 23 types are those that PyTorch 2.15's own checkpoint writer takes. Two do not have the
// obvious size: float4_e2m1fn_x2 packs two values into its one byte (shapes count bytes, as torch's
// do), bcomplex32 is a pair of bfloat16.
#ifndef CKPTD_STORAGE_PLAN_DTYPE_H_
#define CKPTD_STORAGE_PLAN_DTYPE_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"

namespace ckptd {

// The numbers are written to disk and sent over the wire: never change or reuse one.
enum class DType : uint8_t {
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt64 = 5,
  kInt32 = 6,
  kInt16 = 7,
  kInt8 = 8,
  kUInt8 = 9,
  kBool = 10,
  kUInt16 = 11,
  kUInt32 = 12,
  kUInt64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kComplex32 = 16,
  kBComplex32 = 17,
  kFloat8E4M3FN = 18,
  kFloat8E4M3FNUZ = 19,
  kFloat8E5M2 = 20,
  kFloat8E5M2FNUZ = 21,
  kFloat8E8M0FNU = 22,
  kFloat4E2M1FNX2 = 23,
};

struct DTypeInfo {
  DType dtype;
  absl::string_view name;         // torch's: "float32", "bfloat16", "float8_e4m3fn" …
  absl::string_view safetensors;  // The name in a shard's header; "" where the stock PyTorch reader
                                  // has none: such a tensor is stored as U8 with one more dimension
                                  // of size_bytes (FORMAT.md).
  uint64_t size_bytes;
};

std::span<const DTypeInfo> AllDTypes();
bool IsDType(int number);
const DTypeInfo& Info(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view torch_name);
std::optional<DType> DTypeFromSafetensors(absl::string_view header_name);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_PLAN_DTYPE_H_
