#include "storage/format/shard_header.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

std::string Length(uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift));
  return bytes;
}

// A file with this header text and so many bytes of data.
absl::StatusOr<ShardHeader> Parse(const std::string& json, uint64_t data_bytes) {
  return ParseShardHeader(Length(json.size()) + json, 8 + json.size() + data_bytes);
}

void ExpectRefused(const std::string& json, uint64_t data_bytes,
                   const std::vector<std::string>& words) {
  const absl::Status status = Parse(json, data_bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json.substr(0, 200);
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

std::vector<uint32_t> AllOrdinals(const RankPlan& plan) {
  std::vector<uint32_t> ordinals(OrdinalCount(plan));
  for (uint32_t i = 0; i < ordinals.size(); ++i) ordinals[i] = i;
  return ordinals;
}

struct Built {
  ImageLayout layout;
  std::vector<std::string> headers;
};

Built Build(const RankPlan& plan, uint32_t rank = 3) {
  Built built;
  built.layout = LayOutImage(plan, AllOrdinals(plan));
  for (uint32_t i = 0; i < built.layout.sections.size(); ++i) {
    built.headers.push_back(*BuildShardHeader(plan, built.layout, i, rank));
  }
  return built;
}

ShardHeader Reread(const Built& built, size_t section) {
  const std::string& header = built.headers[section];
  absl::StatusOr<ShardHeader> parsed =
      ParseShardHeader(header, header.size() + built.layout.sections[section].bytes);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : ShardHeader();
}

TEST(BuildShardHeader, IsThatOfAStockWriterPaddedTo4096) {
  RankPlan plan;
  plan.tensors = {Tensor("w", DType::kFloat32, {8, 4}, {{{2, 0}, {3, 4}}}),
                  Whole("s", DType::kInt64, {})};
  const Built built = Build(plan);
  ASSERT_EQ(built.headers.size(), 1u);
  const std::string& header = built.headers[0];
  EXPECT_EQ(header.size(), 4096u);
  EXPECT_EQ(header.substr(0, 8), Length(4088));
  std::string json = header.substr(8);
  json.erase(json.find_last_not_of(' ') + 1);
  EXPECT_EQ(json, R"({"__metadata__":{"format":"pt","DCP_VERSION":"1.0","DCP_SHARDING_INFO":)"
                  R"("{\"s\":{\"saved_offsets\":[]},\"w\":{\"saved_offsets\":[2,0]}}"},)"
                  R"("s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                  R"("w":{"dtype":"F32","shape":[3,4],"data_offsets":[8,56]}})");
}

TEST(BuildShardHeader, NamesEveryEntryInTheShardingInfo) {
  RankPlan plan;
  for (const DTypeInfo& info : AllDTypes()) {
    plan.tensors.push_back(
        Tensor(std::string(info.name), info.dtype, {5, 3}, {{{1, 0}, {2, 3}}, {{3, 1}, {1, 2}}}));
  }
  plan.tensors.push_back(Whole("scalar", DType::kBool, {}));
  plan.tensors.push_back(Whole("empty", DType::kComplex128, {4, 0}));
  plan.tensors.push_back(RankLocal(Whole("own", DType::kFloat16, {2})));
  plan.items = {Item("item", std::string(70000, 'x')), Item("small", "x"),
                RankLocal(Item("own item", std::string(70001, 'x')))};
  const Built built = Build(plan);
  ASSERT_EQ(built.headers.size(), 2u);
  std::map<std::string, HeaderEntry> first;
  for (size_t section = 0; section < 2; ++section) {
    for (const HeaderEntry& entry : Reread(built, section).entries) {
      EXPECT_TRUE(entry.has_saved_offsets) << entry.key;
      EXPECT_EQ(entry.saved_offsets.size(), entry.shape.size()) << entry.key;
      if (section == 0) first[entry.key] = entry;
    }
  }
  EXPECT_EQ(first.size(), 28u) << "all but the small item";
  EXPECT_EQ(first["float32"].dtype, "F32");
  EXPECT_THAT(first["float32"].shape, ElementsAre(2, 3));
  EXPECT_THAT(first["float32"].saved_offsets, ElementsAre(1, 0));
  EXPECT_EQ(first["complex128"].dtype, "U8");
  EXPECT_THAT(first["complex128"].shape, ElementsAre(2, 3, 16));
  EXPECT_THAT(first["complex128"].saved_offsets, ElementsAre(1, 0, 0));
  EXPECT_THAT(first["float4_e2m1fn_x2"].shape, ElementsAre(2, 3, 1));
  EXPECT_THAT(first["scalar"].shape, IsEmpty());
  EXPECT_THAT(first["empty"].shape, ElementsAre(4, 0, 16));
  EXPECT_EQ(first["empty"].begin_bytes, first["empty"].end_bytes);
  EXPECT_EQ(first["own@rank3"].dtype, "F16");
  EXPECT_EQ(first["item"].dtype, "U8");
  EXPECT_THAT(first["item"].shape, ElementsAre(70000));
  EXPECT_THAT(first["item"].saved_offsets, ElementsAre(0));
  EXPECT_EQ(first.count("own item@rank3"), 1u);
  EXPECT_EQ(first.count("small"), 0u);
}

TEST(BuildShardHeader, KeepsOddNames) {
  const std::vector<std::string> names = {"a/b",
                                          "../../x",
                                          "/abs",
                                          ".",
                                          "..",
                                          "",
                                          " ",
                                          "a\nb\t\x01\x7F",
                                          "\"\\",
                                          "\xD0\xB4",
                                          "\xF0\x9F\x98\x80",
                                          "\xC3\xA9",
                                          "e\xCC\x81",
                                          ".metadata",
                                          std::string(5000, 'k')};
  RankPlan plan;
  for (const std::string& name : names) plan.tensors.push_back(Whole(name, DType::kInt8, {1}));
  const Built built = Build(plan);
  const std::vector<HeaderEntry> entries = Reread(built, 0).entries;
  ASSERT_EQ(entries.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(entries[i].key, names[i]);
    EXPECT_TRUE(entries[i].has_saved_offsets);
  }
  EXPECT_GT(built.headers[0].size(), 4096u);
  EXPECT_EQ(built.headers[0].size() % 4096, 0u);
}

TEST(BuildShardHeader, GivesKeysThatCannotCollide) {
  RankPlan plan;
  plan.tensors = {Whole("__metadata__", DType::kInt8, {1}),
                  Whole("__metadata__@", DType::kInt8, {1}),
                  RankLocal(Whole("a", DType::kInt8, {1})),
                  Whole("a@rank3", DType::kInt8, {1}),
                  Whole("a@rank3@", DType::kInt8, {1}),
                  RankLocal(Whole("__metadata__@@", DType::kInt8, {1}))};
  std::vector<std::string> keys;
  for (const HeaderEntry& entry : Reread(Build(plan), 0).entries) keys.push_back(entry.key);
  EXPECT_THAT(keys, ElementsAre("__metadata__@@@", "__metadata__@", "a@rank3@@", "a@rank3",
                                "a@rank3@", "__metadata__@@@rank3"));
}

TEST(BuildShardHeader, WritesAFileForEmptyTensorsAlone) {
  RankPlan plan;
  plan.tensors = {Whole("empty", DType::kInt64, {0, 7})};
  const Built built = Build(plan);
  const ShardHeader header = Reread(built, 0);
  ASSERT_EQ(header.entries.size(), 1u);
  EXPECT_THAT(header.entries[0].shape, ElementsAre(0, 7));
  EXPECT_THAT(header.entries[0].saved_offsets, ElementsAre(0, 0));
}

TEST(BuildShardHeader, RefusesWhatTheReferenceReaderWouldRefuse) {
  RankPlan plan;
  for (int i = 0; i < 290; ++i) {
    plan.tensors.push_back(Whole(absl::StrCat(i, std::string(60000, '"')), DType::kInt8, {1}));
  }
  const absl::Status status =
      BuildShardHeader(plan, LayOutImage(plan, AllOrdinals(plan)), 0, 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 100000000"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3"));
}

