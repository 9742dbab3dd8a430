// States that have broken other tools: tensors that change at once, strange strides, no dimensions,
// names like paths.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/session.h"
#include "gmock/gmock.h"
#include "tests/support/processes.h"
#include "tests/support/sessions.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

// Each rank's own header, parsed.
std::vector<Json> ShardHeaders(const TestSite& site, const std::string& id) {
  std::vector<Json> headers;
  for (const auto& [path, content] : ReadTree(site.root() + "/job/checkpoints/" + id)) {
    if (!absl::EndsWith(path, ".safetensors")) continue;
    uint64_t bytes = 0;
    std::memcpy(&bytes, content.data(), sizeof(bytes));
    headers.push_back(Json::parse(content.substr(8, bytes)));
  }
  return headers;
}

TEST(TensorsThatChangeAtOnce, AreStoredAsTheyWereWhenTheSaveReturned) {
  TestSite site;
  TestDaemon daemon(site, {.faulty = true});
  site.SetFaults("write:shard=rate:4MiB");
  auto session = OpenSession(site, 0, 1);
  std::vector<float> weights(1000000, 1.0f);
  float counter = 1.0f;
  State state;
  state.tensors = {WholeTensor("w", DType::kFloat32, {1000000}, weights.data()),
                   WholeTensor("counter", DType::kFloat32, {}, &counter)};
  auto save = session->AsyncSave("1", 1, state);
  ASSERT_TRUE(save.ok()) << save.status();
  int changes = 0;
  while (save->state() < SaveState::kCommitted) {
    std::fill(weights.begin(), weights.end(), counter += 1);
    ++changes;
  }
  EXPECT_EQ(save->state(), SaveState::kCommitted) << save->failure().status;
  EXPECT_GT(changes, 10);
  std::vector<float> loaded(1000000);
  float loaded_counter = 0;
  ASSERT_TRUE(LoadNow(*session, "1",
                      {WholeTarget("w", DType::kFloat32, {1000000}, loaded.data()),
                       WholeTarget("counter", DType::kFloat32, {}, &loaded_counter)})
                  .ok());
  EXPECT_EQ(std::count(loaded.begin(), loaded.end(), 1.0f), 1000000);
  EXPECT_EQ(loaded_counter, 1.0f);
}

TensorView Strided(const std::string& name, Shape shape, const float* data,
                   std::vector<int64_t> strides) {
  TensorView view;
  view.name = name;
  view.dtype = DType::kFloat32;
  view.shape = shape;
  for (int64_t& stride : strides) stride *= static_cast<int64_t>(sizeof(float));
  view.chunks = {{Box{std::vector<uint64_t>(shape.size(), 0), shape}, data, std::move(strides)}};
  return view;
}

TEST(Views, OfALargeStorageStoreWhatTheyShowAndNoMore) {
  TestSite site;
  TestDaemon daemon(site);
  auto session = OpenSession(site, 0, 1);
  std::vector<float> base(4000000);
  for (size_t i = 0; i < base.size(); ++i) base[i] = static_cast<float>(i % 16777213);
  State state;
  state.tensors = {
      Strided("first ten", {10}, base.data(), {1}),
      Strided("transposed", {2000, 2000}, base.data(), {1, 2000}),
      Strided("every third", {1333334}, base.data(), {3}),
      Strided("expanded", {1000, 1000}, base.data() + 7, {0, 0}),
      Strided("channels last", {2, 3, 40, 50}, base.data(), {6000, 1, 150, 3}),
      Strided("odd offset", {33}, base.data() + 4321, {1}),
      Strided("backwards", {100}, base.data() + 99, {-1}),
  };
  ASSERT_TRUE(Commit(*session, "views", state).ok());
  uint64_t logical_bytes = 0;
  for (const TensorView& view : state.tensors) {
    uint64_t elements = 1;
    for (uint64_t size : view.shape) elements *= size;
    logical_bytes += elements * sizeof(float);
  }
  const Json shown = Ckptctl(site, {"show", "views"}).json;
  EXPECT_EQ(shown["bytes"], logical_bytes);
  const uint64_t file_bytes = std::filesystem::file_size(
      site.root() + "/job/checkpoints/views/shard-00000-of-00001.safetensors");
  EXPECT_LT(file_bytes, logical_bytes + 16384);

  std::vector<std::vector<float>> loaded;
  std::vector<TensorTarget> targets;
  for (const TensorView& view : state.tensors) {
    uint64_t elements = 1;
    for (uint64_t size : view.shape) elements *= size;
    loaded.emplace_back(elements);
    targets.push_back(WholeTarget(view.name, view.dtype, view.shape, loaded.back().data()));
  }
  ASSERT_TRUE(LoadNow(*session, "views", targets).ok());
  for (uint64_t i = 0; i < 10; ++i) EXPECT_EQ(loaded[0][i], base[i]);
  for (uint64_t i = 0; i < 2000; ++i) {
    for (uint64_t j = 0; j < 2000; ++j) {
      ASSERT_EQ(loaded[1][i * 2000 + j], base[i + 2000 * j]) << i << " " << j;
    }
  }
  for (uint64_t i = 0; i < loaded[2].size(); ++i) ASSERT_EQ(loaded[2][i], base[3 * i]);
  EXPECT_EQ(std::count(loaded[3].begin(), loaded[3].end(), base[7]), 1000000);
  for (uint64_t n = 0, at = 0; n < 2; ++n) {
    for (uint64_t c = 0; c < 3; ++c) {
      for (uint64_t y = 0; y < 40; ++y) {
        for (uint64_t x = 0; x < 50; ++x, ++at) {
          ASSERT_EQ(loaded[4][at], base[n * 6000 + c + y * 150 + x * 3]);
        }
      }
    }
  }
  for (uint64_t i = 0; i < 33; ++i) EXPECT_EQ(loaded[5][i], base[4321 + i]);
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(loaded[6][i], base[99 - i]);
}

