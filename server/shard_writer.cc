#include "server/shard_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "storage/format/paths.h"
#include "storage/format/shard_header.h"

namespace ckptd {
namespace {

// Large enough for the disk's rate, small enough to overlap.
constexpr uint64_t kTransferBytes = 4 * kMiB;

// More blocks wait here than in the disk's queue: what waits here is dropped when the attempt ends.
constexpr uint64_t kStartedBytesMax = 96 * kMiB;

}  // namespace

// The transfers of one block.
struct ShardWriter::Transfers {
  std::shared_ptr<ShardWriter> writer;
  Block block;
  std::atomic<int> left = 1;  // One more than transfers, until all are started.
  std::mutex mutex;           // Guards status.
  absl::Status status;
};

ShardWriter::ShardWriter(ControlLoop& loop, Root& root, Options options, Callbacks callbacks)
    : loop_(loop), root_(root), options_(std::move(options)), callbacks_(std::move(callbacks)) {}

std::string ShardWriter::Path(uint32_t section) const {
  return Join(options_.attempt_dir, ShardFile(options_.rank, options_.world_size, section));
}

void ShardWriter::Start() {
  Begin();
  root_.writers().Post([self = shared_from_this()] {
    self->loop_.Post([self, opened = std::make_shared<Opened>(self->Open())] {
      self->opened_ = true;
      self->shards_ = std::move(opened->shards);
      self->files_ = std::move(opened->files);
      if (!opened->status.ok()) self->Fail(opened->status);
      self->StartWaiting();
      if (self->finishing_ && !self->stopped_) self->Finish();
      self->End();
    });
  });
}

ShardWriter::Opened ShardWriter::Open() const {
  Opened opened;
  if (options_.on_point && !options_.layout->sections.empty()) options_.on_point("first-write");
  for (uint32_t section = 0; section < options_.layout->sections.size(); ++section) {
    auto header = BuildShardHeader(*options_.plan, *options_.layout, section, options_.rank);
    if (!header.ok()) {
      opened.status = WithContext(header.status(), absl::StrCat("rank ", options_.rank));
      return opened;
    }
    uint64_t bytes = header->size() + options_.layout->sections[section].bytes;
    auto file = CreateShard(Path(section), bytes, *header);
    if (!file.ok()) {
      opened.status = file.status();
      return opened;
    }
    opened.shards.push_back(
        {ShardFile(options_.rank, options_.world_size, section), header->size(), Crc32c(*header)});
    opened.files.push_back(*std::move(file));
  }
  return opened;
}

absl::StatusOr<std::unique_ptr<File>> ShardWriter::CreateShard(const std::string& path,
                                                               uint64_t bytes,
                                                               const std::string& header) const {
  auto file = root_.disk().Create(path, options_.file_mode);
  if (!file.ok() && absl::IsAlreadyExists(file.status()) && options_.replace_leftovers) {
    // A new file, not the old one again: whoever still had that open writes into nothing.
    RETURN_IF_ERROR(root_.disk().Unlink(path));
    file = root_.disk().Create(path, options_.file_mode);
  }
  if (!file.ok()) return file.status();
  // Direct writes that make a file longer wait for each other. The last one's padding is counted.
  RETURN_IF_ERROR((*file)->Allocate(RoundUp(bytes, kSectionAlignment)));
  RETURN_IF_ERROR(WriteAll(**file, 0, std::as_bytes(std::span(header))));
  return file;
}

void ShardWriter::Write(uint32_t image_block, uint32_t arena_block,
                        std::vector<uint32_t> unit_crc32c, bool taken_back) {
  if (stopped_) return;
  waiting_.push_back(Block{image_block, arena_block, std::move(unit_crc32c), taken_back});
  StartWaiting();
}

void ShardWriter::StartWaiting() {
  if (!opened_ || waiting_.empty()) return;
  uint64_t started_max = std::max<uint64_t>(kStartedBytesMax / options_.arena->block_bytes(), 1);
  while (!stopped_ && !waiting_.empty() && started_ < started_max) {
    Block block = std::move(waiting_.front());
    waiting_.pop_front();
    StartTransfers(std::move(block));
  }
}

void ShardWriter::StartTransfers(Block block) {
  Begin();
  ++started_;
  auto transfers = std::make_shared<Transfers>();
  transfers->writer = shared_from_this();
  transfers->block = std::move(block);
  uint64_t block_bytes = options_.arena->block_bytes();
  uint64_t block_begin = transfers->block.image_block * block_bytes;
  std::span<std::byte> memory = options_.arena->Block(transfers->block.arena_block);
  for (uint32_t i = 0; i < options_.layout->sections.size(); ++i) {
    const Section& section = options_.layout->sections[i];
    uint64_t begin = std::max(section.image_offset_bytes, block_begin);
    // Up to the next multiple of 4096, for direct I/O: the gap belongs to no section, and Finish()
    // cuts the last one's off.
    uint64_t end = std::min(RoundUp(section.image_offset_bytes + section.bytes, kSectionAlignment),
                            block_begin + block_bytes);
    for (; begin < end; begin += kTransferBytes) {
      uint64_t bytes = std::min(end - begin, kTransferBytes);
      ++transfers->left;
      Transfer(transfers, files_[i].get(),
               shards_[i].header_bytes + (begin - section.image_offset_bytes),
               memory.subspan(begin - block_begin, bytes));
    }
  }
  if (--transfers->left == 0) Reaped(std::move(transfers));
}

void ShardWriter::Transfer(std::shared_ptr<Transfers> transfers, File* file, uint64_t offset,
                           std::span<const std::byte> data) {
  file->Write(offset, data, [transfers, file, offset, data](absl::StatusOr<size_t> count) mutable {
    if (count.ok() && *count < data.size()) {
      if (*count > 0)
        return Transfer(std::move(transfers), file, offset + *count, data.subspan(*count));
      count = absl::InternalError(absl::StrCat("a write of ", data.size(), " bytes wrote none"));
    }
    if (!count.ok()) {
      std::lock_guard lock(transfers->mutex);
      if (transfers->status.ok()) transfers->status = count.status();
    } else {
      transfers->writer->loop_.Post([writer = transfers->writer, bytes = data.size()] {
        if (!writer->stopped_) writer->callbacks_.progress(bytes);
      });
    }
    if (--transfers->left == 0) {
      ShardWriter* writer = transfers->writer.get();
      writer->Reaped(std::move(transfers));
    }
  });
}

void ShardWriter::Reaped(std::shared_ptr<Transfers> transfers) {
  root_.writers().Post([this, transfers = std::move(transfers)] {
    absl::Status status;
    {
      std::lock_guard lock(transfers->mutex);
      status = transfers->status;
    }
    if (status.ok()) status = Recheck(transfers->block);
    loop_.Post([transfers, status = std::move(status)] {
      ShardWriter& writer = *transfers->writer;
      --writer.started_;
      if (status.ok() && !writer.stopped_) {
        writer.callbacks_.written(transfers->block.image_block, transfers->block.arena_block);
      } else if (!status.ok()) {
        writer.Fail(status);
      }
      writer.StartWaiting();
      writer.End();
    });
  });
}

absl::Status ShardWriter::Recheck(const Block& block) const {
  bool chosen = options_.recheck_every != 0 && block.image_block % options_.recheck_every == 0;
  if (!chosen && !block.taken_back) return absl::OkStatus();
  uint64_t begin = block.image_block * options_.arena->block_bytes();
  uint64_t end = std::min(begin + options_.arena->block_bytes(), options_.layout->image_bytes);
  std::span<std::byte> memory = options_.arena->Block(block.arena_block);
  size_t index = 0;
  for (const Unit& unit : UnitsOf(*options_.layout, begin, end)) {
    uint32_t crc = Crc32c(memory.subspan(unit.image_offset_bytes - begin, unit.bytes));
    if (crc != block.unit_crc32c[index++]) {
      return absl::DataLossError(absl::StrCat(
          "rank ", options_.rank, " changed a sealed block: image block ", block.image_block,
          ", bytes ", unit.image_offset_bytes, " to ", unit.image_offset_bytes + unit.bytes));
    }
  }
  return absl::OkStatus();
}

void ShardWriter::Finish() {
  if (!opened_) {  // An image without bytes needs its files all the same.
    finishing_ = true;
    return;
  }
  Begin();
  root_.writers().Post([self = shared_from_this()] {
    absl::Status status;
    for (size_t i = 0; i < self->files_.size() && status.ok(); ++i) {
      status = self->files_[i]->Truncate(self->shards_[i].header_bytes +
                                         self->options_.layout->sections[i].bytes);
    }
    self->loop_.Post([self, status = std::move(status)] {
      if (!status.ok()) self->Fail(status);
      self->End();
      if (!self->stopped_) self->callbacks_.finished();  // Last: it may take the files.
    });
  });
}

void ShardWriter::Stop() {
  stopped_ = true;
  waiting_.clear();
}

void ShardWriter::Fail(absl::Status status) {
  if (stopped_) return;
  Stop();
  callbacks_.failed(std::move(status));
}

void ShardWriter::End() {
  CKPT_CHECK(in_flight_ > 0, "what ends had begun");
  if (--in_flight_ == 0) callbacks_.idle();
}

std::vector<std::pair<std::string, std::unique_ptr<File>>> ShardWriter::TakeFiles() {
  CKPT_CHECK(in_flight_ == 0, "files are handed on when nothing is in flight");
  std::vector<std::pair<std::string, std::unique_ptr<File>>> result;
  for (uint32_t section = 0; section < files_.size(); ++section) {
    result.emplace_back(Path(section), std::move(files_[section]));
  }
  files_.clear();
  return result;
}

}  // namespace ckptd
