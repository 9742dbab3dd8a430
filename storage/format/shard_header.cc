#include "storage/format/shard_header.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "storage/base/check.h"
#include "storage/base/status.h"
#include "storage/base/units.h"

namespace ckptd {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kDataAlignment = 4096;
constexpr size_t kNestingMax = 100;
constexpr char kMetadataKey[] = "__metadata__";
constexpr char kShardingKey[] = "DCP_SHARDING_INFO";

// --- Building.

void AppendJsonString(absl::string_view text, std::string* json) {
  json->push_back('"');
  for (char c : text) {
    if (c == '"' || c == '\\') {
      json->push_back('\\');
      json->push_back(c);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      absl::StrAppendFormat(json, "\\u%04x", static_cast<int>(c));
    } else {
      json->push_back(c);
    }
  }
  json->push_back('"');
}

// The keys of one rank's entries.
class Keys {
 public:
  Keys(const RankPlan& plan, uint32_t rank) : plan_(plan), rank_(rank) {}

  std::string KeyOf(const PlanPart& part) {
    const std::string& name = part.tensor != nullptr ? part.tensor->name : part.item->name;
    const bool rank_local =
        part.tensor != nullptr ? part.tensor->rank_local : part.item->rank_local;
    if (!rank_local && name != kMetadataKey) return name;
    std::string key = rank_local ? absl::StrCat(name, "@rank", rank_) : absl::StrCat(name, "@");
    while (IsName(key)) key.push_back('@');
    return key;
  }

 private:
  bool IsName(absl::string_view key) {
    if (names_.empty()) {
      for (const TensorEntry& tensor : plan_.tensors) names_.insert(tensor.name);
      for (const ItemEntry& item : plan_.items) names_.insert(item.name);
    }
    return names_.contains(key);
  }

  const RankPlan& plan_;
  const uint32_t rank_;
  absl::flat_hash_set<absl::string_view> names_;  // Filled when first asked for.
};

struct EntryText {
  std::string entries;   // ,"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}
  std::string sharding;  // ,"w":{"saved_offsets":[0]}
};

void AppendEntry(absl::string_view key, absl::string_view dtype, const Shape& shape,
                 const std::vector<uint64_t>& saved_offsets, uint64_t begin, uint64_t end,
                 EntryText* text) {
  std::string quoted = ",";
  AppendJsonString(key, &quoted);
  absl::StrAppend(&text->entries, quoted, ":{\"dtype\":\"", dtype, "\",\"shape\":[",
                  absl::StrJoin(shape, ","), "],\"data_offsets\":[", begin, ",", end, "]}");
  absl::StrAppend(&text->sharding, quoted, ":{\"saved_offsets\":[",
                  absl::StrJoin(saved_offsets, ","), "]}");
}

void AppendPart(const PlanPart& part, absl::string_view key, uint64_t begin, EntryText* text) {
  if (part.item != nullptr) {
    AppendEntry(key, "U8", {part.bytes}, {0}, begin, begin + part.bytes, text);
    return;
  }
  const DTypeInfo& info = Info(part.tensor->dtype);
  Box box = part.tensor->chunks[part.chunk_index];
  if (IsOfEmptyTensor(part)) box = WholeBox(part.tensor->shape);
  if (info.safetensors.empty()) {
    box.offsets.push_back(0);
    box.sizes.push_back(info.size_bytes);
  }
  AppendEntry(key, info.safetensors.empty() ? "U8" : info.safetensors, box.sizes, box.offsets,
              begin, begin + part.bytes, text);
}

// --- Parsing.

enum Field : uint8_t { kUnknown = 0, kDtype = 1, kShape = 2, kDataOffsets = 4, kSavedOffsets = 8 };

struct ParsedEntry {
  HeaderEntry entry;
  std::vector<uint64_t> data_offsets;
  uint8_t fields = 0;  // Those that were seen.
};

// Takes the events of one JSON text: an object of objects, in which some fields are known. That is
// the form of the header, and of DCP_SHARDING_INFO inside it.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  enum class Text { kHeader, kSharding };

  explicit HeaderEvents(Text text) : text_(text) {}

  absl::Status status() const { return status_; }
  std::vector<ParsedEntry>& entries() { return entries_; }
  const std::optional<std::string>& sharding() const { return sharding_; }

