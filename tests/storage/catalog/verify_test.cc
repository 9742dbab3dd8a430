#include "storage/catalog/verify.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>

#include "absl/strings/match.h"
#include "storage/catalog/catalog.h"
#include "storage/disk/sim_disk.h"
#include "storage/format/paths.h"
#include "storage/plan/image_layout.h"
#include "tests/storage/commit/test_save.h"

namespace ckptd {
namespace {

constexpr uint64_t kTensorBytes = 21 * kUnitBytes + 5;

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() : record_(MakeTestRecord("x", 1, 2)) {
    node_ = MakeTestNode(record_, "a", {0, 1}, kTensorBytes);
  }

  CheckpointInfo Plant() {
    PlantTestCheckpoint(disk_, "job/checkpoints/x", record_, node_);
    absl::StatusOr<CheckpointInfo> info = FindCheckpoint(disk_, "job", "x");
    EXPECT_TRUE(info.ok()) << info.status();
    return info.value_or(CheckpointInfo());
  }

  VerifyResult Run() { return Verify(disk_, Plant(), nullptr); }

  AttemptRecord record_;
  TestNode node_;
  SimDisk disk_;
};

TEST_F(VerifyTest, AWholeCheckpointIsOk) {
  uint64_t seen = 0;
  VerifyResult result = Verify(disk_, Plant(), [&](uint64_t bytes) {
    EXPECT_GT(bytes, seen);
    seen = bytes;
    return true;
  });
  for (const VerifyError& error : result.errors) ADD_FAILURE() << error.file << error.message;
  EXPECT_TRUE(result.ok());
  EXPECT_GE(result.bytes, 2 * kTensorBytes);
  EXPECT_EQ(seen, result.bytes);
}

TEST_F(VerifyTest, AFlippedByteIsFoundInItsUnitAndTensor) {
  std::string& bytes = node_.shards[1].bytes;
  uint64_t header = node_.fragment.files[1].header_bytes;
  bytes[header + 9 * kUnitBytes + 17] ^= 1;
  VerifyResult result = Run();
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].file, node_.shards[1].name);
  EXPECT_EQ(result.errors[0].tensor, "w");
  EXPECT_EQ(result.errors[0].offset_bytes, header + 9 * kUnitBytes);
  EXPECT_EQ(result.errors[0].bytes, kUnitBytes);
  EXPECT_FALSE(result.ok());
}

TEST_F(VerifyTest, TheLastByteCounts) {
  node_.shards[0].bytes.back() ^= 1;
  VerifyResult result = Run();
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].bytes, 5u);
}

TEST_F(VerifyTest, AShortShardAndAMissingOneAreNamed) {
  node_.shards[0].bytes.pop_back();
  CheckpointInfo info = Plant();
  ASSERT_TRUE(disk_.Unlink(Join("job/checkpoints/x", node_.shards[1].name)).ok());
  VerifyResult result = Verify(disk_, info, nullptr);
  ASSERT_EQ(result.errors.size(), 2u);
  EXPECT_TRUE(absl::StrContains(result.errors[0].message, "instead of"));
  EXPECT_EQ(result.errors[1].file, node_.shards[1].name);
}

TEST_F(VerifyTest, AChangedHeaderIsFound) {
  node_.shards[0].bytes[100] ^= 1;
  VerifyResult result = Run();
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_TRUE(absl::StrContains(result.errors[0].message, "header"));
}

TEST_F(VerifyTest, AFragmentThatPutsAChunkElsewhereIsFound) {
  node_.fragment.tensors[0].chunks[0].bytes -= 1;
  node_.fragment.tensors[0].chunks[0].box.sizes[0] -= 1;
  node_.fragment.tensors[0].shape[0] -= 1;
  VerifyResult result = Run();
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].message, "the header has another entry here");
}

TEST_F(VerifyTest, AChangedFragmentIsNamed) {
  CheckpointInfo info = Plant();
  info.manifest.fragments[0].crc32c ^= 1;
  VerifyResult result = Verify(disk_, info, nullptr);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].file, "fragment-a.pb");
}

TEST_F(VerifyTest, AManifestThatIsNotOfTheseFragmentsIsNamed) {
  CheckpointInfo info = Plant();
  info.manifest.tensors += 1;
  VerifyResult result = Verify(disk_, info, nullptr);
  ASSERT_EQ(result.errors.size(), 1u);
  EXPECT_EQ(result.errors[0].file, "MANIFEST.pb");
}

TEST_F(VerifyTest, ItEndsWhenItIsTold) {
  VerifyResult result =
      Verify(disk_, Plant(), [](uint64_t bytes) { return bytes < kTensorBytes / 2; });
  EXPECT_TRUE(result.cancelled);
  EXPECT_FALSE(result.ok());
  EXPECT_LT(result.bytes, kTensorBytes);
}

}  // namespace
}  // namespace ckptd
