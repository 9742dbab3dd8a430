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

}  // namespace
}  // namespace ckptd
