// Shard files made by hand, with headers that lie: whoever reads one says so at once, with its
// name, takes no memory for what the file does not have, and loads nothing that is wrong.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "storage/base/crc32c.h"
#include "storage/format/records.h"
#include "storage/plan/image_layout.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr char kShard[] = "shard-00000-of-00001.safetensors";

std::string Length(uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(length >> shift));
  return bytes;
}

// A file with this header, padded as ours are, and so many bytes of data.
std::string WithHeader(std::string json, size_t data_bytes = 4096) {
  json.resize((json.size() + 8 + 4095) / 4096 * 4096 - 8, ' ');
  return Length(json.size()) + json + std::string(data_bytes, 'd');
}

std::string Tensor(const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"w":{"dtype":"F32","shape":)", shape, R"(,"data_offsets":)", offsets,
                      "}}");
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

struct Hostile {
  std::string what;
  std::string bytes;
  std::string named = "";  // In the error.
};

std::vector<Hostile> HostileFiles() {
  std::vector<Hostile> files = {
      {"too few bytes for the shape", WithHeader(Tensor("[1000,1000]", "[0,4]"), 4), "w"},
      {"an end before the begin", WithHeader(Tensor("[1]", "[4,0]")), "w"},
      {"a begin that wraps", WithHeader(Tensor("[1]", "[18446744073709551612,0]")), "w"},
      {"an end past the file", WithHeader(Tensor("[1000000]", "[0,4000000]")), "w"},
      {"negative offsets", WithHeader(Tensor("[1]", "[-4,0]")), "w"},
      {"fractional offsets", WithHeader(Tensor("[1]", "[0,4.5]")), "w"},
      {"three offsets", WithHeader(Tensor("[1]", "[0,4,8]")), "w"},
      {"a shape beyond 64 bits", WithHeader(Tensor("[1099511627776,1099511627776]", "[0,0]")), "w"},
      {"a shape that wraps to its size", WithHeader(Tensor("[4294967296,4294967296,1]", "[0,0]")),
       "w"},
      {"8 GiB that are not there", WithHeader(Tensor("[2147483648]", "[0,8589934592]")), "w"},
      {"80 dimensions", WithHeader(Tensor("[" + Repeated("1,", 79) + "1]", "[0,4]"), 4), "w"},
      {"100000 nested lists", WithHeader(R"({"w":{"dtype":)" + Repeated("[", 100000))},
      {"100000 nested objects", WithHeader(Repeated(R"({"w":)", 100000))},
      {"a list", WithHeader("[1,2]")},
      {"a number", WithHeader("7")},
      {"no text", WithHeader("\xff\xfe")},
      {"half an object", WithHeader(R"({"w":)")},
      {"a header of no bytes", Length(0) + std::string(4096, 'd')},
      {"a header of one byte", Length(1) + std::string(4096, 'd')},
      {"a header of 2^31 bytes", Length(uint64_t{1} << 31) + std::string(4096, 'd')},
      {"a header of 2^40 bytes", Length(uint64_t{1} << 40) + std::string(4096, 'd')},
      {"a header of 2^63 - 1 bytes", Length(~uint64_t{0} >> 1) + std::string(4096, 'd')},
      {"a header of 2^63 - 8 bytes", Length((~uint64_t{0} >> 1) - 7) + std::string(4096, 'd')},
      {"a header of 2^64 - 1 bytes", Length(~uint64_t{0}) + std::string(4096, 'd')},
      {"a header of 2^64 - 8 bytes", Length(~uint64_t{0} - 7) + std::string(4096, 'd')},
      {"a header one byte longer than the file", Length(4096 + 8 - 7) + std::string(4096, 'd')},
  };
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    files.push_back({absl::StrCat("a file of ", bytes, " bytes"), std::string(bytes, '\1')});
  }
  return files;
}

// The most that a process ever had.
uint64_t PeakBytes(pid_t pid) {
  const std::string status = ReadTextFile(absl::StrCat("/proc/", pid, "/status"));
  const size_t at = status.find("VmHWM:");
  return at == status.npos ? 0 : std::stoull(status.substr(at + 6)) << 10;
}