  bool null() override { return Scalar(); }
  bool boolean(bool) override { return Scalar(); }
  bool number_integer(number_integer_t) override { return Scalar(); }
  bool number_float(number_float_t, const string_t&) override { return Scalar(); }
  bool binary(binary_t&) override { return Scalar(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (places_.empty() || places_.back() != Place::kNumbers) return Scalar();
    std::vector<uint64_t>& numbers = *NumbersField();
    if (numbers.size() == kDimensionsMax) return Fail("has too many dimensions");
    numbers.push_back(value);
    return true;
  }

  bool string(string_t& value) override {
    if (places_.empty()) return Scalar();
    if (places_.back() == Place::kMetadata) {
      if (key_ == kShardingKey) sharding_ = std::move(value);
      return true;
    }
    if (places_.back() == Place::kEntry && KnownField() == kDtype) {
      entries_.back().entry.dtype = std::move(value);
      return true;
    }
    return Scalar();
  }

  bool start_object(size_t) override {
    if (places_.empty()) return Enter(Place::kTop);
    if (places_.back() == Place::kTop) {
      return Enter(in_metadata_ ? Place::kMetadata : Place::kEntry);
    }
    if (places_.back() == Place::kSkipped) return Enter(Place::kSkipped);
    if (places_.back() == Place::kEntry && KnownField() == kUnknown) return Enter(Place::kSkipped);
    return Scalar();
  }

  bool start_array(size_t) override {
    if (places_.empty()) return Scalar();
    if (places_.back() == Place::kSkipped) return Enter(Place::kSkipped);
    if (places_.back() != Place::kEntry) return Scalar();
    if (NumbersField() != nullptr) return Enter(Place::kNumbers);
    return KnownField() == kUnknown ? Enter(Place::kSkipped) : Scalar();
  }

  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }

  bool key(string_t& value) override {
    if (places_.back() == Place::kTop) {
      in_metadata_ = text_ == Text::kHeader && value == kMetadataKey;
      if (!in_metadata_) {
        entries_.emplace_back().entry.key = std::move(value);
        return true;
      }
      if (has_metadata_) return Fail("comes twice");
      has_metadata_ = true;
      return true;
    }
    key_ = std::move(value);
    if (places_.back() == Place::kMetadata && !metadata_keys_.insert(key_).second) {
      return Fail(absl::StrCat(QuoteName(key_), " comes twice"));
    }
    if (places_.back() != Place::kEntry) return true;
    if (entries_.back().fields & KnownField()) return Fail(absl::StrCat(key_, " comes twice"));
    entries_.back().fields |= KnownField();
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    status_ = absl::InvalidArgumentError(absl::StrCat("no JSON at byte ", position));
    return false;
  }

 private:
  enum class Place { kTop, kMetadata, kEntry, kNumbers, kSkipped };

  Field KnownField() const {
    if (text_ == Text::kSharding) return key_ == "saved_offsets" ? kSavedOffsets : kUnknown;
    if (key_ == "dtype") return kDtype;
    if (key_ == "shape") return kShape;
    return key_ == "data_offsets" ? kDataOffsets : kUnknown;
  }

  // Where numbers of the known field go; null if it takes none.
  std::vector<uint64_t>* NumbersField() {
    ParsedEntry& parsed = entries_.back();
    switch (KnownField()) {
      case kShape:
        return &parsed.entry.shape;
      case kDataOffsets:
        return &parsed.data_offsets;
      case kSavedOffsets:
        return &parsed.entry.saved_offsets;
      default:
        return nullptr;
    }
  }

  // A value that is none of those that have a meaning: fine where nobody looks.
  bool Scalar() {
    if (places_.empty()) return Fail("the text is not an object");
    switch (places_.back()) {
      case Place::kSkipped:
        return true;
      case Place::kEntry:
        return KnownField() == kUnknown || Fail(absl::StrCat(key_, " has the wrong type"));
      case Place::kMetadata:
        return Fail(absl::StrCat(QuoteName(key_), " is no text"));
      case Place::kNumbers:
        return Fail(absl::StrCat(key_, " holds more than natural numbers"));
      case Place::kTop:
        return Fail("is not an object");
    }
    return Fail("is not an object");
  }

  bool Fail(absl::string_view why) {
    const bool named = !places_.empty() && (in_metadata_ || !entries_.empty());
    status_ = absl::InvalidArgumentError(
        !named ? std::string(why)
               : absl::StrCat(
                     in_metadata_ ? QuoteName(kMetadataKey) : QuoteName(entries_.back().entry.key),
                     ": ", why));
    return false;
  }

