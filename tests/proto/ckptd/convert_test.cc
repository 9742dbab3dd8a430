#include "proto/ckptd/convert.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/ckptd/version.h"

namespace ckptd {
namespace {

using testing::ElementsAre;

StoredTensor TensorChunk(const std::string& name, uint64_t offset, uint32_t file) {
  StoredTensor tensor;
  tensor.name = name;
  tensor.shape = {8};
  tensor.chunks.push_back(
      {.box = {{offset}, {4}}, .file = file, .file_offset_bytes = 4096, .bytes = 16});
  return tensor;
}

Fragment OfNode(const std::string& node, uint32_t rank) {
  Fragment fragment;
  fragment.node = node;
  StoredFile file;
  file.name = ShardFile(rank, 2, 0);
  file.rank = rank;
  file.bytes = 5000;
  fragment.files = {file};
  return fragment;
}

std::vector<std::string> Names(const v1::DescribeReply& reply) {
  std::vector<std::string> names;
  for (const v1::StoredTensor& tensor : reply.tensors()) names.push_back(tensor.name());
  for (const v1::ItemEntry& item : reply.items()) names.push_back(item.name());
  return names;
}

TEST(Convert, ChunksOfOneTensorComeTogether) {
  std::vector<Fragment> fragments = {OfNode("a", 0), OfNode("b", 1)};
  fragments[0].tensors = {TensorChunk("w", 0, 0)};
  fragments[1].tensors = {TensorChunk("b", 0, 0), TensorChunk("w", 4, 0)};
  std::vector<v1::DescribeReply> parts = DescribeParts(fragments, v1::Checkpoint(), "");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_TRUE(parts[0].has_checkpoint());
  ASSERT_THAT(Names(parts[0]), ElementsAre("b", "w"));
  const v1::StoredTensor& tensor = parts[0].tensors(1);
  ASSERT_EQ(tensor.chunks_size(), 2);
  EXPECT_EQ(tensor.chunks(0).file(), "shard-00000-of-00002.safetensors");
  EXPECT_EQ(tensor.chunks(1).file(), "shard-00001-of-00002.safetensors");
  EXPECT_EQ(tensor.chunks(1).box().offsets(0), 4u);
  EXPECT_EQ(tensor.chunks(1).file_offset_bytes(), 4096u);
}

TEST(Convert, RankLocalTensorsAndItemsStayApart) {
  std::vector<Fragment> fragments = {OfNode("a", 0)};
  for (uint32_t rank : {0u, 1u}) {
    StoredTensor tensor = TensorChunk("w", 0, 0);
    tensor.rank_local = rank;
    fragments[0].tensors.push_back(tensor);
    StoredItem item;
    item.name = "lr";
    item.rank_local = rank;
    item.value = "0.1";
    item.bytes = 3;
    fragments[0].items.push_back(item);
  }
  v1::DescribeReply reply = DescribeParts(fragments, v1::Checkpoint(), "").front();
  ASSERT_EQ(reply.tensors_size(), 2);
  EXPECT_EQ(reply.tensors(1).rank_local(), 1u);
  ASSERT_EQ(reply.items_size(), 2);
  EXPECT_EQ(reply.items(1).rank(), 1u);
  EXPECT_EQ(reply.items(1).value(), "0.1");
}

TEST(Convert, AGlobChoosesByName) {
  std::vector<Fragment> fragments = {OfNode("a", 0)};
  fragments[0].tensors = {TensorChunk("encoder.0.w", 0, 0), TensorChunk("head.w", 0, 0)};
  auto names = [&fragments](const char* glob) {
    return Names(DescribeParts(fragments, v1::Checkpoint(), glob).front());
  };
  EXPECT_THAT(names("encoder.*"), ElementsAre("encoder.0.w"));
  EXPECT_THAT(names("head.[w]"), ElementsAre("head.w"));
  EXPECT_THAT(names("w"), ElementsAre());
}

TEST(Convert, PartsHaveALimitedSize) {
  std::vector<Fragment> fragments = {OfNode("a", 0)};
  for (int i = 0; i < 100; ++i) {
    fragments[0].tensors.push_back(TensorChunk(absl::StrCat(i, std::string(60'000, 'x')), 0, 0));
  }
  std::vector<v1::DescribeReply> parts = DescribeParts(fragments, v1::Checkpoint(), "");
  int tensors = 0;
  for (const v1::DescribeReply& part : parts) {
    EXPECT_LE(part.ByteSizeLong(), 2 * kStreamPartBytes);
    tensors += part.tensors_size();
  }
  EXPECT_GT(parts.size(), 4u);
  EXPECT_EQ(tensors, 100);
}

TEST(Convert, AFailureSurvivesBothWays) {
  Failure failure{absl::AbortedError("process 17 died"), 3, "a", "stage"};
  Failure back = FromProto(ToProto(failure));
  EXPECT_EQ(back.status, failure.status);
  EXPECT_EQ(back.rank, failure.rank);
  EXPECT_EQ(back.node, failure.node);
  EXPECT_EQ(back.phase, failure.phase);
  v1::Failure strange;
  strange.set_code("SOMETHING_NEW");
  EXPECT_EQ(FromProto(strange).status.code(), absl::StatusCode::kUnknown);
  EXPECT_FALSE(FromProto(v1::Failure()).status.ok());
}

TEST(Convert, AFailedAttemptSumsUpItsRanks) {
  Outcome outcome;
  outcome.record.attempt = {2, 0xc0ffee};
  outcome.record.world_size = 2;
  outcome.failure.status = absl::AbortedError("x");
  outcome.ranks = {{0, "a", 16, "staged", 1000, 900, 400}, {1, "", 0, "missing", 0, 0, 0}};
  v1::Attempt attempt = ToProto(outcome);
  EXPECT_EQ(attempt.attempt(), "2-0000000000c0ffee");
  EXPECT_EQ(attempt.state(), "failed");
  EXPECT_EQ(attempt.planned_bytes(), 1000u);
  EXPECT_EQ(attempt.staged_bytes(), 900u);
  EXPECT_EQ(attempt.written_bytes(), 400u);
  EXPECT_THAT(attempt.ranks_missing(), ElementsAre(1));
}

TEST(Convert, TextThatIsNotUtf8CanBeSent) {
  CheckpointInfo info;
  info.job = "job\xff";
  info.id = "größe";
  info.status = absl::DataLossError("bad");
  v1::DamagedCheckpoint message = ToDamaged(info, {"default", "/r"});
  EXPECT_EQ(message.job(), "job\\xff");
  EXPECT_EQ(message.id(), "größe");
  EXPECT_TRUE(v1::DamagedCheckpoint().ParseFromString(message.SerializeAsString()));
}

}  // namespace
}  // namespace ckptd
