#include "storage/format/paths.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;

TEST(EncodeName, KeepsPlainNamesAndEncodesTheRest) {
  EXPECT_EQ(EncodeName("step-17_v2.0"), "step-17_v2.0");
  EXPECT_EQ(EncodeName("a/b"), "a%2Fb");
  EXPECT_EQ(EncodeName(".."), "%2E.");
  EXPECT_EQ(EncodeName("."), "%2E");
  EXPECT_EQ(EncodeName(".ckptd"), "%2Eckptd");
  EXPECT_EQ(EncodeName("a~b%"), "a%7Eb%25");
  EXPECT_EQ(EncodeName(std::string("\0", 1)), "%00");
  EXPECT_EQ(EncodeName("\xC3\xA9"), "%C3%A9");
}

TEST(EncodeName, NeverLeavesItsFolder) {
  std::set<std::string> names;
  for (int first = 0; first < 256; ++first) {
    for (int second = -1; second < 256; ++second) {
      std::string text(1, static_cast<char>(first));
      if (second >= 0) text.push_back(static_cast<char>(second));
      const std::string name = EncodeName(text);
      EXPECT_NE(name[0], '.');
      EXPECT_EQ(name.find('/'), std::string::npos);
      EXPECT_EQ(name.find('~'), std::string::npos);
      EXPECT_EQ(DecodeName(name), text);
      EXPECT_TRUE(names.insert(name).second);
    }
  }
}

TEST(DecodeName, TakesNothingButWhatIsEncoded) {
  for (const char* name :
       {"", "%", "%2", "%2e", "%41", "a/b", "..", ".x", "a b", "%G0", "%-1", "a%", "% 1", "%+1"}) {
    EXPECT_FALSE(DecodeName(name)) << name;
  }
  EXPECT_FALSE(DecodeName(EncodeName("")));
  EXPECT_TRUE(DecodeName(std::string(200, 'a')));
  EXPECT_FALSE(DecodeName(std::string(201, 'a')));
}

TEST(CheckName, CountsEncodedBytes) {
  EXPECT_TRUE(CheckName("job name", "x").ok());
  EXPECT_TRUE(CheckName("job name", std::string(200, 'x')).ok());
  EXPECT_EQ(CheckName("job name", "").message(), "job name is empty");
  const absl::Status status = CheckName("checkpoint id", std::string(67, '/'));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("checkpoint id \"///"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("201 bytes"));
  EXPECT_TRUE(CheckName("checkpoint id", std::string(66, '/')).ok());
}

TEST(AttemptName, IsReadBackExactly) {
  const AttemptName name = {17, 0xC0FFEE00C0FFEE};
  EXPECT_EQ(ToString(name), "17-00c0ffee00c0ffee");
  EXPECT_EQ(ParseAttemptName("17-00c0ffee00c0ffee"), name);
  const AttemptName largest = {~uint64_t{0}, ~uint64_t{0}};
  EXPECT_EQ(ParseAttemptName(ToString(largest)), largest);
  for (const char* text : {"", "17", "17-", "-00c0ffee00c0ffee", "017-00c0ffee00c0ffee",
                           "17-c0ffee", "17-00C0FFEE00C0FFEE", "17-00c0ffee00c0ffeg",
                           "17-00c0ffee00c0ffee ", "+17-00c0ffee00c0ffee", " 17-00c0ffee00c0ffee",
                           "18446744073709551616-00c0ffee00c0ffee", "17-0x00c0ffee00c0ffee"}) {
    EXPECT_FALSE(ParseAttemptName(text)) << text;
  }
}

TEST(Folders, AreBelowTheJob) {
  const AttemptName attempt = {17, 0xC0FFEE00C0FFEE};
  EXPECT_EQ(CheckpointDir("my job", "a/b"), "my%20job/checkpoints/a%2Fb");
  EXPECT_EQ(AttemptDir("j", attempt), "j/attempts/17-00c0ffee00c0ffee");
  EXPECT_EQ(FailedAttemptDir("j", attempt), "j/failed/17-00c0ffee00c0ffee");
  EXPECT_EQ(RetiredCheckpointDir("j", "a", attempt), "j/retired/a~17-00c0ffee00c0ffee");
  EXPECT_EQ(TrashedCheckpointDir("j", "a", attempt), "j/trash/a~17-00c0ffee00c0ffee");
  EXPECT_EQ(NodeLockFile("n/1"), ".ckptd/nodes/n%2F1.lock");
  EXPECT_EQ(VerdictFile(".j", attempt), ".ckptd/verified/%2Ej/17-00c0ffee00c0ffee.json");
  EXPECT_EQ(CheckpointDir("", ""), "%/checkpoints/%") << "never the folder above";
}

TEST(ParseRetiredName, ReadsIdAndAttempt) {
  const AttemptName attempt = {17, 0xC0FFEE00C0FFEE};
  EXPECT_EQ(ParseRetiredName("a%7Eb~17-00c0ffee00c0ffee"), (RetiredName{"a~b", attempt}));
  for (const char* name : {"", "a", "a~", "~17-00c0ffee00c0ffee", "a~b~17-00c0ffee00c0ffee",
                           "a~17-00c0ffee00c0ffee~"}) {
    EXPECT_FALSE(ParseRetiredName(name)) << name;
  }
}

TEST(ShardFile, NamesRankSectionAndRewrite) {
  EXPECT_EQ(ShardFile(3, 8, 0), "shard-00003-of-00008.safetensors");
  EXPECT_EQ(ShardFile(3, 8, 1), "shard-00003.1-of-00008.safetensors");
  EXPECT_EQ(ShardFile(3, 8, 0, 2), "shard-00003~2-of-00008.safetensors");
  EXPECT_EQ(ShardFile(3, 8, 1, 2), "shard-00003.1~2-of-00008.safetensors");
  EXPECT_EQ(ShardFile(123456, 200000, 0), "shard-123456-of-200000.safetensors");
  for (uint32_t section : {0, 1, 12}) {
    for (uint32_t rewrite : {0, 1, 12}) {
      EXPECT_TRUE(IsShardFile(ShardFile(3, 8, section, rewrite)));
    }
  }
  for (const char* name :
       {"", "shard-00003-of-00008", "shard-3-of-8.safetensors", "shard-00008-of-00008.safetensors",
        "shard-00003.0-of-00008.safetensors", "shard-00003~0-of-00008.safetensors",
        "shard-00003.01-of-00008.safetensors", "../shard-00003-of-00008.safetensors",
        "shard-00003-of-00008.safetensors/", "shard-99999999999-of-00008.safetensors",
        "shard--0003-of-00008.safetensors", "model.safetensors"}) {
    EXPECT_FALSE(IsShardFile(name)) << name;
  }
}

TEST(FragmentFileName, NamesTheNode) {
  EXPECT_EQ(FragmentFileName("node-1.example"), "fragment-node-1.example.pb");
  EXPECT_EQ(NodeOfFragmentFile("fragment-node-1.example.pb"), "node-1.example");
  EXPECT_EQ(NodeOfFragmentFile(FragmentFileName("a/../b")), "a/../b");
  for (const char* name : {"", "fragment-.pb", "fragment-a", "fragment-a.pb.tmp", "fragment-a/b.pb",
                           "fragment.pb", "fragment-%2f.pb"}) {
    EXPECT_FALSE(NodeOfFragmentFile(name)) << name;
  }
}

}  // namespace
}  // namespace ckptd