  bool Enter(Place place) {
    if (places_.size() == kNestingMax) return Fail("is nested too deeply");
    places_.push_back(place);
    return true;
  }

  bool Leave() {
    places_.pop_back();
    return true;
  }

  const Text text_;
  std::vector<Place> places_;  // The objects and lists that are open.
  std::string key_;            // The last one below the top.
  bool in_metadata_ = false;
  bool has_metadata_ = false;
  std::set<std::string> metadata_keys_;
  std::optional<std::string> sharding_;
  std::vector<ParsedEntry> entries_;
  absl::Status status_;
};

absl::StatusOr<HeaderEvents> ParseJson(absl::string_view json, HeaderEvents::Text text) {
  // The parser would take NUL for the end, and skip a byte order mark; the reference refuses both.
  if (json.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("the text holds NUL");
  }
  if (!json.empty() && json.front() == '\xEF') {
    return absl::InvalidArgumentError("no JSON at byte 0");
  }
  HeaderEvents events(text);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &events)) return events.status();
  return events;
}

struct BitSize {
  absl::string_view dtype;
  uint64_t bits;
};

// All that the reference library reads, more than PyTorch's reader does.
constexpr std::array<BitSize, 22> kBitSizes = {{
    {"BOOL", 8}, {"F4", 4},          {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"I16", 16}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32}, {"U32", 32},        {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64}, {"U64", 64},
}};

absl::StatusOr<uint64_t> BytesOf(const HeaderEntry& entry) {
  const auto size = std::find_if(kBitSizes.begin(), kBitSizes.end(),
                                 [&](const BitSize& s) { return s.dtype == entry.dtype; });
  if (size == kBitSizes.end()) {
    return absl::InvalidArgumentError(absl::StrCat("unknown dtype ", QuoteName(entry.dtype)));
  }
  ASSIGN_OR_RETURN(const uint64_t bits, CheckedBytes(entry.shape, size->bits));
  if (bits % 8 != 0) return absl::InvalidArgumentError("the data ends inside a byte");
  return bits / 8;
}

absl::Status CheckEntry(ParsedEntry& parsed, uint64_t data_bytes) {
  HeaderEntry& entry = parsed.entry;
  if (parsed.fields != (kDtype | kShape | kDataOffsets)) {
    return absl::InvalidArgumentError("dtype, shape or data_offsets is missing");
  }
  if (parsed.data_offsets.size() != 2) {
    return absl::InvalidArgumentError("data_offsets are not two numbers");
  }
  entry.begin_bytes = parsed.data_offsets[0];
  entry.end_bytes = parsed.data_offsets[1];
  if (entry.begin_bytes > entry.end_bytes || entry.end_bytes > data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data_offsets [%u, %u] are not inside the %u bytes of data",
                        entry.begin_bytes, entry.end_bytes, data_bytes));
  }
  ASSIGN_OR_RETURN(const uint64_t bytes, BytesOf(entry));
  if (bytes == entry.end_bytes - entry.begin_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("data_offsets [%u, %u] hold %u bytes; %s of shape %s has %u",
                      entry.begin_bytes, entry.end_bytes, entry.end_bytes - entry.begin_bytes,
                      entry.dtype, ShapeString(entry.shape), bytes));
}

// Entries, sorted, must cover the data exactly.
absl::Status CheckCover(const std::vector<HeaderEntry>& entries, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const HeaderEntry& entry : entries) {
    if (entry.begin_bytes != end) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: begins at %u, where %u was expected: a hole or an overlap",
                          QuoteName(entry.key), entry.begin_bytes, end));
    }
    end = entry.end_bytes;
  }
  if (end == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("tensors end at %u, the data at %u", end, data_bytes));
}

