// The header of a shard. The input is the number of bytes of data (4 bytes), then the file up to
// its data.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/base/check.h"
#include "storage/format/shard_header.h"
#include "storage/plan/rank_plan.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/properties.h"

namespace ckptd {
namespace {

constexpr uint64_t kLengthBytes = 8;

// Another text with the same meaning.
std::string Write(const ShardHeader& header) {
  nlohmann::json sharding = nlohmann::json::object();
  nlohmann::json json = nlohmann::json::object();
  for (const HeaderEntry& entry : header.entries) {
    json[entry.key] = {{"dtype", entry.dtype},
                       {"shape", entry.shape},
                       {"data_offsets", {entry.begin_bytes, entry.end_bytes}}};
    if (entry.has_saved_offsets) sharding[entry.key] = {{"saved_offsets", entry.saved_offsets}};
  }
  json["__metadata__"] = {{"DCP_SHARDING_INFO", sharding.dump()}};
  const std::string text = json.dump();
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file.push_back(static_cast<char>(text.size() >> shift));
  }
  return file + text;
}

bool Same(const HeaderEntry& a, const HeaderEntry& b) {
  return a.key == b.key && a.dtype == b.dtype && a.shape == b.shape &&
         a.begin_bytes == b.begin_bytes && a.end_bytes == b.end_bytes &&
         a.saved_offsets == b.saved_offsets && a.has_saved_offsets == b.has_saved_offsets;
}

std::map<std::string, HeaderEntry> ByKey(const ShardHeader& header) {
  std::map<std::string, HeaderEntry> entries;
  for (const HeaderEntry& entry : header.entries) entries[entry.key] = entry;
  CKPT_CHECK(entries.size() == header.entries.size(), "every key is there once");
  return entries;
}

void CheckHeader(const ShardHeader& header, uint64_t file_bytes) {
  uint64_t end = 0;
  for (const HeaderEntry& entry : header.entries) {
    CKPT_CHECK(entry.begin_bytes == end && entry.end_bytes >= end, "entries cover the data");
    end = entry.end_bytes;
    CKPT_CHECK(entry.shape.size() <= kDimensionsMax && entry.saved_offsets.size() <= kDimensionsMax,
               "dimensions are limited");
    CKPT_CHECK(CheckedBytes(entry.shape, 1).ok(), "a shape has a size");
    CKPT_CHECK(entry.has_saved_offsets || entry.saved_offsets.empty(), "offsets are known or not");
  }
  CKPT_CHECK(header.header_bytes + end == file_bytes, "entries end where the data does");

  const std::string written = Write(header);
  const auto again = ParseShardHeader(written, written.size() + end);
  CKPT_CHECK(again.ok(), "what was written is read");
  const auto before = ByKey(header), after = ByKey(*again);
  CKPT_CHECK(before.size() == after.size(), "no entry is lost");
  for (const auto& [key, entry] : before) {
    CKPT_CHECK(after.contains(key) && Same(entry, after.at(key)), "an entry is read back");
  }
}

void Run(const uint8_t* data, size_t size) {
  const MemoryBound bound(size);
  Input input(data, size);
  const uint64_t data_bytes = input.Number(4);
  const absl::string_view prefix = input.rest();
  const uint64_t file_bytes = prefix.size() + data_bytes;
  const absl::StatusOr<uint64_t> length = HeaderLength(prefix, file_bytes);
  CheckAnswer(length.status(), {absl::StatusCode::kInvalidArgument});
  if (length.ok()) {
    CKPT_CHECK(*length >= kLengthBytes && *length <= file_bytes, "the header is inside the file");
    CKPT_CHECK(*length <= kLengthBytes + kHeaderBytesMax, "the length is limited");
  }
  const absl::StatusOr<ShardHeader> header = ParseShardHeader(prefix, file_bytes);
  CheckAnswer(header.status(), {absl::StatusCode::kInvalidArgument});
  if (!header.ok()) return;
  CKPT_CHECK(length.ok() && header->header_bytes == *length, "one length");
  CheckHeader(*header, file_bytes);
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run(data, size);
  return 0;
}