// A checkpoint "one" whose shard is replaced.
class HostileShard : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.emplace(site_);
    ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
    rank_.emplace(site_, std::vector<std::string>{"--rank", "0", "--world-size", "1", "--tensor",
                                                  "w:float32:1000"});
    rank_->Ok("fill 1");
    rank_->Ok("save one 1");
    ASSERT_EQ(rank_->AwaitOutcome("one")["event"], "committed");
    peak_ = PeakBytes(daemon_->pid());
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("fragment-")) fragment_file_ = name;
    }
    record_ = *DecodeAttemptRecord(ReadTextFile(folder() + "/ATTEMPT.pb"));
    fragment_ = *DecodeFragment(ReadTextFile(folder() + "/" + fragment_file_));
    ASSERT_EQ(fragment_.files.size(), 1u);
  }
  void TearDown() override {
    EXPECT_TRUE(daemon_->process().Running()) << daemon_->Log();
    EXPECT_LT(PeakBytes(daemon_->pid()), peak_ + (200u << 20));
  }

  std::string folder() const { return site_.root() + "/job/checkpoints/one"; }

  // Checksums and sizes of the records are made to fit; false if no record can say that.
  bool ForgeRecords(const std::string& bytes) {
    Fragment forged = fragment_;
    StoredFile& file = forged.files[0];
    if (bytes.size() < file.header_bytes) return false;
    file.bytes = bytes.size();
    file.header_crc32c = Crc32c(bytes.substr(0, file.header_bytes));
    file.unit_crc32c.clear();
    size_t at = file.header_bytes;
    for (uint64_t unit : UnitSizes(file.image_offset_bytes, bytes.size() - at)) {
      file.unit_crc32c.push_back(Crc32c(bytes.substr(at, unit)));
      at += unit;
    }
    const std::string text = EncodeFragment(forged);
    if (!DecodeFragment(text).ok()) return false;
    auto manifest = MakeManifest(record_, {{fragment_file_, text, forged}});
    if (!manifest.ok()) return false;
    WriteTextFile(folder() + "/" + fragment_file_, text);
    WriteTextFile(folder() + "/MANIFEST.pb", EncodeManifest(*manifest));
    return true;
  }

  // `tensor` in the first error, or in its text; "" is any.
  void ExpectVerifyNames(const std::string& tensor) {
    for (const auto& run : {Ckptctl, OfflineCkptctl}) {
      const CommandResult verified = run(site_, {"--job", "job", "verify", "one"});
      EXPECT_EQ(verified.exit_code, 6) << verified.out << verified.err;
      ASSERT_TRUE(verified.json.is_object()) << verified.err;
      const Json& error = verified.json["checked"][0]["errors"][0];
      EXPECT_EQ(error["file"], kShard);
      if (tensor.empty() || error["tensor"] == tensor) continue;
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("\"" + tensor + "\""));
    }
  }

  // The saved bytes, or an error that names the file.
  void ExpectLoadsRightOrNot() {
    rank_->Ok("fill 7");
    const Json answer = rank_->Do("load one 0s");
    EXPECT_LT(answer["seconds"], 1);
    if (answer["ok"] == true) {
      EXPECT_EQ(rank_->Do("check 1")["equal"], true);
    } else {
      EXPECT_EQ(answer["code"], "DATA_LOSS") << answer;
      EXPECT_THAT(answer["message"].get<std::string>(), AnyOf(HasSubstr(kShard), HasSubstr("w")));
    }
  }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
  std::optional<TestTrainer> rank_;
  uint64_t peak_ = 0;
  std::string fragment_file_;
  AttemptRecord record_;
  Fragment fragment_;
};

TEST_F(HostileShard, IsFoundByVerifyAndNeverLoaded) {
  for (const Hostile& hostile : HostileFiles()) {
    SCOPED_TRACE(hostile.what);
    WriteTextFile(folder() + "/" + kShard, hostile.bytes);
    ExpectVerifyNames(hostile.bytes.size() < fragment_.files[0].bytes ? "w" : "");
    ExpectLoadsRightOrNot();
  }
}

// Whoever can write the shard can write the checksums, too: then it is the header that tells.
TEST_F(HostileShard, WithChecksumsThatFitIsFoundByItsHeader) {
  int forged = 0;
  for (const Hostile& hostile : HostileFiles()) {
    SCOPED_TRACE(hostile.what);
    // As long as a header of this fragment's has to be.
    if (!ForgeRecords(hostile.bytes)) continue;
    ++forged;
    WriteTextFile(folder() + "/" + kShard, hostile.bytes);
    ExpectVerifyNames(hostile.named);
    const Json answer = rank_->Do("load one 0s");
    EXPECT_LT(answer["seconds"], 1);
    EXPECT_TRUE(daemon_->process().Running());
  }
  EXPECT_GE(forged, 15);
}

// A trainer's model is a file of somebody else's.
TEST_F(HostileShard, IsRefusedAsAModelByName) {
  const std::string path = site_.folder() + "/model.safetensors";
  for (const Hostile& hostile : HostileFiles()) {
    SCOPED_TRACE(hostile.what);
    WriteTextFile(path, hostile.bytes);
    const absl::Time before = absl::Now();
    const CommandResult run =
        RunProgram({kTrainerBinary, "--socket", site_.socket(), "--job", "model", "--rank", "0",
                    "--world-size", "1", "--incarnation", "1", "--model", path, "--steps", "1"});
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    EXPECT_LT(absl::Now() - before, absl::Seconds(5));
    EXPECT_THAT(run.err, HasSubstr("model.safetensors"));
    EXPECT_THAT(run.err, HasSubstr(hostile.named.empty() ? "" : "\"" + hostile.named + "\""));
  }
}

}  // namespace
}  // namespace ckptd