absl::Status AddSavedOffsets(const std::string& sharding, std::vector<HeaderEntry>& entries) {
  absl::StatusOr<HeaderEvents> events = ParseJson(sharding, HeaderEvents::Text::kSharding);
  if (!events.ok()) return WithContext(events.status(), kShardingKey);
  absl::flat_hash_map<absl::string_view, std::vector<uint64_t>*> offsets;
  for (ParsedEntry& parsed : events->entries()) {
    if (!offsets.emplace(parsed.entry.key, &parsed.entry.saved_offsets).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(kShardingKey, ": ", QuoteName(parsed.entry.key), " comes twice"));
    }
  }
  for (HeaderEntry& entry : entries) {
    const auto found = offsets.find(entry.key);
    if (found == offsets.end()) continue;
    entry.saved_offsets = std::move(*found->second);
    entry.has_saved_offsets = true;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> BuildShardHeader(const RankPlan& plan, const ImageLayout& layout,
                                             uint32_t section, uint32_t rank) {
  CKPT_CHECK(section < layout.sections.size(), "the section is one of the layout");
  const std::vector<PlanPart> parts = Parts(plan);
  Keys keys(plan, rank);
  EntryText text;
  const Section& file = layout.sections[section];
  for (const PlacedPart& placed : file.parts) {
    const PlanPart& part = parts[placed.ordinal];
    AppendPart(part, keys.KeyOf(part), placed.offset_bytes, &text);
  }
  for (uint32_t ordinal : file.empty_tensors) {
    const PlanPart& part = parts[ordinal];
    AppendPart(part, keys.KeyOf(part), file.bytes, &text);
  }

  // Each entry comes after a comma, which the first of DCP_SHARDING_INFO has not.
  const std::string sharding = absl::StrCat(
      "{", text.sharding.empty() ? absl::string_view() : absl::string_view(text.sharding).substr(1),
      "}");
  std::string json =
      absl::StrCat("{\"", kMetadataKey, "\":{\"format\":\"pt\",\"DCP_VERSION\":", "\"1.0\",\"",
                   kShardingKey, "\":");
  AppendJsonString(sharding, &json);
  absl::StrAppend(&json, "}", text.entries, "}");

  const uint64_t header_bytes = RoundUp(kLengthBytes + json.size(), kDataAlignment);
  if (header_bytes - kLengthBytes > kHeaderBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the header of rank ", rank, "'s shard takes ", header_bytes - kLengthBytes,
                     " bytes, at most ", kHeaderBytesMax, ": too many tensors, or names too long"));
  }
  json.resize(header_bytes - kLengthBytes, ' ');
  std::string header;
  header.reserve(header_bytes);
  for (int shift = 0; shift < 64; shift += 8) {
    header.push_back(static_cast<char>(json.size() >> shift));
  }
  header += json;
  return header;
}

absl::StatusOr<ShardHeader> ParseShardHeader(absl::string_view prefix, uint64_t file_bytes) {
  ShardHeader header;
  ASSIGN_OR_RETURN(header.header_bytes, HeaderLength(prefix, file_bytes));
  if (prefix.size() < header.header_bytes) {
    return absl::InvalidArgumentError("the header is cut off");
  }
  const uint64_t data_bytes = file_bytes - header.header_bytes;
  ASSIGN_OR_RETURN(HeaderEvents events,
                   ParseJson(prefix.substr(kLengthBytes, header.header_bytes - kLengthBytes),
                             HeaderEvents::Text::kHeader));
  for (ParsedEntry& parsed : events.entries()) {
    absl::Status status = CheckEntry(parsed, data_bytes);
    if (!status.ok()) return WithContext(status, QuoteName(parsed.entry.key));
    header.entries.push_back(std::move(parsed.entry));
  }
  absl::flat_hash_set<absl::string_view> names;
  for (const HeaderEntry& entry : header.entries) {
    if (names.insert(entry.key).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(QuoteName(entry.key), ": comes twice"));
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const HeaderEntry& a, const HeaderEntry& b) {
                     return std::make_pair(a.begin_bytes, a.end_bytes) <
                            std::make_pair(b.begin_bytes, b.end_bytes);
                   });
  RETURN_IF_ERROR(CheckCover(header.entries, data_bytes));
  if (events.sharding()) RETURN_IF_ERROR(AddSavedOffsets(*events.sharding(), header.entries));
  return header;
}

absl::StatusOr<uint64_t> HeaderLength(absl::string_view first_8_bytes, uint64_t file_bytes) {
  if (first_8_bytes.size() < kLengthBytes || file_bytes < kLengthBytes) {
    return absl::InvalidArgumentError("the file is shorter than 8 bytes");
  }
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= uint64_t{static_cast<uint8_t>(first_8_bytes[i])} << (8 * i);
  }
  if (length > kHeaderBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", length, " bytes, at most ", kHeaderBytesMax));
  }
  if (length > file_bytes - kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", length, " bytes in a file of ", file_bytes));
  }
  return kLengthBytes + length;
}

}  // namespace ckptd
