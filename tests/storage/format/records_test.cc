#include "storage/format/records.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/base/crc32c.h"
#include "tests/storage/format/sample_job.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using ::testing::HasSubstr;

// Two nodes; chunks, replicas, rank-local values, empty and 0-d tensors, small and large items.
SampleFiles Sample() {
  std::vector<RankPlan> plans(3);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    plans[rank].tensors = {Tensor("w", DType::kFloat32, {6, 2},
                                  {{{2 * rank, 0}, {1, 2}}, {{2 * rank + 1, 0}, {1, 2}}}),
                           Whole("s", DType::kBFloat16, {}),
                           RankLocal(Whole("own", DType::kInt64, {rank + 1})),
                           Whole("empty", DType::kBool, {0, 4})};
    plans[rank].items = {Item("step", "17", ItemKind::kJson),
                         RankLocal(Item("random", absl::StrCat("state", rank)))};
  }
  plans[1].items.push_back(LargeItem("blob", kInlineItemBytesMax + 1));
  return WriteSample(plans, {"node-b", "node-a", "node-b"});
}

Outcome SampleOutcome() {
  Outcome outcome;
  outcome.record = Sample().record;
  outcome.root_label = "default";
  outcome.failure = {absl::ResourceExhaustedError("no space: \xFF\xFE"), 2, "node-b", "write"};
  outcome.ranks = {{0, "node-a", 4711, "staged", 100, 100, 50}, {2, "", 0, "missing", 0, 0, 0}};
  outcome.ended = absl::FromUnixNanos(1'700'000'001'234'567'890);
  return outcome;
}

// The record with the trailer that belongs to its body.
std::string Resealed(std::string bytes) {
  bytes.resize(bytes.size() - 4);
  const uint32_t crc = Crc32c(absl::string_view(bytes).substr(0, bytes.size() - 1));
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(crc >> shift));
  return bytes;
}

// Every truncation and every flipped bit is found, and decoding survives what the checksum does not
// show.
template <typename Value>
void ExpectRobust(const Value& value, const std::string& bytes,
                  absl::StatusOr<Value> (*decode)(absl::string_view)) {
  absl::StatusOr<Value> decoded = decode(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, value);
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(decode(bytes.substr(0, length)).status().code(), absl::StatusCode::kDataLoss);
    std::string resealed = bytes.substr(0, length) + bytes.substr(bytes.size() - 5);
    (void)decode(Resealed(resealed));
  }
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(decode(flipped).status().code(), absl::StatusCode::kDataLoss) << "bit " << bit;
    if (bit / 8 < bytes.size() - 5) (void)decode(Resealed(flipped));
  }
}

TEST(AttemptRecord, IsReadBackAndEveryDamageIsFound) {
  AttemptRecord record = Sample().record;
  record.replace = true;
  record.step = -1;
  ExpectRobust(record, EncodeAttemptRecord(record), DecodeAttemptRecord);
}

TEST(Fragment, IsReadBackAndEveryDamageIsFound) {
  std::vector<RankPlan> plans(1);
  plans[0].tensors = {Tensor("w", DType::kFloat32, {3, 2}, {{{0, 0}, {1, 2}}, {{1, 0}, {2, 2}}}),
                      RankLocal(Whole("own", DType::kInt64, {1})),
                      Whole("empty", DType::kBool, {0, 4})};
  plans[0].items = {Item("step", "17", ItemKind::kJson), RankLocal(LargeItem("x@rank0", 70000))};
  plans[0].items[1].name = "x";
  for (const FragmentFile& file : WriteSample(plans, {"node/a"}).fragments) {
    ExpectRobust(file.fragment, file.bytes, DecodeFragment);
  }
}

TEST(Manifest, IsReadBackAndEveryDamageIsFound) {
  const Manifest manifest = Sample().manifest;
  ExpectRobust(manifest, EncodeManifest(manifest), DecodeManifest);
}