TEST(ParseShardHeader, TakesWhatOthersWrite) {
  absl::StatusOr<ShardHeader> header = Parse(
      "\n {\"b\":{\"shape\":[2],\"data_offsets\":[4,6],\"dtype\":\"F4\",\"more\":[{\"x\":[1.5]}]},"
      "\"c\":{\"dtype\":\"F8_E8M0\",\"shape\":[0],\"data_offsets\":[4,4]},"
      "\"\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}\n  ",
      6);
  EXPECT_FALSE(header.ok()) << "F4 has half a byte";
  header = Parse(
      "\n {\"b\":{\"shape\":[4],\"data_offsets\":[4,6],\"dtype\":\"F4\",\"more\":[{\"x\":[1.5]}]},"
      "\"c\":{\"dtype\":\"F8_E8M0\",\"shape\":[0],\"data_offsets\":[4,4]},"
      "\"\\u00e9\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}, \"__metadata__\" : "
      "{\"format\":\"tf\"}}\n  ",
      6);
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].key, "\xC3\xA9");
  EXPECT_FALSE(header->entries[0].has_saved_offsets);
  EXPECT_EQ(header->entries[2].key, "b");
  EXPECT_TRUE(Parse("{}", 0).ok());
  header = Parse(
      "{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"{\\\"w\\\": {\\\"saved_offsets\\\": [3], "
      "\\\"x\\\": null}, \\\"v\\\": {\\\"saved_offsets\\\": [0]}}\"},"
      "\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
      1);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->entries[0].saved_offsets, ElementsAre(3));
}

