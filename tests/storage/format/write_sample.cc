// write_sample FOLDER: writes a checkpoint with everything that a shard can hold, and
// expected.json, which says for each stored part where it lies and from what its content follows
// (sample_job.h).
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "tests/storage/format/sample_job.h"
#include "tests/storage/plan/entries.h"

namespace ckptd {
namespace {

using Json = nlohmann::ordered_json;

// Rank 0 and 1 share tensors of each dtype, in three chunks of rows; rank 2 has only a tensor
// without elements, rank 3 nothing.
std::vector<RankPlan> Plans() {
  std::vector<RankPlan> plans(4);
  for (const DTypeInfo& info : AllDTypes()) {
    const std::string name = absl::StrCat("dtype.", info.name);
    plans[0].tensors.push_back(
        Tensor(name, info.dtype, {5, 3}, {{{0, 0}, {1, 3}}, {{1, 0}, {2, 3}}}));
    plans[1].tensors.push_back(Tensor(name, info.dtype, {5, 3}, {{{3, 0}, {2, 3}}}));
  }
  for (uint32_t rank : {0, 1}) {
    for (DType dtype : {DType::kFloat32, DType::kInt64, DType::kBool, DType::kBFloat16}) {
      plans[rank].tensors.push_back(Whole(absl::StrCat("scalar.", Info(dtype).name), dtype, {}));
    }
    plans[rank].tensors.push_back(Whole("columns", DType::kFloat64, {4, 6}));
    plans[rank].tensors.back().chunks = {{{0, 3 * rank}, {4, 3}}};
    plans[rank].tensors.push_back(RankLocal(Whole("own", DType::kInt16, {2 + rank})));
    plans[rank].tensors.push_back(RankLocal(Whole("own.complex", DType::kComplex128, {2, 2})));
    plans[rank].items = {Item("small", "not in a shard"), LargeItem("blob", 70'000)};
    ItemEntry own = LargeItem(absl::StrCat("own blob@rank", rank), 70'001 + rank);
    own.name = "own blob";
    plans[rank].items.push_back(RankLocal(own));
  }
  plans[1].tensors.push_back(Whole("own@rank1", DType::kInt8, {3}));
  plans[0].tensors.push_back(Whole("empty", DType::kFloat32, {0, 3}));
  plans[1].tensors.push_back(Whole("empty", DType::kFloat32, {0, 3}));
  plans[1].tensors.push_back(Whole("empty.complex", DType::kComplex128, {4, 0}));
  plans[2].tensors.push_back(Whole("empty.alone", DType::kFloat8E8M0FNU, {0}));
  const char* odd_names[] = {"a/b",
                             "../../x",
                             "/abs",
                             ".",
                             "..",
                             "",
                             " ",
                             "a\nb\t\"\\",
                             "\x01\x7F",
                             "\xD0\xB4\xE4\xBD\xA0",
                             "\xF0\x9F\x98\x80",
                             "\xC3\xA9",
                             "e\xCC\x81",
                             "__metadata__",
                             ".metadata"};
  for (const char* name : odd_names) {
    plans[0].tensors.push_back(Whole(name, DType::kUInt16, {2}));
  }
  plans[0].tensors.push_back(Whole(std::string(5000, 'k'), DType::kUInt16, {2}));
  return plans;
}

Json Part(const std::string& name, const std::optional<uint32_t>& rank_local,
          const StoredFile& file, uint64_t file_offset_bytes) {
  const std::string content = rank_local ? absl::StrCat(name, "@rank", *rank_local) : name;
  Json part = {{"name", name},
               {"rank_local", nullptr},
               {"seed", Crc32c(content)},
               {"file", file.name},
               {"begin", file_offset_bytes - file.header_bytes}};
  if (rank_local) part["rank_local"] = *rank_local;
  return part;
}

Json Expected(const Fragment& fragment) {
  Json parts = Json::array();
  for (const StoredTensor& tensor : fragment.tensors) {
    for (const StoredChunk& chunk : tensor.chunks) {
      Json part =
          Part(tensor.name, tensor.rank_local, fragment.files[chunk.file], chunk.file_offset_bytes);
      part.update({{"dtype", std::string(Info(tensor.dtype).name)},
                   {"shape", tensor.shape},
                   {"offsets", chunk.box.offsets},
                   {"sizes", chunk.box.sizes}});
      parts.push_back(part);
    }
  }
  for (const StoredItem& item : fragment.items) {
    if (item.bytes <= kInlineItemBytesMax) continue;
    Json part = Part(item.name, item.rank_local, fragment.files[item.file], item.file_offset_bytes);
    const std::vector<uint64_t> shape = {item.bytes};
    part.update({{"dtype", "uint8"},
                 {"shape", shape},
                 {"offsets", std::vector<uint64_t>{0}},
                 {"sizes", shape}});
    parts.push_back(part);
  }
  return parts;
}

bool Write(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  if (!file) std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return file.good();
}

int Main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_sample FOLDER\n");
    return 2;
  }
  const SampleFiles sample = WriteSample(Plans(), {"node-a", "node-a", "node-a", "node-a"});
  CKPT_CHECK(sample.fragments.size() == 1, "all ranks are on one node");
  for (const auto& [name, bytes] : sample.bytes_by_name) {
    if (!Write(absl::StrCat(argv[1], "/", name), bytes)) return 1;
  }
  const Json expected = Expected(sample.fragments[0].fragment);
  return Write(absl::StrCat(argv[1], "/expected.json"), expected.dump(1)) ? 0 : 1;
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) { return ckptd::Main(argc, argv); }