TEST(Outcome, IsReadBackAndEveryDamageIsFound) {
  const Outcome outcome = SampleOutcome();
  ExpectRobust(outcome, EncodeOutcome(outcome), DecodeOutcome);
}

TEST(Records, AreEncodedAlikeEachTime) {
  const SampleFiles a = Sample(), b = Sample();
  EXPECT_EQ(a.bytes_by_name, b.bytes_by_name);
}

TEST(Records, OfANewerFormatAreRefusedAsSuch) {
  // Field 1 is the version, a varint of one byte.
  for (std::string bytes : {EncodeAttemptRecord(Sample().record), Sample().fragments[0].bytes,
                            EncodeManifest(Sample().manifest), EncodeOutcome(SampleOutcome())}) {
    ASSERT_EQ(bytes.substr(0, 2), "\x08\x01");
    bytes[1] = 2;
    bytes = Resealed(bytes);
    for (const absl::Status& status :
         {DecodeAttemptRecord(bytes).status(), DecodeFragment(bytes).status(),
          DecodeManifest(bytes).status(), DecodeOutcome(bytes).status()}) {
      EXPECT_FALSE(status.ok());
    }
  }
  std::string bytes = EncodeManifest(Sample().manifest);
  bytes[1] = 2;
  EXPECT_EQ(DecodeManifest(Resealed(bytes)).status().code(), absl::StatusCode::kFailedPrecondition);
  bytes[1] = 0;
  EXPECT_EQ(DecodeManifest(Resealed(bytes)).status().code(), absl::StatusCode::kInvalidArgument);
}

// Changes one thing in the sample's fragment of node-b, and expects it to be refused by this name.
void ExpectFragmentRefused(const std::function<void(Fragment&)>& change,
                           const std::vector<std::string>& words) {
  Fragment fragment = Sample().fragments[1].fragment;
  ASSERT_TRUE(DecodeFragment(EncodeFragment(fragment)).ok());
  change(fragment);
  const absl::Status status = DecodeFragment(EncodeFragment(fragment)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(DecodeFragment, NamesTheFieldThatContradicts) {
  ExpectFragmentRefused([](Fragment& f) { f.job = ""; }, {"job"});
  ExpectFragmentRefused([](Fragment& f) { f.node = std::string(201, 'n'); }, {"node"});
  ExpectFragmentRefused([](Fragment& f) { f.ranks = {2, 0}; }, {"ranks"});
  ExpectFragmentRefused([](Fragment& f) { f.ranks = {0, 0, 2}; }, {"ranks"});
  ExpectFragmentRefused([](Fragment& f) { f.ranks = {0}; }, {"files[2]", "rank 2"});
  for (const char* name : {"../x", "/etc/passwd", "", ".", "model.safetensors", "MANIFEST.pb"}) {
    ExpectFragmentRefused([&](Fragment& f) { f.files[1].name = name; }, {"files[1]", "name"});
  }
  ExpectFragmentRefused([](Fragment& f) { f.files[1].name = f.files[0].name; }, {"files[1]"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].header_bytes = 4095; }, {"header_bytes"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].header_bytes = 0; }, {"header_bytes"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].header_bytes = uint64_t{1} << 40; },
                        {"header_bytes"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].bytes = 4095; }, {"bytes"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].bytes = ~uint64_t{0}; }, {"bytes"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].bytes += kInlineItemBytesMax << 10; },
                        {"unit_crc32c"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].unit_crc32c.push_back(1); }, {"unit_crc32c"});
  ExpectFragmentRefused([](Fragment& f) { f.files[0].image_offset_bytes = 1; },
                        {"image_offset_bytes"});
}