// One entry with other values for some of its fields.
std::string Entry(const std::string& shape, const std::string& offsets,
                  const std::string& dtype = "\"F32\"") {
  return absl::StrCat("{\"w\":{\"dtype\":", dtype, ",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}}");
}

TEST(ParseShardHeader, RefusesOffsetsThatDoNotFit) {
  EXPECT_TRUE(Parse(Entry("[1]", "[0,4]"), 4).ok());
  ExpectRefused(Entry("[1000,1000]", "[0,4]"), 4, {"\"w\"", "4000000"});
  ExpectRefused(Entry("[1]", "[4,0]"), 4, {"\"w\"", "[4, 0]"});
  ExpectRefused(Entry("[2]", "[0,8]"), 4, {"\"w\"", "4 bytes of data"});
  ExpectRefused(Entry("[1]", "[-4,0]"), 4, {"\"w\"", "data_offsets"});
  ExpectRefused(Entry("[1]", "[0,4.0]"), 4, {"\"w\"", "data_offsets"});
  ExpectRefused(Entry("[1]", "[0,4,4]"), 4, {"\"w\"", "two numbers"});
  ExpectRefused(Entry("[1]", "[0]"), 4, {"\"w\"", "two numbers"});
  ExpectRefused(Entry("[1]", "\"0,4\""), 4, {"\"w\"", "data_offsets"});
  ExpectRefused(Entry("[1]", "{}"), 4, {"\"w\"", "data_offsets"});
  ExpectRefused(Entry("[1]", "[0,18446744073709551616]"), 4, {"\"w\"", "data_offsets"});
  ExpectRefused(Entry("[1]", "[0,18446744073709551615]"), 4, {"\"w\""});
  ExpectRefused(Entry("[1099511627776,1099511627776]", "[0,4]"), 4, {"\"w\"", "63 bits"});
  ExpectRefused(Entry("[[1]]", "[0,4]"), 4, {"\"w\"", "shape"});
  ExpectRefused(Entry("1", "[0,4]"), 4, {"\"w\"", "shape"});
  ExpectRefused(Entry("[1]", "[0,4]", "\"F33\""), 4, {"\"w\"", "F33"});
  ExpectRefused(Entry("[1]", "[0,4]", "32"), 4, {"\"w\"", "dtype"});
  ExpectRefused(Entry("[1]", "[0,4]"), 5, {"tensors end at 4"});
  ExpectRefused("{}", 1, {"tensors end at 0"});
  std::string forty = "1";
  for (int i = 0; i < 39; ++i) forty += ",1";
  EXPECT_TRUE(Parse(Entry("[" + forty + "]", "[0,4]"), 4).ok());
  ExpectRefused(Entry("[" + forty + "," + forty + "]", "[0,4]"), 4, {"\"w\"", "dimensions"});
}

TEST(ParseShardHeader, RefusesHolesAndOverlaps) {
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":[B,E]}})";
  auto with = [&](int begin) {
    return absl::StrReplaceAll(two, {{"B", absl::StrCat(begin)}, {"E", absl::StrCat(begin + 2)}});
  };
  EXPECT_TRUE(Parse(with(2), 4).ok());
  ExpectRefused(with(3), 5, {"\"b\"", "hole"});
  ExpectRefused(with(1), 3, {"\"b\"", "overlap"});
  ExpectRefused(with(0), 2, {"overlap"});
}

TEST(ParseShardHeader, RefusesTextThatIsNotOneObjectOfObjects) {
  for (const char* json : {"",
                           " ",
                           "[]",
                           "1",
                           "\"x\"",
                           "null",
                           "{",
                           "}",
                           "{\"w\":1}",
                           "{\"w\":[]}",
                           "{\"w\":null}",
                           "{}{}",
                           "{} x",
                           "{\"w\"}",
                           "{\"w\":{},}",
                           "{'w':{}}",
                           "{\"w\":{}}",
                           "{\"__metadata__\":{\"a\":1}}",
                           "{\"__metadata__\":{\"a\":{}}}",
                           "{\"__metadata__\":{\"a\":[]}}",
                           "{\"__metadata__\":\"a\"}",
                           "{\"__metadata__\":[]}",
                           "\xEF\xBB\xBF{}",
                           "{\"\xFF\":{}}",
                           "{\"a\nb\":{}}",
                           "{\"\\ud800\":{}}",
                           "// x\n{}"}) {
    ExpectRefused(json, 0, {});
  }
  ExpectRefused(std::string("{}\0", 3), 0, {"NUL"});
}

