#include "client/examples/trainer_json.h"

#include <gtest/gtest.h>

namespace ckptd {
namespace {

TEST(ToJsonLine, KeepsOrderAndKinds) {
  EXPECT_EQ(ToJsonLine({{"b", true},
                        {"a", {}},
                        {"n", uint64_t{18446744073709551615u}},
                        {"i", int64_t{-1}},
                        {"s", std::string("x\"\n")},
                        {"l", std::vector<std::string>{"p", "q"}}}),
            R"({"b":true,"a":null,"n":18446744073709551615,"i":-1,"s":"x\"\n","l":["p","q"]})");
  EXPECT_EQ(ToJsonLine({{"bad", std::string("\xff")}}), "{\"bad\":\"\xEF\xBF\xBD\"}");
}

TEST(ParseSafetensorsHeader, ReadsTensorsInOrderOfTheirData) {
  auto tensors = ParseSafetensorsHeader(
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"I64","shape":[2],"data_offsets":[12,28]},)"
      R"("a":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}} )");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].shape, (Shape{3, 1}));
  EXPECT_EQ((*tensors)[1].dtype, DType::kInt64);
}

TEST(ParseSafetensorsHeader, RefusesWhatIsNone) {
  for (const char* text :
       {"", "[]", "{", R"({"a":1})", R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,5]}})",
        R"({"a":{"dtype":"F33","shape":[1],"data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})"}) {
    EXPECT_FALSE(ParseSafetensorsHeader(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ckptd