TEST(DecodeFragment, NamesTheTensorThatContradicts) {
  auto refused = [](const std::function<void(StoredTensor&)>& change,
                    const std::vector<std::string>& words) {
    ExpectFragmentRefused([&](Fragment& f) { change(f.tensors[0]); }, words);
  };
  ASSERT_EQ(Sample().fragments[1].fragment.tensors[0].name, "w");
  refused([](StoredTensor& t) { t.name = "\xFF"; }, {"name", "UTF-8"});
  refused([](StoredTensor& t) { t.name = "s"; }, {"\"s\"", "twice"});
  refused([](StoredTensor& t) { t.dtype = static_cast<DType>(24); }, {"\"w\"", "dtype"});
  refused([](StoredTensor& t) { t.dtype = DType::kFloat64; }, {"\"w\"", "chunks[0].bytes"});
  refused([](StoredTensor& t) { t.shape = {uint64_t{1} << 62, 1}; }, {"\"w\"", "shape"});
  refused([](StoredTensor& t) { t.shape = {6}; }, {"\"w\"", "chunks[0]"});
  refused([](StoredTensor& t) { t.chunks[1].box.offsets[0] = 6; }, {"\"w\"", "chunks[1]", "[6:7"});
  refused([](StoredTensor& t) { t.chunks[1].box.offsets[0] = ~uint64_t{0}; }, {"chunks[1]"});
  refused([](StoredTensor& t) { t.chunks[1].file = 99; }, {"\"w\"", "chunks[1]", "file", "99"});
  refused([](StoredTensor& t) { t.chunks[1].file_offset_bytes = 0; }, {"file_offset_bytes"});
  refused([](StoredTensor& t) { t.chunks[1].file_offset_bytes = ~uint64_t{0}; },
          {"file_offset_bytes"});
  refused([](StoredTensor& t) { t.chunks[1].file_offset_bytes += 8; }, {"file_offset_bytes"});
  refused([](StoredTensor& t) { t.rank_local = 0; }, {"\"w\"", "another rank"});
  refused(
      [](StoredTensor& t) {
        t.chunks.push_back({{{0, 0}, {0, 2}}, 0, 4096, 0});
      },
      {"\"w\"", "chunks[4].bytes"});
}

TEST(DecodeFragment, NamesTheItemThatContradicts) {
  ExpectFragmentRefused([](Fragment& f) { f.items[0].crc32c ^= 1; }, {"\"step\"", "checksum"});
  ExpectFragmentRefused([](Fragment& f) { f.items[0].bytes = 3; }, {"\"step\"", "value"});
  ExpectFragmentRefused([](Fragment& f) { f.items[0].kind = static_cast<ItemKind>(4); },
                        {"\"step\"", "kind"});
  ExpectFragmentRefused([](Fragment& f) { f.items[0].bytes = 70000; },
                        {"\"step\"", "file_offset_bytes"});
  ExpectFragmentRefused(
      [](Fragment& f) {
        f.items[0].bytes = 70000;
        f.items[0].file = 99;
      },
      {"\"step\"", "99"});
  ExpectFragmentRefused([](Fragment& f) { f.items[0].name = "w"; }, {"\"w\"", "twice"});
  ExpectFragmentRefused([](Fragment& f) { f.items[0].name = "random"; },
                        {"\"random\"", "rank-local"});
}

