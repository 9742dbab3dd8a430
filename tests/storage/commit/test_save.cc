#include "tests/storage/commit/test_save.h"

#include <memory>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/format/paths.h"
#include "storage/format/shard_header.h"
#include "storage/plan/image_layout.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {
namespace {

RankPlan MakePlan(uint64_t tensor_bytes) {
  RankPlan plan;
  TensorEntry& tensor = plan.tensors.emplace_back();
  tensor.name = "w";
  tensor.dtype = DType::kUInt8;
  tensor.shape = {tensor_bytes};
  tensor.rank_local = true;
  tensor.chunks = {WholeBox(tensor.shape)};
  return plan;
}

std::string MakeData(const AttemptRecord& record, uint32_t rank, uint64_t bytes) {
  std::string data(bytes, '\0');
  uint64_t seed = record.attempt.sequence * 1000003 + record.attempt.random * 31 + rank * 7 + 1;
  for (char& c : data) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    c = static_cast<char>('a' + (seed >> 33) % 26);
  }
  return data;
}

void AddRank(const AttemptRecord& record, uint32_t rank, uint64_t tensor_bytes, TestNode& node) {
  RankPlan plan = MakePlan(tensor_bytes);
  std::vector<uint32_t> ordinals(OrdinalCount(plan));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  ImageLayout layout = LayOutImage(plan, ordinals);
  absl::StatusOr<std::string> header = BuildShardHeader(plan, layout, 0, rank);
  CKPT_CHECK(header.ok(), "a small header can be built");
  std::string data = MakeData(record, rank, tensor_bytes);
  std::string name = ShardFile(rank, record.world_size, 0);

  StoredFile file;
  file.name = name;
  file.rank = rank;
  file.bytes = header->size() + data.size();
  file.header_bytes = header->size();
  file.header_crc32c = Crc32c(*header);
  size_t done = 0;
  for (uint64_t unit : UnitSizes(0, data.size())) {
    file.unit_crc32c.push_back(Crc32c(absl::string_view(data).substr(done, unit)));
    done += unit;
  }
  StoredTensor tensor;
  tensor.name = "w";
  tensor.dtype = DType::kUInt8;
  tensor.shape = {tensor_bytes};
  tensor.rank_local = rank;
  tensor.chunks.push_back({.box = WholeBox(tensor.shape),
                           .file = static_cast<uint32_t>(node.fragment.files.size()),
                           .file_offset_bytes = header->size(),
                           .bytes = data.size()});
  StoredItem item;
  item.name = "lr";
  item.rank_local = rank;
  item.value = "0.1";
  item.bytes = item.value.size();
  item.crc32c = Crc32c(item.value);

  node.shards.push_back({name, absl::StrCat(*header, data)});
  node.fragment.files.push_back(std::move(file));
  node.fragment.tensors.push_back(std::move(tensor));
  node.fragment.items.push_back(std::move(item));
}

}  // namespace

TestNode MakeTestNode(const AttemptRecord& record, absl::string_view node_name,
                      const std::vector<uint32_t>& ranks, uint64_t tensor_bytes) {
  TestNode node;
  node.fragment.job = record.job;
  node.fragment.checkpoint_id = record.checkpoint_id;
  node.fragment.attempt = record.attempt;
  node.fragment.node = std::string(node_name);
  node.fragment.ranks = ranks;
  for (uint32_t rank : ranks) AddRank(record, rank, tensor_bytes, node);
  return node;
}

AttemptRecord MakeTestRecord(absl::string_view checkpoint_id, uint64_t sequence,
                             uint32_t world_size) {
  AttemptRecord record;
  record.job = "job";
  record.checkpoint_id = std::string(checkpoint_id);
  record.step = static_cast<int64_t>(sequence) * 10;
  record.attempt = {.sequence = sequence, .random = 0xc0ffee};
  record.incarnation = "one";
  record.world_size = world_size;
  record.coordinator_node = "a";
  return record;
}

void PlantTestCheckpoint(Disk& disk, const std::string& path, const AttemptRecord& record,
                         const TestNode& node) {
  auto write = [&](absl::string_view name, absl::string_view bytes) {
    absl::StatusOr<std::unique_ptr<File>> file = disk.Create(Join(path, name), 0666);
    CKPT_CHECK(file.ok(), "a file of a checkpoint can be planted");
    absl::Status written =
        WriteAll(**file, 0, std::as_bytes(std::span(bytes.data(), bytes.size())));
    CKPT_CHECK(written.ok(), "a file of a checkpoint can be written");
  };
  for (size_t end = path.find('/'); end != std::string::npos; end = path.find('/', end + 1)) {
    disk.MakeDir(path.substr(0, end), 0777).IgnoreError();
  }
  disk.MakeDir(path, 0777).IgnoreError();
  std::string fragment = EncodeFragment(node.fragment);
  std::string fragment_name = FragmentFileName(node.fragment.node);
  absl::StatusOr<Manifest> manifest =
      MakeManifest(record, {{fragment_name, fragment, node.fragment}});
  CKPT_CHECK(manifest.ok(), "record and fragment belong together");
  write(kRecordFile, EncodeAttemptRecord(record));
  write(fragment_name, fragment);
  write(kManifestFile, EncodeManifest(*manifest));
  for (const TestNode::Shard& shard : node.shards) write(shard.name, shard.bytes);
}

}  // namespace ckptd
