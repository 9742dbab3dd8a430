#include "client/examples/trainer_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace ckptd {
namespace {

TEST(TrainerState, PartsOfAllRanksMakeTheWholeTensor) {
  std::vector<std::byte> whole(7 * 3 * 4);
  GenerateBytes(TensorSeed("w", 5, std::nullopt), 0, whole);
  std::vector<std::byte> joined;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    auto state = TrainerState::Create({rank, 4, "", {"w:float32:7x3"}, {}});
    ASSERT_TRUE(state.ok()) << state.status();
    state->Fill(5);
    const State views = state->MakeState(5);
    for (const ChunkView& chunk : views.tensors[0].chunks) {
      const auto* data = static_cast<const std::byte*>(chunk.data);
      joined.insert(joined.end(), data, data + Elements(chunk.box.sizes) * 4);
    }
  }
  EXPECT_EQ(joined, whole);
}

TEST(TrainerState, ChecksFindTheWrongByte) {
  auto state = TrainerState::Create({0, 1, "", {"a:float32:2x2", "b:uint8:9"}, {}});
  ASSERT_TRUE(state.ok());
  state->Fill(1);
  EXPECT_FALSE(state->Check(1));
  EXPECT_TRUE(state->Check(2));
  static_cast<std::byte*>(state->MakeTargets()[1].boxes[0].data)[4] ^= std::byte{1};
  ASSERT_TRUE(state->Check(1));
  EXPECT_EQ(state->Check(1)->tensor, "b");
  EXPECT_EQ(state->Check(1)->offset_bytes, 4u);
}

TEST(TrainerState, AModelShiftsItsBytesByTheStep) {
  TempFolder folder;
  const std::string path = folder.path() + "/m.safetensors";
  const std::string header = R"({"w":{"dtype":"U8","shape":[3,2],"data_offsets":[0,6]},)"
                             R"("b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})";
  const uint64_t bytes = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&bytes), 8)
      << header << std::string("\x01\x02\x03\x04\x05\xff\x07\x08", 8);
  file.close();
  auto state = TrainerState::Create({1, 2, path, {}, {}});
  ASSERT_TRUE(state.ok()) << state.status();
  state->Fill(2);
  const State views = state->MakeState(2);
  ASSERT_EQ(views.tensors.size(), 2u);
  ASSERT_EQ(views.tensors[0].chunks[0].box.offsets, (std::vector<uint64_t>{2, 0}));
  EXPECT_EQ(std::memcmp(views.tensors[0].chunks[0].data, "\x07\x01", 2), 0);
  EXPECT_EQ(std::memcmp(views.tensors[1].chunks[0].data, "\x09\x0a", 2), 0);
  EXPECT_FALSE(TrainerState::Create({0, 1, folder.path() + "/none", {}, {}}).ok());
}

TEST(TrainerState, ItemsOfAStepAreKnown) {
  auto state = TrainerState::Create({3, 4, "", {}, {R"(extra={"a":[1]})"}});
  ASSERT_TRUE(state.ok());
  std::vector<ItemValue> items = state->MakeState(7).items;
  EXPECT_EQ(items.size(), 4u);
  EXPECT_FALSE(state->CheckItems(7, items));
  EXPECT_EQ(state->CheckItems(8, items), "step");
  EXPECT_FALSE(TrainerState::Create({0, 1, "", {}, {"x=}"}}).ok());
}

}  // namespace
}  // namespace ckptd