TEST(ParseShardHeader, RefusesKeysThatComeTwice) {
  const std::string entry = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  ExpectRefused("{" + entry + "," + entry + "}", 0, {"\"a\"", "twice"});
  ExpectRefused(R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__", "twice"});
  ExpectRefused(R"({"__metadata__":{"k":"v","k":"v"}})", 0, {"\"k\"", "twice"});
  ExpectRefused(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", 0,
                {"\"a\"", "shape", "twice"});
  ExpectRefused(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0, {"\"a\"", "missing"});
  ExpectRefused(R"({"__metadata__":{"DCP_SHARDING_INFO":"{\"a\":{},\"a\":{}}"}})", 0,
                {"DCP_SHARDING_INFO", "\"a\"", "twice"});
  for (const char* sharding : {"", "[]", "x", "{\\\"a\\\":1}",
                               "{\\\"a\\\":{\\\"saved_offsets\\\":"
                               "[-1]}}",
                               "{\\\"a\\\":{\\\"saved_offsets\\\":1}}"}) {
    ExpectRefused(absl::StrCat("{\"__metadata__\":{\"DCP_SHARDING_INFO\":\"", sharding, "\"}}"), 0,
                  {"DCP_SHARDING_INFO"});
  }
}

TEST(ParseShardHeader, RefusesDeepNestingAtOnce) {
  const auto start = std::chrono::steady_clock::now();
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 100000; ++i) deep += open;
    ExpectRefused(deep, 0, {});
    ExpectRefused("{\"w\":{\"x\":" + deep, 0, {"\"w\"", "nested"});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

TEST(HeaderLength, IsBoundedByTheFileAndTheLimit) {
  EXPECT_EQ(*HeaderLength(Length(92), 100), 100u);
  EXPECT_EQ(*HeaderLength(Length(100'000'000), 100'000'008), 100'000'008u);
  for (uint64_t length : {uint64_t{93}, uint64_t{1} << 31, uint64_t{1} << 40, ~uint64_t{0},
                          ~uint64_t{0} - 7, uint64_t{100'000'001}}) {
    EXPECT_EQ(HeaderLength(Length(length), 100).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_FALSE(HeaderLength(Length(100'000'001), uint64_t{1} << 40).ok());
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    EXPECT_FALSE(HeaderLength(Length(0).substr(0, bytes), bytes).ok());
    EXPECT_FALSE(ParseShardHeader(Length(0).substr(0, bytes), bytes).ok());
  }
  EXPECT_FALSE(ParseShardHeader(Length(0), 8).ok());
  EXPECT_FALSE(ParseShardHeader(Length(2) + "{", 10).ok());
}

TEST(ParseShardHeader, SurvivesEveryTruncationAndEveryFlippedBit) {
  RankPlan plan;
  plan.tensors = {Tensor("w", DType::kFloat32, {8, 4}, {{{2, 0}, {3, 4}}}),
                  Whole("\xC3\xA9\"", DType::kComplex64, {}), Whole("empty", DType::kInt8, {0})};
  const Built built = Build(plan);
  std::string text = built.headers[0];
  text.erase(text.find_last_not_of(' ') + 1);
  text.replace(0, 8, Length(text.size() - 8));  // Without padding: each bit counts.
  const uint64_t data_bytes = built.layout.sections[0].bytes;
  ASSERT_TRUE(ParseShardHeader(text, text.size() + data_bytes).ok());
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    const std::string cut = text.substr(0, bytes);
    EXPECT_FALSE(ParseShardHeader(cut, bytes).ok());
    EXPECT_FALSE(ParseShardHeader(cut, text.size() + data_bytes).ok());
    if (bytes < 8) continue;
    EXPECT_FALSE(Parse(cut.substr(8), data_bytes).ok());
  }
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    absl::StatusOr<ShardHeader> header = ParseShardHeader(flipped, text.size() + data_bytes);
    if (!header.ok()) continue;
    for (const HeaderEntry& entry : header->entries) {
      EXPECT_LE(entry.begin_bytes, entry.end_bytes);
      EXPECT_LE(entry.end_bytes, data_bytes);
    }
  }
}

}  // namespace
}  // namespace ckptd
