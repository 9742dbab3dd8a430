// Bytes of every type and of every awkward size come back as they were, and stand in the file as
// they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/session.h"
#include "gmock/gmock.h"
#include "storage/plan/dtype.h"
#include "tests/support/processes.h"
#include "tests/support/sessions.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

// Entries of a shard, and the data section.
struct Shard {
  Json entries;
  std::string data;
};

Shard ReadShard(const TestSite& site, const std::string& id) {
  const std::string bytes = ReadTextFile(
      absl::StrCat(site.root(), "/job/checkpoints/", id, "/shard-00000-of-00001.safetensors"));
  uint64_t header = 0;
  if (bytes.size() < sizeof(header)) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  return {Json::parse(bytes.substr(8, header)), bytes.substr(8 + header)};
}

// --- Every type

// Patterns that arithmetic would change: infinities, quiet and signalling NaNs with payloads,
// negative zeros, the smallest denormals; in every width.
Bytes AwkwardBytes(uint64_t element_bytes, uint64_t elements) {
  const std::vector<Bytes> patterns = {
      {0x01, 0x00, 0x80, 0x7f}, {0xef, 0xbe, 0xad, 0xff}, {0x00, 0x00, 0xc0, 0x7f},
      {0x00, 0x00, 0x80, 0xff}, {0x00, 0x00, 0x00, 0x80}, {0x01, 0x00, 0x00, 0x00},
      {0x01, 0x7c, 0x01, 0xfc}, {0xff, 0x7f, 0xff, 0xff}, {0x80, 0x7f, 0x81, 0xff},
      {0x01, 0x00, 0xf0, 0x7f}, {0xff, 0xff, 0xff, 0xff}, {0x55, 0xaa, 0x00, 0x02}};
  Bytes bytes;
  for (uint64_t i = 0; bytes.size() < element_bytes * elements; ++i) {
    const Bytes& pattern = patterns[i * 7 % patterns.size()];
    bytes.insert(bytes.end(), pattern.begin(), pattern.end());
  }
  bytes.resize(element_bytes * elements);
  return bytes;
}

// The same tensor with its dimensions swapped in memory.
Bytes Transposed(const Bytes& bytes, uint64_t rows, uint64_t columns, uint64_t element_bytes) {
  Bytes other(bytes.size());
  for (uint64_t r = 0; r < rows; ++r) {
    for (uint64_t c = 0; c < columns; ++c) {
      std::memcpy(&other[(c * rows + r) * element_bytes], &bytes[(r * columns + c) * element_bytes],
                  element_bytes);
    }
  }
  return other;
}

TEST(EveryType, KeepsEveryBitFromAndIntoBothLayouts) {
  constexpr uint64_t kRows = 3;
  constexpr uint64_t kColumns = 5;
  TestSite site;
  TestDaemon daemon(site);
  auto session = OpenSession(site, 0, 1);
  std::map<std::string, Bytes> bytes;
  std::map<std::string, Bytes> swapped;
  State state;
  for (const DTypeInfo& info : AllDTypes()) {
    const std::string name(info.name);
    bytes[name] = AwkwardBytes(info.size_bytes, kRows * kColumns);
    swapped[name] = Transposed(bytes[name], kRows, kColumns, info.size_bytes);
    state.tensors.push_back(WholeTensor(name, info.dtype, {kRows, kColumns}, bytes[name].data()));
    TensorView view = WholeTensor("t " + name, info.dtype, {kRows, kColumns}, swapped[name].data());
    view.chunks[0].strides_bytes = {static_cast<int64_t>(info.size_bytes),
                                    static_cast<int64_t>(kRows * info.size_bytes)};
    state.tensors.push_back(view);
  }
  ASSERT_TRUE(Commit(*session, "a", state).ok());

  // In the file: row-major, under the type's own name, or as plain bytes where it has none there.
  const Shard shard = ReadShard(site, "a");
  for (const DTypeInfo& info : AllDTypes()) {
    for (const std::string& name : {std::string(info.name), "t " + std::string(info.name)}) {
      SCOPED_TRACE(name);
      ASSERT_TRUE(shard.entries.contains(name));
      const Json& entry = shard.entries[name];
      Json shape = {kRows, kColumns};
      if (info.safetensors.empty()) shape.push_back(info.size_bytes);
      EXPECT_EQ(entry["shape"], shape);
      EXPECT_EQ(entry["dtype"], info.safetensors.empty() ? "U8" : std::string(info.safetensors));
      const uint64_t begin = entry["data_offsets"][0];
      const uint64_t end = entry["data_offsets"][1];
      const std::string stored = shard.data.substr(begin, end - begin);
      const Bytes& wanted = bytes[std::string(info.name)];
      EXPECT_EQ(stored, std::string(wanted.begin(), wanted.end()));
    }
  }

  std::map<std::string, Bytes> loaded;
  std::vector<TensorTarget> targets;
  for (const DTypeInfo& info : AllDTypes()) {
    for (const std::string& name : {std::string(info.name), "t " + std::string(info.name)}) {
      loaded[name].resize(kRows * kColumns * info.size_bytes);
      targets.push_back(WholeTarget(name, info.dtype, {kRows, kColumns}, loaded[name].data()));
    }
    // And the other way about: into swapped dimensions.
    targets.back().boxes[0].strides_bytes = {static_cast<int64_t>(info.size_bytes),
                                             static_cast<int64_t>(kRows * info.size_bytes)};
  }
  auto report = LoadNow(*session, "a", targets);
  ASSERT_TRUE(report.ok()) << report.status();
  const Json description = Ckptctl(site, {"describe", "a"}).json;
  EXPECT_EQ(description["tensors"].size(), 2 * AllDTypes().size());
  for (const DTypeInfo& info : AllDTypes()) {
    const std::string name(info.name);
    EXPECT_EQ(loaded[name], bytes[name]) << name;
    EXPECT_EQ(loaded["t " + name], swapped[name]) << name;
    EXPECT_TRUE(std::any_of(
        description["tensors"].begin(), description["tensors"].end(),
        [&](const Json& tensor) { return tensor["name"] == name && tensor["dtype"] == name; }))
        << name;
  }
}

