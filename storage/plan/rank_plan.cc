#include "storage/plan/rank_plan.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "storage/base/check.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

constexpr size_t kQuotedBytesMax = 200;

// The length of the UTF-8 character that `text` starts with; 0 if it starts with none (RFC 3629).
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto in = [&](size_t i, int low, int high) { return byte(i) >= low && byte(i) <= high; };
  const auto tail = [&](size_t i) { return in(i, 0x80, 0xBF); };
  if (byte(0) < 0x80) return 1;
  if (in(0, 0xC2, 0xDF)) return tail(1) ? 2 : 0;
  if (in(0, 0xE0, 0xEF)) {
    const bool second = in(1, byte(0) == 0xE0 ? 0xA0 : 0x80, byte(0) == 0xED ? 0x9F : 0xBF);
    return second && tail(2) ? 3 : 0;
  }
  if (in(0, 0xF0, 0xF4)) {
    const bool second = in(1, byte(0) == 0xF0 ? 0x90 : 0x80, byte(0) == 0xF4 ? 0x8F : 0xBF);
    return second && tail(2) && tail(3) ? 4 : 0;
  }
  return 0;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

// 128 bits by FNV-1a. Texts and lists go in with their length, so that no two plans read alike.
class Signature {
 public:
  void Add(absl::string_view text) {
    Add(text.size());
    for (char c : text) Mix(static_cast<uint8_t>(c));
  }
  void Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) Mix(static_cast<uint8_t>(number >> shift));
  }
  void Add(const std::vector<uint64_t>& numbers) {
    Add(numbers.size());
    for (uint64_t number : numbers) Add(number);
  }
  std::string Hex() const {
    return absl::StrFormat("%016x%016x", static_cast<uint64_t>(hash_ >> 64),
                           static_cast<uint64_t>(hash_));
  }

 private:
  using Word = unsigned __int128;

  void Mix(uint8_t byte) { hash_ = (hash_ ^ byte) * kPrime; }

  static constexpr Word kPrime = (Word{1} << 88) + 0x13B;
  Word hash_ = (Word{0x6C62272E07BB0142} << 64) | 0x62B821756295C58D;
};

absl::Status ValidateTensor(const TensorEntry& tensor, uint64_t* rank_bytes) {
  if (!IsDType(static_cast<int>(tensor.dtype))) {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown dtype ", static_cast<int>(tensor.dtype)));
  }
  const uint64_t element_bytes = Info(tensor.dtype).size_bytes;
  RETURN_IF_ERROR(CheckedBytes(tensor.shape, element_bytes).status());
  for (const Box& chunk : tensor.chunks) {
    RETURN_IF_ERROR(CheckInside(chunk, tensor.shape));
    const uint64_t bytes = Elements(chunk.sizes) * element_bytes;
    if (bytes > kRankBytesMax - *rank_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("the rank's chunks exceed ", kRankBytesMax, " bytes"));
    }
    *rank_bytes += bytes;
  }
  if (tensor.content_crc32c &&
      !(tensor.chunks.size() == 1 && IsWhole(tensor.chunks[0], tensor.shape))) {
    return absl::InvalidArgumentError("a content checksum, but not one chunk that is the whole");
  }
  if (tensor.chunks.size() < 2 && !tensor.rank_local) return absl::OkStatus();
  const std::optional<TilingFault> fault = FindTilingFault(tensor.shape, tensor.chunks);
  if (fault && fault->overlap) {
    return absl::InvalidArgumentError(
        absl::StrCat("two chunks hold region ", ToString(fault->region)));
  }
  if (fault && tensor.rank_local) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank-local, but no chunk holds region ", ToString(fault->region)));
  }
  return absl::OkStatus();
}

absl::Status ValidateItem(const ItemEntry& item, uint64_t* rank_bytes) {
  const int kind = static_cast<int>(item.kind);
  if (kind < static_cast<int>(ItemKind::kJson) || kind > static_cast<int>(ItemKind::kBytes)) {
    return absl::InvalidArgumentError(absl::StrCat("unknown kind ", kind));
  }
  if (item.bytes > kItemBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an item of ", item.bytes, " bytes, at most ", kItemBytesMax));
  }
  const bool is_inline = item.bytes <= kInlineItemBytesMax;
  if (item.value.size() != (is_inline ? item.bytes : 0)) {
    return absl::InvalidArgumentError(absl::StrCat("an item of ", item.bytes, " bytes comes with ",
                                                   item.value.size(), " bytes of value"));
  }
  if (is_inline && Crc32c(item.value) != item.crc32c) {
    return absl::InvalidArgumentError("the value does not have its checksum");
  }
  if (is_inline) return absl::OkStatus();
  if (item.bytes > kRankBytesMax - *rank_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the rank's chunks exceed ", kRankBytesMax, " bytes"));
  }
  *rank_bytes += item.bytes;
  return absl::OkStatus();
}

}  // namespace

