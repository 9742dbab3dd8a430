#include "storage/plan/dtype.h"

#include <array>

#include "storage/base/check.h"

namespace ckptd {
namespace {

// Row i has the number i + 1.
constexpr std::array<DTypeInfo, 23> kTable = {{
    {DType::kFloat64, "float64", "F64", 8},
    {DType::kFloat32, "float32", "F32", 4},
    {DType::kFloat16, "float16", "F16", 2},
    {DType::kBFloat16, "bfloat16", "BF16", 2},
    {DType::kInt64, "int64", "I64", 8},
    {DType::kInt32, "int32", "I32", 4},
    {DType::kInt16, "int16", "I16", 2},
    {DType::kInt8, "int8", "I8", 1},
    {DType::kUInt8, "uint8", "U8", 1},
    {DType::kBool, "bool", "BOOL", 1},
    {DType::kUInt16, "uint16", "U16", 2},
    {DType::kUInt32, "uint32", "U32", 4},
    {DType::kUInt64, "uint64", "U64", 8},
    {DType::kComplex64, "complex64", "C64", 8},
    {DType::kComplex128, "complex128", "", 16},
    {DType::kComplex32, "complex32", "", 4},
    {DType::kBComplex32, "bcomplex32", "", 4},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", "F8_E4M3", 1},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", "F8_E4M3FNUZ", 1},
    {DType::kFloat8E5M2, "float8_e5m2", "F8_E5M2", 1},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", "F8_E5M2FNUZ", 1},
    {DType::kFloat8E8M0FNU, "float8_e8m0fnu", "", 1},
    {DType::kFloat4E2M1FNX2, "float4_e2m1fn_x2", "", 1},
}};

}  // namespace

std::span<const DTypeInfo> AllDTypes() { return kTable; }

bool IsDType(int number) { return number >= 1 && number <= static_cast<int>(kTable.size()); }

const DTypeInfo& Info(DType dtype) {
  CKPT_CHECK(IsDType(static_cast<int>(dtype)), "a dtype is one of the table");
  return kTable[static_cast<size_t>(dtype) - 1];
}

std::optional<DType> DTypeFromName(absl::string_view torch_name) {
  for (const DTypeInfo& info : kTable) {
    if (info.name == torch_name) return info.dtype;
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromSafetensors(absl::string_view header_name) {
  if (header_name.empty()) return std::nullopt;
  for (const DTypeInfo& info : kTable) {
    if (info.safetensors == header_name) return info.dtype;
  }
  return std::nullopt;
}

}  // namespace ckptd
