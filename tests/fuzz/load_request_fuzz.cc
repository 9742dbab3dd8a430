// The client's side of a load, planned against a stored checkpoint. The input is a sequence of
// LoadRequests.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/ckptd/v1/checkpoint.pb.h"
#include "server/load_plan.h"
#include "server/rpc/requests.h"
#include "storage/base/check.h"
#include "storage/plan/image_layout.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/properties.h"
#include "tests/fuzz/stored.h"

namespace ckptd {
namespace {

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr uint64_t kReadBytesMax = 2 * kUnitBytes;
constexpr uint32_t kRank = 0;  // That loads.

void CheckReads(const LoadPlan& plan) {
  uint64_t sum = 0;
  for (size_t i = 0; i < plan.reads.size(); ++i) {
    const LoadRead& read = plan.reads[i];
    CKPT_CHECK(read.file < plan.files.size(), "a read is of a file");
    const StoredFile& file = plan.files[read.file];
    CKPT_CHECK(read.bytes > 0 && read.bytes <= kReadBytesMax &&
                   read.file_offset_bytes >= file.header_bytes &&
                   read.file_offset_bytes + read.bytes <= file.bytes,
               "a read is inside the data");
    CKPT_CHECK(read.unit_bytes.size() == read.unit_crc32c.size(), "every unit is checked");
    uint64_t units = 0;
    for (uint64_t bytes : read.unit_bytes) units += bytes;
    CKPT_CHECK(units == read.bytes, "a read is of whole units");
    if (i > 0 && plan.reads[i - 1].file == read.file) {
      CKPT_CHECK(
          plan.reads[i - 1].file_offset_bytes + plan.reads[i - 1].bytes <= read.file_offset_bytes,
          "nothing is read twice");
    }
    sum += read.bytes;
  }
  CKPT_CHECK(sum == plan.read_bytes, "the bytes to read are counted");
}

// A piece is a chunk of the tensor that was asked for, as it is stored.
bool IsStored(const LoadPiece& piece, const Want& want) {
  const Fragment& fragment = StoredFragments()[0];
  for (const StoredTensor& tensor : fragment.tensors) {
    if (tensor.name != want.name || tensor.rank_local.has_value() != want.rank_local) continue;
    if (want.rank_local && *tensor.rank_local != kRank) continue;
    if (tensor.dtype != want.dtype || tensor.shape != want.shape) return false;
    return std::any_of(tensor.chunks.begin(), tensor.chunks.end(), [&](const StoredChunk& chunk) {
      return chunk.box == piece.stored && chunk.file == piece.file &&
             chunk.file_offset_bytes == piece.file_offset_bytes;
    });
  }
  return false;
}

void CheckPieces(const LoadPlan& plan, const std::vector<Want>& wants) {
  for (const LoadPiece& piece : plan.pieces) {
    CKPT_CHECK(piece.want < wants.size() && piece.box < wants[piece.want].boxes.size(),
               "a piece is of a wish");
    const Want& want = wants[piece.want];
    const Box& box = want.boxes[piece.box];
    CKPT_CHECK(IsStored(piece, want), "a piece is what is stored");
    CKPT_CHECK(Intersect(piece.stored, box) == box, "the stored chunk holds the box");
    // The first and the last byte of what the client copies are read.
    const uint64_t element_bytes = Info(want.dtype).size_bytes;
    ForEachRun(piece.stored, box, element_bytes, [&](uint64_t at, uint64_t, uint64_t bytes) {
      for (uint64_t byte :
           {piece.file_offset_bytes + at, piece.file_offset_bytes + at + bytes - 1}) {
        const bool read = std::any_of(plan.reads.begin(), plan.reads.end(), [&](const LoadRead& r) {
          return r.file == piece.file && r.file_offset_bytes <= byte &&
                 byte < r.file_offset_bytes + r.bytes;
        });
        CKPT_CHECK(read, "every byte of a wish is read");
      }
    });
  }
}

void CheckLoad(const v1::LoadBegin& begin, const std::vector<Want>& wants) {
  const LoadRequest request = ParseLoadBegin(begin);
  CKPT_CHECK(request.wait >= absl::ZeroDuration() && request.wait < absl::InfiniteDuration(),
             "a load waits no longer than for ever");
  for (const Want& want : wants) {
    CKPT_CHECK(CheckedBytes(want.shape, Info(want.dtype).size_bytes).ok(), "a wish has a size");
  }
  const absl::StatusOr<LoadPlan> plan =
      PlanLoad(StoredFragments(), wants, kRank, request.options, kReadBytesMax);
  CheckAnswer(plan.status(),
              {kInvalid, absl::StatusCode::kNotFound, absl::StatusCode::kFailedPrecondition});
  if (!plan.ok()) return;
  CheckReads(*plan);
  CheckPieces(*plan, wants);
  CKPT_CHECK(request.options.partial || plan->missing.empty(), "nothing is missing in silence");
  CKPT_CHECK(!request.options.strict || plan->extra.empty(), "nothing is left over in silence");
}

void Run(const uint8_t* data, size_t size) {
  StoredFragments();  // Made once, not by the input.
  const MemoryBound bound(size, 1000, kProtobufBytes);
  Input input(data, size);
  v1::LoadBegin begin;
  std::vector<Want> wants;
  PlanSize wants_size;
  while (!input.empty()) {
    v1::LoadRequest request;
    if (!Input::Parse(input.Message(), request)) return;
    if (request.has_begin()) begin = request.begin();
    if (!request.has_wants()) continue;
    const absl::Status appended = AppendWants(request.wants(), wants, wants_size);
    CheckAnswer(appended, {kInvalid});
    if (!appended.ok()) return;
    if (request.wants().last()) return CheckLoad(begin, wants);
  }
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run(data, size);
  return 0;
}