TEST(EveryType, ThatIsNoneIsRefusedBeforeAnythingIsStaged) {
  TestSite site;
  TestDaemon daemon(site);
  auto session = OpenSession(site, 0, 1);
  const uint64_t value = 0;
  for (int number : {0, 24, 255}) {
    State state;
    state.tensors = {WholeTensor("good", DType::kInt8, {1}, &value),
                     WholeTensor("bad one", static_cast<DType>(number), {1}, &value)};
    const absl::Status status = Commit(*session, "a", state);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("bad one"));
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(number)));
  }
  EXPECT_EQ(ListedIds(site), std::vector<std::string>());
}

// --- Every size

class AwkwardSizes : public testing::TestWithParam<std::vector<std::string>> {};

// No byte of padding behind them, and any part of them can be read.
TEST_P(AwkwardSizes, HaveFilesOfExactlyTheirLengthAndLoadFromAnyOffset) {
  TestSite site;
  TestDaemon daemon(site, {.flags = GetParam()});
  ASSERT_TRUE(daemon.ready()) << daemon.Log();
  auto session = OpenSession(site, 0, 1);
  std::mt19937_64 random(7517);
  for (uint64_t size : {1u, 511u, 512u, 513u, 4095u, 4096u, 4097u, 1048576u + 3, 17000000u}) {
    SCOPED_TRACE(size);
    Bytes bytes(size);
    for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(random());
    const std::string id = absl::StrCat("size-", size);
    State state;
    state.tensors = {WholeTensor("w", DType::kUInt8, {size}, bytes.data())};
    const absl::Status committed = Commit(*session, id, state);
    ASSERT_TRUE(committed.ok()) << committed;
    const Shard shard = ReadShard(site, id);
    EXPECT_EQ(shard.data.size(), size);
    EXPECT_EQ(shard.data, std::string(bytes.begin(), bytes.end()));

    // The whole, and parts that begin and end anywhere, at memory of any alignment.
    TensorTarget target;
    target.name = "w";
    target.dtype = DType::kUInt8;
    target.shape = {size};
    std::vector<std::pair<uint64_t, uint64_t>> parts = {{0, size}, {size - 1, 1}, {0, 1}};
    for (int i = 0; i < 20; ++i) {
      const uint64_t begin = random() % size;
      parts.push_back({begin, 1 + random() % (size - begin)});
    }
    std::vector<Bytes> loaded;
    for (const auto& [begin, length] : parts) loaded.emplace_back(length + 3);
    for (size_t i = 0; i < parts.size(); ++i) {
      target.boxes.push_back(
          {Box{{parts[i].first}, {parts[i].second}}, loaded[i].data() + i % 3, {}});
    }
    auto report = LoadNow(*session, id, {target});
    ASSERT_TRUE(report.ok()) << report.status();
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto begin = bytes.begin() + static_cast<int64_t>(parts[i].first);
      EXPECT_TRUE(std::equal(begin, begin + static_cast<int64_t>(parts[i].second),
                             loaded[i].begin() + static_cast<int64_t>(i % 3)))
          << parts[i].first << " " << parts[i].second;
    }
  }
  EXPECT_EQ(Ckptctl(site, {"verify", "--all"}).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Engines, AwkwardSizes,
    testing::Values(std::vector<std::string>{"--io", "auto", "--direct", "auto"},
                    std::vector<std::string>{"--io", "auto", "--direct", "off"},
                    std::vector<std::string>{"--io", "posix", "--direct", "auto"},
                    std::vector<std::string>{"--io", "posix", "--direct", "off"}),
    [](const auto& info) { return absl::StrCat(info.param[1], "_", info.param[3]); });

}  // namespace
}  // namespace ckptd
