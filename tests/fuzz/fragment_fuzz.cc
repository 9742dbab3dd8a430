// fragment-<node>.pb, alone and as the only fragment of a manifest. The input is the file without
// its checksum.
#include <string>
#include <vector>

#include "storage/format/paths.h"
#include "storage/format/records.h"
#include "storage/plan/image_layout.h"
#include "tests/fuzz/record.h"

namespace ckptd {
namespace {

// Sums of hostile sizes do not fit into 64 bits.
using Wide = unsigned __int128;

bool InData(const Fragment& fragment, uint32_t file, uint64_t offset_bytes, uint64_t bytes) {
  return file < fragment.files.size() && offset_bytes >= fragment.files[file].header_bytes &&
         Wide{offset_bytes} + bytes <= fragment.files[file].bytes;
}

void CheckFragment(const Fragment& fragment) {
  for (const StoredFile& file : fragment.files) {
    CKPT_CHECK(IsShardFile(file.name) && file.name.find('/') == std::string::npos,
               "a shard is in the same folder");
    CKPT_CHECK(file.header_bytes > 0 && file.header_bytes <= file.bytes, "the header is inside");
    const auto units = UnitSizes(file.image_offset_bytes, file.bytes - file.header_bytes);
    CKPT_CHECK(units.size() == file.unit_crc32c.size(), "every unit has its checksum");
  }
  for (const StoredTensor& tensor : fragment.tensors) {
    CKPT_CHECK(CheckEntryName(tensor.name).ok(), "a name is a text");
    const uint64_t element_bytes = Info(tensor.dtype).size_bytes;
    CKPT_CHECK(CheckedBytes(tensor.shape, element_bytes).ok(), "a shape has a size");
    for (const StoredChunk& chunk : tensor.chunks) {
      CKPT_CHECK(chunk.box.sizes.size() == tensor.shape.size(), "a box has the dimensions");
      for (size_t i = 0; i < tensor.shape.size(); ++i) {
        CKPT_CHECK(Wide{chunk.box.offsets[i]} + chunk.box.sizes[i] <= tensor.shape[i],
                   "a box is inside its tensor");
      }
      CKPT_CHECK(chunk.bytes == Elements(chunk.box.sizes) * element_bytes, "a chunk has its size");
      CKPT_CHECK(InData(fragment, chunk.file, chunk.file_offset_bytes, chunk.bytes),
                 "a chunk is in the data of its file");
    }
  }
  for (const StoredItem& item : fragment.items) {
    CKPT_CHECK(CheckEntryName(item.name).ok(), "a name is a text");
    if (item.bytes <= kInlineItemBytesMax) {
      CKPT_CHECK(item.value.size() == item.bytes && Crc32c(item.value) == item.crc32c,
                 "a small item is what its checksum says");
    } else {
      CKPT_CHECK(item.bytes <= kItemBytesMax &&
                     InData(fragment, item.file, item.file_offset_bytes, item.bytes),
                 "a large item is in the data of its file");
    }
  }
}

void CheckManifest(const Fragment& fragment, absl::string_view file) {
  AttemptRecord record;
  record.job = fragment.job;
  record.checkpoint_id = fragment.checkpoint_id;
  record.attempt = fragment.attempt;
  record.world_size = static_cast<uint32_t>(fragment.ranks.size());
  const absl::StatusOr<Manifest> manifest =
      MakeManifest(record, {{FragmentFileName(fragment.node), std::string(file), fragment}});
  CheckAnswer(manifest.status(), {absl::StatusCode::kInvalidArgument});
  if (!manifest.ok()) return;
  for (const StoredTensor& tensor : fragment.tensors) {
    Wide stored = 0;
    for (const StoredChunk& chunk : tensor.chunks) stored += Elements(chunk.box.sizes);
    CKPT_CHECK(stored == Elements(tensor.shape), "every element is stored once");
  }
  CKPT_CHECK(manifest->files == fragment.files.size() &&
                 manifest->tensors == fragment.tensors.size() &&
                 manifest->items == fragment.items.size(),
             "a manifest counts what there is");
  if (manifest->world_size > 0) {
    CKPT_CHECK(CheckRecord(EncodeManifest(*manifest), DecodeManifest, EncodeManifest) == *manifest,
               "a manifest is read back");
  }
}

void Run(absl::string_view input) {
  const auto fragment = CheckRecordInput(input, DecodeFragment, EncodeFragment);
  if (!fragment) return;
  CheckFragment(*fragment);
  CheckManifest(*fragment, Sealed(input));
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