// Replicated on two ranks, loaded by three.
TEST(TensorsWithoutDimensions, KeepTheirEmptyShape) {
  TestSite site;
  TestDaemon daemon(site);
  const float f32 = 0.1f;
  const int64_t i64 = -7;
  const uint8_t boolean = 1;
  const uint16_t bf16 = 0x3f80;
  State state;
  state.tensors = {WholeTensor("f32", DType::kFloat32, {}, &f32),
                   WholeTensor("optimizer.state.step", DType::kInt64, {}, &i64),
                   WholeTensor("flag", DType::kBool, {}, &boolean),
                   WholeTensor("half", DType::kBFloat16, {}, &bf16)};
  {
    auto first = OpenSession(site, 0, 2);
    auto second = OpenSession(site, 1, 2);
    SaveOptions deferred;
    deferred.deferred = true;
    auto one = first->AsyncSave("a", 1, state, deferred);
    auto two = second->AsyncSave("a", 1, state, deferred);
    ASSERT_TRUE(one.ok() && two.ok());
    ASSERT_TRUE(one->Wait(SaveState::kCommitted, kPatience).ok());
    ASSERT_TRUE(two->Wait(SaveState::kCommitted, kPatience).ok());
  }
  for (uint32_t rank = 0; rank < 3; ++rank) {
    auto session = OpenSession(site, rank, 3, "2");
    float f = 0;
    int64_t i = 0;
    uint8_t b = 0;
    uint16_t h = 0;
    const auto targets = [&](Shape shape) {
      return std::vector<TensorTarget>{
          WholeTarget("f32", DType::kFloat32, shape, &f),
          WholeTarget("optimizer.state.step", DType::kInt64, shape, &i),
          WholeTarget("flag", DType::kBool, shape, &b),
          WholeTarget("half", DType::kBFloat16, shape, &h)};
    };
    EXPECT_FALSE(LoadNow(*session, "a", targets({1})).ok()) << "() is not (1,)";
    ASSERT_TRUE(LoadNow(*session, "a", targets({})).ok());
    EXPECT_EQ(f, f32);
    EXPECT_EQ(i, i64);
    EXPECT_EQ(b, boolean);
    EXPECT_EQ(h, bf16);
  }
  size_t entries = 0;
  for (const Json& header : ShardHeaders(site, "a")) {
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      EXPECT_EQ(entry["shape"], Json::array()) << name;
      ++entries;
    }
  }
  EXPECT_EQ(entries, 4u) << "each stored once";
  const Json description = Ckptctl(site, {"describe", "a"}).json;
  for (const Json& tensor : description["tensors"]) {
    EXPECT_EQ(tensor["shape"], Json::array());
  }
}

