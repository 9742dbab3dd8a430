#include "storage/catalog/check_shard.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/format/paths.h"
#include "storage/format/shard_header.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

constexpr uint64_t kPieceBytesMax = 4 * kUnitBytes;
constexpr size_t kPiecesInFlight = 4;
constexpr size_t kNamesPerErrorMax = 10;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;

Buffer AllocateAligned(uint64_t bytes) {
  void* memory = std::aligned_alloc(Disk::kDirectAlignment, bytes);
  CKPT_CHECK(memory != nullptr, "a few MiB can be had");
  return Buffer(static_cast<std::byte*>(memory));
}

// A read in flight: some whole units of the data section.
struct Piece {
  size_t first_unit = 0;
  size_t units = 0;
  uint64_t offset_bytes = 0;  // In the file.
  uint64_t bytes = 0;
  Buffer buffer;
  bool done = false;
  absl::StatusOr<size_t> result = size_t{0};
};

// A stretch of the file and the tensor or item that lies there.
struct Stretch {
  uint64_t begin_bytes = 0;
  uint64_t end_bytes = 0;
  const std::string* name = nullptr;
  const StoredChunk* chunk = nullptr;  // Null for an item.
};

class ShardCheck {
 public:
  ShardCheck(Disk& disk, absl::string_view folder, const Fragment& fragment, size_t index,
             const std::function<bool(uint64_t)>& advance, std::vector<VerifyError>& errors)
      : disk_(disk),
        path_(Join(folder, fragment.files[index].name)),
        file_info_(fragment.files[index]),
        advance_(advance),
        errors_(errors) {
    CollectStretches(fragment, index);
  }

  void Run() {
    absl::StatusOr<FileInfo> info = disk_.Stat(path_);
    if (!info.ok()) return Add(0, 0, info.status().message());
    if (info->kind != FileKind::kFile || info->size_bytes != file_info_.bytes) {
      // What is missing, or too much.
      const auto [less, more] = std::minmax(info->size_bytes, file_info_.bytes);
      return Add(less, more - less,
                 absl::StrCat("it has ", info->size_bytes, " bytes instead of ", file_info_.bytes));
    }
    absl::StatusOr<std::unique_ptr<File>> file = disk_.OpenForRead(path_);
    if (!file.ok()) return Add(0, 0, file.status().message());
    if (!CheckHeader(**file)) return;
    CheckUnits(**file);
  }

 private:
  void CollectStretches(const Fragment& fragment, size_t index) {
    for (const StoredTensor& tensor : fragment.tensors) {
      for (const StoredChunk& chunk : tensor.chunks) {
        if (chunk.file != index || chunk.bytes == 0) continue;
        stretches_.push_back(
            {chunk.file_offset_bytes, chunk.file_offset_bytes + chunk.bytes, &tensor.name, &chunk});
      }
    }
    for (const StoredItem& item : fragment.items) {
      if (item.bytes <= kInlineItemBytesMax || item.file != index) continue;
      stretches_.push_back(
          {item.file_offset_bytes, item.file_offset_bytes + item.bytes, &item.name, nullptr});
    }
    std::sort(stretches_.begin(), stretches_.end(),
              [](const Stretch& a, const Stretch& b) { return a.begin_bytes < b.begin_bytes; });
  }

  std::string NamesIn(uint64_t offset, uint64_t bytes) const {
    std::vector<std::string> names;
    for (const Stretch& stretch : stretches_) {
      if (stretch.end_bytes <= offset) continue;
      if (stretch.begin_bytes >= offset + bytes) break;
      if (names.size() == kNamesPerErrorMax) {
        names.push_back("…");
        break;
      }
      names.push_back(*stretch.name);
    }
    return absl::StrJoin(names, ", ");
  }

  void Add(uint64_t offset, uint64_t bytes, absl::string_view message) {
    errors_.push_back({.file = file_info_.name,
                       .tensor = NamesIn(offset, bytes),
                       .offset_bytes = offset,
                       .bytes = bytes,
                       .message = std::string(message)});
  }

  // False if the check ends here.
  bool CheckHeader(File& file) {
    std::string header(file_info_.header_bytes, '\0');
    absl::Status read = ReadAll(file, 0, std::as_writable_bytes(std::span(header)));
    if (!read.ok()) {
      Add(0, header.size(), read.message());
      return false;
    }
    if (Crc32c(header) != file_info_.header_crc32c) {
      Add(0, header.size(), "the checksum of the header differs");
    } else if (absl::StatusOr<ShardHeader> parsed = ParseShardHeader(header, file_info_.bytes);
               !parsed.ok()) {
      Add(0, header.size(), parsed.status().message());
    } else {
      CompareHeader(*parsed);
    }
    return advance_(header.size());
  }