TEST(DecodeManifest, NamesTheFieldThatContradicts) {
  auto refused = [](const std::function<void(Manifest&)>& change, const std::string& word) {
    Manifest manifest = Sample().manifest;
    change(manifest);
    const absl::Status status = DecodeManifest(EncodeManifest(manifest)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  };
  refused([](Manifest& m) { m.job = ""; }, "job");
  refused([](Manifest& m) { m.checkpoint_id = ""; }, "checkpoint_id");
  refused([](Manifest& m) { m.world_size = 0; }, "world_size");
  refused([](Manifest& m) { m.fragments[1].file = "../x"; }, "fragments[1]");
  refused([](Manifest& m) { m.fragments[1] = m.fragments[0]; }, "fragments[1]");
  refused([](Manifest& m) { std::swap(m.fragments[0], m.fragments[1]); }, "fragments[1]");
  refused([](Manifest& m) { m.fragments[0].node = ""; }, "fragments[0]");
}

TEST(DecodeOutcome, RefusesAnOutcomeThatIsNone) {
  Outcome outcome = SampleOutcome();
  outcome.failure.status = absl::OkStatus();
  EXPECT_THAT(std::string(DecodeOutcome(EncodeOutcome(outcome)).status().message()),
              HasSubstr("code"));
  outcome = SampleOutcome();
  outcome.record.job = "";
  EXPECT_THAT(std::string(DecodeOutcome(EncodeOutcome(outcome)).status().message()),
              HasSubstr("record: job"));
}

TEST(MakeManifest, CountsWhatTheFragmentsHold) {
  const SampleFiles sample = Sample();
  const Manifest& manifest = sample.manifest;
  EXPECT_EQ(manifest.tensors, 6u) << "w, s, empty, and own of each rank";
  EXPECT_EQ(manifest.items, 5u) << "step, blob, and random of each rank";
  EXPECT_EQ(manifest.files, 6u);
  EXPECT_EQ(manifest.bytes, 6 * 2 * 4 + 2 + (1 + 2 + 3) * 8 + kInlineItemBytesMax + 1);
  ASSERT_EQ(manifest.fragments.size(), 2u);
  EXPECT_EQ(manifest.fragments[0].node, "node-a");
  for (const FragmentRef& fragment : manifest.fragments) {
    const std::string& bytes = sample.bytes_by_name.at(fragment.file);
    EXPECT_EQ(fragment.bytes, bytes.size());
    EXPECT_EQ(fragment.crc32c, Crc32c(bytes));
  }
  std::vector<FragmentFile> reversed(sample.fragments.rbegin(), sample.fragments.rend());
  EXPECT_EQ(*MakeManifest(sample.record, reversed), manifest);
}

// Changes something in the sample, and expects these words.
void ExpectNoManifest(const std::function<void(SampleFiles&)>& change,
                      const std::vector<std::string>& words) {
  SampleFiles sample = Sample();
  change(sample);
  const absl::Status status = MakeManifest(sample.record, sample.fragments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(MakeManifest, NamesWhatDoesNotBelongTogether) {
  auto node_b = [](SampleFiles& s) -> Fragment& { return s.fragments[1].fragment; };
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).attempt.random ^= 1; },
                   {"fragment-node-b.pb", "3-00c0ffee00c0ffef"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).job = "other"; }, {"node-b", "another job"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).checkpoint_id = "x"; }, {"node-b", "another"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).node = "node-c"; }, {"node-b", "node-c"});
  ExpectNoManifest([&](SampleFiles& s) { s.fragments.pop_back(); }, {"rank 0"});
  ExpectNoManifest([&](SampleFiles& s) { s.record.world_size = 4; }, {"rank 3"});
  ExpectNoManifest([&](SampleFiles& s) { s.record.world_size = 2; }, {"node-b", "rank 2 of 2"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).ranks = {0, 1, 2}; }, {"rank 1", "node-a"});
  ExpectNoManifest(
      [&](SampleFiles& s) { node_b(s).files[0].name = s.fragments[0].fragment.files[0].name; },
      {"node-b", "shard-00001-of-00003.safetensors"});
  ExpectNoManifest(
      [&](SampleFiles& s) {
        node_b(s).tensors[0].shape = {7, 2};
      },
      {"\"w\"", "node-a", "node-b", "shape"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).tensors[0].dtype = DType::kInt32; },
                   {"\"w\"", "dtype"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).tensors[0].chunks.pop_back(); },
                   {"\"w\"", "[5:6, 0:2]", "missing"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).tensors[0].chunks[0].box.sizes[0] = 2; },
                   {"\"w\"", "[1:2, 0:2]", "two boxes"});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).items[0].name = "blob"; }, {"\"blob\""});
  ExpectNoManifest([&](SampleFiles& s) { node_b(s).items[0].name = "w"; }, {"\"w\""});
}

}  // namespace
}  // namespace ckptd
