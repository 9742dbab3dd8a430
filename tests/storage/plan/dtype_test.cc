#include "storage/plan/dtype.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace ckptd {
namespace {

TEST(DType, EveryTypeHasItsOwnNumberAndNames) {
  std::set<std::string> names, header_names;
  int number = 0;
  for (const DTypeInfo& info : AllDTypes()) {
    EXPECT_EQ(static_cast<int>(info.dtype), ++number);
    EXPECT_TRUE(IsDType(number));
    EXPECT_EQ(Info(info.dtype).name, info.name);
    EXPECT_EQ(DTypeFromName(info.name), info.dtype);
    EXPECT_TRUE(names.insert(std::string(info.name)).second) << info.name;
    if (info.safetensors.empty()) continue;
    EXPECT_EQ(DTypeFromSafetensors(info.safetensors), info.dtype);
    EXPECT_TRUE(header_names.insert(std::string(info.safetensors)).second) << info.safetensors;
  }
  EXPECT_EQ(number, 23);
}

TEST(DType, SizesAreThoseOfTorch) {
  const std::pair<const char*, uint64_t> sizes[] = {
      {"float64", 8},    {"float32", 4},       {"float16", 2},        {"bfloat16", 2},
      {"int64", 8},      {"int32", 4},         {"int16", 2},          {"int8", 1},
      {"uint8", 1},      {"bool", 1},          {"uint16", 2},         {"uint32", 4},
      {"uint64", 8},     {"complex64", 8},     {"complex128", 16},    {"complex32", 4},
      {"bcomplex32", 4}, {"float8_e4m3fn", 1}, {"float8_e8m0fnu", 1}, {"float4_e2m1fn_x2", 1}};
  for (const auto& [name, bytes] : sizes) {
    ASSERT_TRUE(DTypeFromName(name)) << name;
    EXPECT_EQ(Info(*DTypeFromName(name)).size_bytes, bytes) << name;
  }
}

TEST(DType, WhatTheStockReaderDoesNotKnowHasNoNameInTheHeader) {
  for (const char* name :
       {"complex128", "complex32", "bcomplex32", "float8_e8m0fnu", "float4_e2m1fn_x2"}) {
    EXPECT_EQ(Info(*DTypeFromName(name)).safetensors, "") << name;
  }
  EXPECT_FALSE(DTypeFromSafetensors(""));
}

TEST(DType, OtherNumbersAndNamesAreNone) {
  for (int number : {-1, 0, 24, 255, 256}) EXPECT_FALSE(IsDType(number)) << number;
  for (const char* name : {"", "Float32", "float", "F32", "qint8"}) {
    EXPECT_FALSE(DTypeFromName(name)) << name;
  }
  EXPECT_FALSE(DTypeFromSafetensors("f32"));
}

}  // namespace
}  // namespace ckptd