  // Every chunk of the fragment is an entry of the header; the header may have more.
  void CompareHeader(const ShardHeader& header) {
    if (header.header_bytes != file_info_.header_bytes) {
      return Add(0, header.header_bytes, "the data begins elsewhere than the fragment says");
    }
    auto entry = header.entries.begin();
    for (const Stretch& stretch : stretches_) {
      uint64_t begin = stretch.begin_bytes - header.header_bytes;
      uint64_t end = stretch.end_bytes - header.header_bytes;
      while (entry != header.entries.end() &&
             (entry->begin_bytes < begin || entry->end_bytes < end)) {
        ++entry;
      }
      bool there =
          entry != header.entries.end() && entry->begin_bytes == begin && entry->end_bytes == end;
      if (!there || !IsSameBox(stretch, *entry)) {
        Add(stretch.begin_bytes, end - begin, "the header has another entry here");
      }
    }
  }

  // A type that the header cannot name has one more dimension there.
  static bool IsSameBox(const Stretch& stretch, const HeaderEntry& entry) {
    if (stretch.chunk == nullptr) return entry.shape.size() == 1;
    const Box& box = stretch.chunk->box;
    if (entry.shape.size() < box.sizes.size() || entry.saved_offsets.size() < box.sizes.size()) {
      return false;
    }
    return std::equal(box.sizes.begin(), box.sizes.end(), entry.shape.begin()) &&
           std::equal(box.offsets.begin(), box.offsets.end(), entry.saved_offsets.begin());
  }

  void CheckUnits(File& file) {
    sizes_ = UnitSizes(file_info_.image_offset_bytes, file_info_.bytes - file_info_.header_bytes);
    if (sizes_.size() != file_info_.unit_crc32c.size()) {
      return Add(file_info_.header_bytes, 0, "the fragment has another number of checksums");
    }
    next_offset_ = file_info_.header_bytes;
    size_t in_flight = 0;
    while (in_flight < kPiecesInFlight && Start(file, pieces_[in_flight])) ++in_flight;
    bool go_on = true;
    for (size_t i = 0; in_flight > 0; i = (i + 1) % kPiecesInFlight) {
      Piece& piece = pieces_[i];
      Wait(piece);
      --in_flight;
      if (!go_on) continue;  // The reads that were started end before the file is closed.
      FinishRead(file, piece);
      Compare(piece);
      go_on = advance_(piece.bytes);
      if (go_on && Start(file, piece)) ++in_flight;
    }
  }

  // Starts the read of the next units; false if there are no more.
  bool Start(File& file, Piece& piece) {
    if (next_unit_ == sizes_.size()) return false;
    piece.first_unit = next_unit_;
    piece.units = 0;
    piece.offset_bytes = next_offset_;
    piece.bytes = 0;
    while (next_unit_ < sizes_.size() && piece.bytes + sizes_[next_unit_] <= kPieceBytesMax) {
      piece.bytes += sizes_[next_unit_++];
      ++piece.units;
    }
    next_offset_ += piece.bytes;
    if (piece.buffer == nullptr) piece.buffer = AllocateAligned(kPieceBytesMax);
    piece.done = false;
    file.Read(piece.offset_bytes, std::span(piece.buffer.get(), piece.bytes),
              [this, &piece](absl::StatusOr<size_t> result) {
                std::lock_guard lock(mutex_);
                piece.result = std::move(result);
                piece.done = true;
                done_.notify_one();
              });
    return true;
  }

  void Wait(Piece& piece) {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return piece.done; });
  }

  // What a short read has left out.
  static void FinishRead(File& file, Piece& piece) {
    if (!piece.result.ok() || *piece.result == piece.bytes) return;
    uint64_t read = *piece.result;
    absl::Status rest = ReadAll(file, piece.offset_bytes + read,
                                std::span(piece.buffer.get() + read, piece.bytes - read));
    if (!rest.ok()) piece.result = rest;
  }

  void Compare(const Piece& piece) {
    if (!piece.result.ok()) {
      return Add(piece.offset_bytes, piece.bytes, piece.result.status().message());
    }
    uint64_t done = 0;
    for (size_t unit = piece.first_unit; unit < piece.first_unit + piece.units; ++unit) {
      uint32_t crc = Crc32c(std::span(piece.buffer.get() + done, sizes_[unit]));
      if (crc != file_info_.unit_crc32c[unit]) {
        Add(piece.offset_bytes + done, sizes_[unit], "the checksum differs");
      }
      done += sizes_[unit];
    }
  }

  Disk& disk_;
  const std::string path_;
  const StoredFile& file_info_;
  const std::function<bool(uint64_t)>& advance_;
  std::vector<VerifyError>& errors_;
  std::vector<Stretch> stretches_;  // By offset.

  std::vector<uint64_t> sizes_;  // Of the units.
  size_t next_unit_ = 0;
  uint64_t next_offset_ = 0;

  std::mutex mutex_;  // Guards `done` and `result` of the pieces.
  std::condition_variable done_;
  std::array<Piece, kPiecesInFlight> pieces_;
};

}  // namespace

void CheckShard(Disk& disk, absl::string_view folder, const Fragment& fragment, size_t index,
                const std::function<bool(uint64_t bytes)>& advance,
                std::vector<VerifyError>& errors) {
  ShardCheck(disk, folder, fragment, index, advance, errors).Run();
}

}  // namespace ckptd
