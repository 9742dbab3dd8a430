// The worked example of storage/format/FORMAT.md is made again here, and each block of it must
// stand in the document. A block that does not is printed: paste it.
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/ckptd/format/v1/format.pb.h"
#include "storage/format/paths.h"
#include "storage/format/shard_header.h"
#include "tests/storage/format/sample_job.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

SampleFiles Example() {
  std::vector<RankPlan> plans(2);
  plans[0].tensors = {Tensor("w", DType::kFloat32, {3, 2}, {{{0, 0}, {2, 2}}}),
                      Whole("flag", DType::kBool, {}),
                      RankLocal(Whole("seed", DType::kComplex32, {1}))};
  plans[1].tensors = {Tensor("w", DType::kFloat32, {3, 2}, {{{2, 0}, {1, 2}}}),
                      Whole("flag", DType::kBool, {}),
                      RankLocal(Whole("seed", DType::kComplex32, {1}))};
  for (RankPlan& plan : plans) plan.items = {Item("step", "17", ItemKind::kJson)};
  return WriteSample(plans, {"node-a", "node-a"});
}

// As `hexdump -C` prints it.
std::string HexDump(absl::string_view bytes) {
  std::string text;
  absl::string_view last;
  bool squeezed = false;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    const absl::string_view row = bytes.substr(at, 16);
    if (at > 0 && row == last) {
      if (!squeezed) text += "*\n";
      squeezed = true;
      continue;
    }
    squeezed = false;
    last = row;
    std::string hex, characters;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppendFormat(&hex, "%s%02x", i == 8 ? "  " : " ", static_cast<uint8_t>(row[i]));
      characters.push_back(absl::ascii_isprint(static_cast<unsigned char>(row[i])) ? row[i] : '.');
    }
    absl::StrAppendFormat(&text, "%08x %-49s  |%s|\n", at, hex, characters);
  }
  absl::StrAppendFormat(&text, "%08x\n", bytes.size());
  return text;
}

template <typename Message>
std::string Decoded(const std::string& bytes) {
  Message message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message.DebugString();
}

class FormatDocument : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file("storage/format/FORMAT.md");
    std::stringstream text;
    text << file.rdbuf();
    document_ = text.str();
    ASSERT_FALSE(document_.empty());
  }

  void ExpectBlock(const std::string& what, const std::string& block) {
    const bool found = document_.find(absl::StrCat("\n```\n", block, "```\n")) != std::string::npos;
    EXPECT_TRUE(found) << "FORMAT.md does not have " << what << ":\n" << block << "-- end of block";
  }

  const SampleFiles example_ = Example();
  const std::string& shard_ = example_.bytes_by_name.at("shard-00000-of-00002.safetensors");
  std::string document_;
};

TEST_F(FormatDocument, ListsTheFiles) {
  std::string list;
  for (const auto& [name, bytes] : example_.bytes_by_name) {
    absl::StrAppendFormat(&list, "%6u  %s\n", bytes.size(), name);
  }
  ExpectBlock("the files", list);
}

TEST_F(FormatDocument, ShowsTheHeaderOfAShard) {
  const size_t length = HeaderLength(shard_, shard_.size()).value();
  std::string json = shard_.substr(8, length - 8);
  json.erase(json.find_last_not_of(' ') + 1);
  ExpectBlock("the header", json + "\n");
}

TEST_F(FormatDocument, ShowsTheBytesOfAShard) { ExpectBlock("the shard", HexDump(shard_)); }

TEST_F(FormatDocument, ShowsTheFragmentDecoded) {
  ExpectBlock("the fragment",
              Decoded<format::v1::Fragment>(example_.bytes_by_name.at("fragment-node-a.pb")));
}

TEST_F(FormatDocument, ShowsTheManifestDecodedAndItsBytes) {
  const std::string& bytes = example_.bytes_by_name.at(kManifestFile);
  ExpectBlock("the manifest", Decoded<format::v1::Manifest>(bytes));
  ExpectBlock("the manifest's bytes", HexDump(bytes));
}

TEST_F(FormatDocument, KnowsEveryDType) {
  for (const DTypeInfo& info : AllDTypes()) {
    const std::string row = absl::StrCat(
        "\n| ", static_cast<int>(info.dtype), " | `", info.name, "` | ", info.size_bytes, " | ",
        info.safetensors.empty() ? absl::StrCat("`U8`, one more dimension of ", info.size_bytes)
                                 : absl::StrCat("`", info.safetensors, "`"),
        " |\n");
    EXPECT_NE(document_.find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace ckptd