uint32_t OrdinalCount(const RankPlan& plan) {
  size_t count = plan.items.size();
  for (const TensorEntry& tensor : plan.tensors) count += tensor.chunks.size();
  return static_cast<uint32_t>(count);
}

std::vector<PlanPart> Parts(const RankPlan& plan) {
  std::vector<PlanPart> parts;
  parts.reserve(OrdinalCount(plan));
  for (const TensorEntry& tensor : plan.tensors) {
    for (const Box& chunk : tensor.chunks) {
      PlanPart& part = parts.emplace_back();
      part.tensor = &tensor;
      part.tensor_index = static_cast<uint32_t>(&tensor - plan.tensors.data());
      part.chunk_index = static_cast<uint32_t>(&chunk - tensor.chunks.data());
      part.bytes = Elements(chunk.sizes) * Info(tensor.dtype).size_bytes;
      part.staged = part.bytes > 0;
    }
  }
  for (const ItemEntry& item : plan.items) {
    PlanPart& part = parts.emplace_back();
    part.item = &item;
    part.item_index = static_cast<uint32_t>(&item - plan.items.data());
    part.bytes = item.bytes;
    part.staged = item.bytes > kInlineItemBytesMax;
  }
  return parts;
}

bool IsOfEmptyTensor(const PlanPart& part) {
  return part.tensor != nullptr && Elements(part.tensor->shape) == 0;
}

absl::Status CheckEntryName(absl::string_view name) {
  if (name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name of ", name.size(), " bytes, at most ", kNameBytesMax));
  }
  if (!IsUtf8(name)) return absl::InvalidArgumentError("a name that is not UTF-8");
  if (name.find('\0') == name.npos) return absl::OkStatus();
  return absl::InvalidArgumentError("a name that holds NUL");
}

std::string QuoteName(absl::string_view name) {
  size_t cut = std::min(name.size(), kQuotedBytesMax);
  if (cut < name.size()) {
    while (cut > kQuotedBytesMax - 3 && (static_cast<uint8_t>(name[cut]) & 0xC0) == 0x80) --cut;
  }
  const absl::string_view shown = name.substr(0, cut);
  const std::string text = IsUtf8(shown) ? absl::Utf8SafeCEscape(shown) : absl::CHexEscape(shown);
  if (cut == name.size()) return absl::StrCat("\"", text, "\"");
  return absl::StrCat("\"", text, "...\" (", name.size(), " bytes)");
}

absl::Status ValidateRankPlan(const RankPlan& plan) {
  size_t entries = plan.tensors.size() + plan.items.size();
  for (const TensorEntry& tensor : plan.tensors) entries += tensor.chunks.size();
  if (entries > kEntriesPerRankMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a plan of ", entries, " tensors, chunks and items, at most ", kEntriesPerRankMax));
  }
  absl::flat_hash_set<absl::string_view> names;
  auto check_name = [&names](absl::string_view name) {
    RETURN_IF_ERROR(CheckEntryName(name));
    if (names.insert(name).second) return absl::OkStatus();
    return absl::InvalidArgumentError("the name comes twice");
  };
  uint64_t rank_bytes = 0;
  for (const TensorEntry& tensor : plan.tensors) {
    absl::Status status = check_name(tensor.name);
    if (status.ok()) status = ValidateTensor(tensor, &rank_bytes);
    if (!status.ok()) return WithContext(status, absl::StrCat("tensor ", QuoteName(tensor.name)));
  }
  for (const ItemEntry& item : plan.items) {
    absl::Status status = check_name(item.name);
    if (status.ok()) status = ValidateItem(item, &rank_bytes);
    if (!status.ok()) return WithContext(status, absl::StrCat("item ", QuoteName(item.name)));
  }
  return absl::OkStatus();
}

std::string LayoutSignature(const RankPlan& plan) {
  Signature signature;
  signature.Add(plan.tensors.size());
  for (const TensorEntry& tensor : plan.tensors) {
    signature.Add(tensor.name);
    signature.Add(static_cast<uint64_t>(tensor.dtype));
    signature.Add(static_cast<uint64_t>(tensor.rank_local));
    signature.Add(tensor.shape);
    signature.Add(tensor.chunks.size());
    for (const Box& chunk : tensor.chunks) {
      signature.Add(chunk.offsets);
      signature.Add(chunk.sizes);
    }
  }
  signature.Add(plan.items.size());
  for (const ItemEntry& item : plan.items) {
    signature.Add(item.name);
    signature.Add(static_cast<uint64_t>(item.kind));
    signature.Add(static_cast<uint64_t>(item.rank_local));
    signature.Add(item.bytes > kInlineItemBytesMax ? item.bytes : 0);
  }
  return signature.Hex();
}

}  // namespace ckptd