// Tensors and items of these names, with a value each.
class NamesThatLookLikePaths : public testing::Test {
 protected:
  NamesThatLookLikePaths() : daemon_(site_), session_(OpenSession(site_, 0, 1)) {
    std::iota(values_.begin(), values_.end(), 100);
    for (size_t i = 0; i < kNames.size(); ++i) {
      state_.tensors.push_back(WholeTensor(kNames[i], DType::kInt32, {1}, &values_[i]));
      state_.items.push_back({.name = "item " + kNames[i], .value = absl::StrCat(i)});
      targets_.push_back(WholeTarget(kNames[i], DType::kInt32, {1}, &loaded_[i]));
    }
    EXPECT_TRUE(Commit(*session_, "first", State()).ok());
    outside_ = Outside();
  }
  void TearDown() override { EXPECT_EQ(Outside(), outside_); }

  // What there is outside the folder of the job.
  std::vector<std::string> Outside() const {
    std::vector<std::string> paths;
    for (const auto& [path, content] : ReadTree(site_.folder())) {
      if (!absl::StartsWith(path, "root/job/")) paths.push_back(path);
    }
    return paths;
  }

  static inline const std::vector<std::string> kNames = {"a/b",
                                                         "../../x",
                                                         "/abs",
                                                         ".",
                                                         "..",
                                                         "",
                                                         " ",
                                                         "a\nb",
                                                         "\xd0\xb2\xd0\xb5\xd1\x81",
                                                         "\xf0\x9f\x94\xa5",
                                                         "\xc3\xa9",
                                                         "e\xcc\x81",
                                                         std::string(5000, 'k'),
                                                         "__metadata__",
                                                         ".metadata",
                                                         "%2F",
                                                         "a\\b",
                                                         "\"quoted\"",
                                                         "shard-00000-of-00001.safetensors"};
  TestSite site_;
  TestDaemon daemon_;
  std::unique_ptr<Session> session_;
  std::vector<int32_t> values_ = std::vector<int32_t>(kNames.size());
  std::vector<int32_t> loaded_ = std::vector<int32_t>(kNames.size());
  State state_;
  std::vector<TensorTarget> targets_;
  std::vector<std::string> outside_;
};

TEST_F(NamesThatLookLikePaths, AreDataAndNothingElse) {
  absl::Status committed = Commit(*session_, "names", state_);
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_EQ(std::distance(
                std::filesystem::directory_iterator(site_.root() + "/job/checkpoints/names"), {}),
            4);
  auto report = LoadNow(*session_, "names", targets_);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(loaded_, values_);
  EXPECT_EQ(report->items.size(), kNames.size());
  for (const ItemValue& item : report->items) {
    const auto found = std::find(kNames.begin(), kNames.end(), item.name.substr(5));
    ASSERT_NE(found, kNames.end()) << item.name;
    EXPECT_EQ(item.value, absl::StrCat(found - kNames.begin()));
  }
  // The format's own entry is its own.
  ASSERT_EQ(ShardHeaders(site_, "names").size(), 1u);
  const Json metadata = ShardHeaders(site_, "names")[0]["__metadata__"];
  EXPECT_TRUE(metadata.contains("DCP_SHARDING_INFO"));
  EXPECT_FALSE(metadata.contains("dtype"));
}

TEST_F(NamesThatLookLikePaths, AreCheckpointIdsToo) {
  const std::vector<std::string> ids = {"a/b", "..", "\n", "%41"};
  for (const std::string& id : ids) {
    const absl::Status committed = Commit(*session_, id, state_);
    EXPECT_TRUE(committed.ok()) << committed;
    EXPECT_TRUE(LoadNow(*session_, id, targets_).ok()) << id;
  }
  EXPECT_EQ(ListedIds(site_), (std::vector<std::string>{"first", "a/b", "..", "\n", "%41"}));
}

TEST_F(NamesThatLookLikePaths, AreRefusedOnlyIfTheyAreNoTextOrTooLong) {
  for (const std::string& bad :
       {std::string("a\0b", 3), std::string("\xff\xfe"), std::string((64 << 10) + 1, 'n')}) {
    State refused;
    refused.tensors = {WholeTensor(bad, DType::kInt32, {1}, values_.data())};
    EXPECT_EQ(Commit(*session_, "refused", refused).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ListedIds(site_), std::vector<std::string>{"first"});
}

}  // namespace
}  // namespace ckptd
