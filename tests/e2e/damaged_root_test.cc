// A checkpoint of which one file was cut or changed: it is named, and nothing else is lost.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "proto/ckptd/v1/admin.grpc.pb.h"
#include "tests/support/processes.h"

namespace ckptd {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSeed = 20240607;

// Checkpoints "old" and "hurt" of two ranks, of which the second is damaged.
class DamagedRoot : public testing::Test {
 protected:
  void SetUp() override {
    daemon_.emplace(site_);
    ASSERT_TRUE(daemon_->ready()) << daemon_->Log();
    for (int rank = 0; rank < 2; ++rank) {
      ranks_[rank].emplace(
          site_, std::vector<std::string>{"--rank", absl::StrCat(rank), "--world-size", "2",
                                          "--tensor", "w:float32:300x3", "--tensor", "v:int64:9",
                                          "--tensor", "mine:uint8:33:local"});
    }
    Save("old", 1);
    Save("hurt", 2);
    stub_ = v1::AdminService::NewStub(grpc::CreateChannel(absl::StrCat("unix:", site_.socket()),
                                                          grpc::InsecureChannelCredentials()));
    for (const auto& entry : std::filesystem::directory_iterator(folder())) {
      files_[entry.path().filename().string()] = ReadTextFile(entry.path().string());
    }
    ASSERT_EQ(files_.size(), 5u);  // Two shards, fragment, manifest, record.
  }

  std::string folder() const { return site_.root() + "/job/checkpoints/hurt"; }

  void Save(const std::string& id, int step) {
    for (auto& rank : ranks_) {
      rank->Ok(absl::StrCat("fill ", step));
      rank->Send(absl::StrCat("save ", id, " ", step));
    }
    for (auto& rank : ranks_) EXPECT_EQ(rank->AwaitOutcome(id)["event"], "committed");
  }

  v1::VerifyReply Verify(const std::string& id) {
    grpc::ClientContext context;
    v1::VerifyRequest request;
    request.set_job("job");
    request.add_ids(id);
    auto reader = stub_->Verify(&context, request);
    v1::VerifyReply reply;
    EXPECT_TRUE(reader->Read(&reply)) << "nothing is said of " << id;
    EXPECT_TRUE(reader->Finish().ok());
    return reply;
  }

  v1::ListReply List() {
    grpc::ClientContext context;
    v1::ListRequest request;
    request.set_job("job");
    v1::ListReply reply;
    EXPECT_TRUE(stub_->List(&context, request, &reply).ok());
    return reply;
  }

  // True, and nothing printed, unless something is wrong: called thousands of times.
  void ExpectFound(const std::string& file, const std::string& what) {
    const v1::VerifyReply hurt = Verify("hurt");
    bool named = false;
    for (const v1::VerifyError& error : hurt.errors()) {
      named |= absl::StrContains(error.file(), file) || absl::StrContains(error.message(), file);
    }
    ASSERT_TRUE(!hurt.ok() && named) << file << " " << what << ": " << hurt.DebugString();
    const v1::ListReply list = List();
    bool old_listed = false;
    for (const v1::Checkpoint& checkpoint : list.checkpoints()) {
      old_listed |= checkpoint.id() == "old";
    }
    ASSERT_TRUE(old_listed) << file << " " << what;
    ASSERT_EQ(list.checkpoints_size() + list.damaged_size(), 2) << file << " " << what;
  }

  // The other checkpoint is as it was; this one is not loaded.
  void ExpectOthersLoad(const std::string& file) {
    EXPECT_TRUE(Verify("old").ok());
    for (auto& rank : ranks_) {
      rank->Ok("load old 0s");
      rank->Ok("check 1");
    }
    const CommandResult verified = Ckptctl(site_, {"verify", "hurt"});
    EXPECT_EQ(verified.exit_code, 6) << verified.out << verified.err;
    EXPECT_THAT(verified.out, HasSubstr(file));
    EXPECT_EQ(OfflineCkptctl(site_, {"verify", "hurt"}).exit_code, 6);
    EXPECT_EQ(OfflineCkptctl(site_, {"verify", "old"}).exit_code, 0);
    EXPECT_EQ(Ckptctl(site_, {"list"}).exit_code, 0);
    EXPECT_EQ(Ckptctl(site_, {"show", "old"}).exit_code, 0);
    EXPECT_EQ(Ckptctl(site_, {"describe", "old"}).exit_code, 0);
  }

  void Restore(const std::string& file) { WriteTextFile(folder() + "/" + file, files_[file]); }

  TestSite site_;
  std::optional<TestDaemon> daemon_;
  std::optional<TestTrainer> ranks_[2];
  std::unique_ptr<v1::AdminService::Stub> stub_;
  std::map<std::string, std::string> files_;
};

TEST_F(DamagedRoot, EveryTruncationOfAFileIsFoundAndNamesIt) {
  size_t cuts = 0;
  for (const auto& [file, content] : files_) {
    const bool shard = absl::EndsWith(file, ".safetensors");
    const size_t header = 4096;
    for (size_t size = 0; size < (shard ? header : content.size()); ++size) {
      // Most of a header is padding.
      if (shard && size > 8 && content[size - 1] == ' ' && size % 64 != 0) continue;
      std::filesystem::resize_file(folder() + "/" + file, size);
      ExpectFound(file, absl::StrCat("cut to ", size));
      if (HasFatalFailure()) return;
      if (cuts++ % 500 == 0) ExpectOthersLoad(file);
      Restore(file);
    }
  }
  EXPECT_TRUE(Verify("hurt").ok()) << "all is as it was";
  std::printf("%zu truncations, each found\n", cuts);
}

TEST_F(DamagedRoot, AMissingFileIsFoundAndNamesIt) {
  for (const auto& [file, content] : files_) {
    std::filesystem::remove(folder() + "/" + file);
    ExpectFound(file, "removed");
    ExpectOthersLoad(file);
    Restore(file);
  }
}

TEST_F(DamagedRoot, OneFlippedBitInAnyFileIsFoundAndNamesFileAndTensor) {
  std::mt19937_64 random(kSeed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  for (const auto& [file, content] : files_) {
    for (int round = 0; round < 200; ++round) {
      const size_t bit = random() % (8 * content.size());
      std::string changed = content;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
      WriteTextFile(folder() + "/" + file, changed);
      ExpectFound(file, absl::StrCat("bit ", bit));
      if (HasFatalFailure()) return;
      if (round == 0) ExpectOthersLoad(file);
    }
    Restore(file);
  }
}

TEST_F(DamagedRoot, AFlippedBitOfATensorNamesItAndOtherTensorsLoad) {
  const Json description = Ckptctl(site_, {"describe", "hurt"}).json;
  const std::string file = "shard-00001-of-00002.safetensors";
  for (const Json& tensor : description["tensors"]) {
    for (const Json& chunk : tensor["chunks"]) {
      if (chunk["file"] != file || tensor["name"] != "w") continue;
      std::string changed = files_[file];
      changed[chunk["file_offset"].get<size_t>() + 5] ^= 0x10;
      WriteTextFile(folder() + "/" + file, changed);
    }
  }
  ASSERT_NE(ReadTextFile(folder() + "/" + file), files_[file]);
  const v1::VerifyReply verified = Verify("hurt");
  ASSERT_EQ(verified.errors_size(), 1) << verified.DebugString();
  EXPECT_THAT(verified.errors(0).tensor(), HasSubstr("w"));  // And what shares its checksum.
  EXPECT_EQ(verified.errors(0).file(), file);
  // Rank 1 wants w from that shard; rank 0 does not.
  const Json answer = ranks_[1]->Do("load hurt 0s");
  EXPECT_EQ(answer["code"], "DATA_LOSS") << answer.dump();
  EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr("w"));
  EXPECT_THAT(answer["message"].get<std::string>(), HasSubstr(file));
  ranks_[0]->Ok("load hurt 0s");
  ranks_[0]->Ok("check 2");
}

TEST_F(DamagedRoot, ANewestThatIsDamagedIsReportedWhereverItIsAskedFor) {
  std::filesystem::resize_file(folder() + "/MANIFEST.pb", 10);
  const Json answer = ranks_[0]->Do("load hurt 0s");
  EXPECT_EQ(answer["code"], "DATA_LOSS") << answer.dump();
  EXPECT_EQ(Ckptctl(site_, {"show", "hurt"}).exit_code, 6);
  EXPECT_EQ(Ckptctl(site_, {"describe", "hurt"}).exit_code, 6);
  const CommandResult list = Ckptctl(site_, {"list"});
  EXPECT_THAT(list.out + list.err, HasSubstr("hurt"));
  daemon_->Stop();
  daemon_.emplace(site_);
  EXPECT_EQ(ListedIds(site_), std::vector<std::string>{"old"});
  EXPECT_EQ(ReadTextFile(folder() + "/MANIFEST.pb").size(), 10u) << "nobody deletes it";
  Save("new", 3);
  EXPECT_EQ(ListedIds(site_), (std::vector<std::string>{"old", "new"}));
}

TEST_F(DamagedRoot, ForeignThingsInPlacesOfOursAreNoCheckpointsAndStay) {
  const std::string job = site_.root() + "/job";
  WriteTextFile(job + "/checkpoints/file", "a file");
  std::filesystem::create_directory(job + "/checkpoints/empty");
  std::filesystem::create_directory(job + "/checkpoints/%2");
  WriteTextFile(job + "/attempts/9-0123456789abcdef", "a file");
  WriteTextFile(job + "/failed/9-0123456789abcdef", "a file");
  WriteTextFile(site_.root() + "/other", "a file");
  std::filesystem::create_directories(site_.root() + "/their job/data");
  site_.PlantForeignJobs();
  const auto before = ReadTree(job + "/checkpoints");
  EXPECT_EQ(ListedIds(site_), (std::vector<std::string>{"old", "hurt"}));
  daemon_->Stop();
  daemon_.emplace(site_);
  EXPECT_EQ(ListedIds(site_), (std::vector<std::string>{"old", "hurt"}));
  EXPECT_EQ(ReadTree(job + "/checkpoints"), before);
  Save("new", 3);
  EXPECT_EQ(ReadTextFile(job + "/attempts/9-0123456789abcdef"), "a file");
  EXPECT_EQ(ReadTextFile(job + "/failed/9-0123456789abcdef"), "a file");
  EXPECT_EQ(ReadTextFile(site_.root() + "/other"), "a file");
  EXPECT_TRUE(std::filesystem::is_directory(site_.root() + "/their job/data"));
  EXPECT_EQ(ListedIds(site_, "theirs"), std::vector<std::string>());
  EXPECT_EQ(ListedIds(site_, "theirs-too"), std::vector<std::string>());
  EXPECT_EQ(Ckptctl(site_, {"--job", "theirs-too", "latest"}).exit_code, 3);
  EXPECT_EQ(Ckptctl(site_, {"--job", "theirs-too", "delete", "epoch-1", "--yes"}).exit_code, 3);
  EXPECT_EQ(Ckptctl(site_, {"verify", "--all"}).exit_code, 0);
}

}  // namespace
}  // namespace ckptd
