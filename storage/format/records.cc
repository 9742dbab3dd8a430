#include "storage/format/records.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "proto/ckptd/format/v1/format.pb.h"
#include "storage/base/crc32c.h"
#include "storage/base/status.h"
#include "storage/format/shard_header.h"
#include "storage/plan/image_layout.h"

namespace ckptd {
namespace {

namespace pb = ckptd::format::v1;

// The checksum: tag of field 15, fixed32, and four bytes, little-endian.
constexpr size_t kTrailerBytes = 5;
constexpr char kTrailerTag = (15 << 3) | 5;

template <typename Message>
std::string Seal(const Message& message) {
  std::string bytes = message.SerializeAsString();
  const uint32_t crc = Crc32c(bytes);
  bytes.push_back(kTrailerTag);
  for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(crc >> shift));
  return bytes;
}

// The message in a sealed file, of a version that we know.
template <typename Message>
absl::StatusOr<Message> Open(absl::string_view bytes) {
  if (bytes.size() > kRecordFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a file of ", bytes.size(), " bytes, at most ", kRecordFileBytesMax));
  }
  if (bytes.size() < kTrailerBytes || bytes[bytes.size() - kTrailerBytes] != kTrailerTag) {
    return absl::DataLossError("the file does not end in its checksum");
  }
  const absl::string_view body = bytes.substr(0, bytes.size() - kTrailerBytes);
  uint32_t crc = 0;
  for (size_t i = 0; i < 4; ++i) {
    crc |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[body.size() + 1 + i])) << (8 * i);
  }
  if (Crc32c(body) != crc) return absl::DataLossError("the file does not have its checksum");
  Message message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::InvalidArgumentError("the file holds no protobuf message");
  }
  if (message.format_version() > kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat("format version ", message.format_version(),
                                                      "; this program knows ", kFormatVersion));
  }
  if (message.format_version() == 0) return absl::InvalidArgumentError("format_version is missing");
  return message;
}

absl::Status Bad(absl::string_view field, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", why));
}

std::string At(absl::string_view field, size_t index) {
  return absl::StrCat(field, "[", index, "]");
}

void ToProto(const AttemptName& name, pb::AttemptName* out) {
  out->set_sequence(name.sequence);
  out->set_random(name.random);
}

AttemptName FromProto(const pb::AttemptName& in) { return {in.sequence(), in.random()}; }

// --- ATTEMPT.pb

void ToProto(const AttemptRecord& record, pb::AttemptRecord* out) {
  out->set_format_version(kFormatVersion);
  out->set_job(record.job);
  out->set_checkpoint_id(record.checkpoint_id);
  out->set_step(record.step);
  ToProto(record.attempt, out->mutable_attempt());
  out->set_incarnation(record.incarnation);
  out->set_world_size(record.world_size);
  out->set_coordinator_node(record.coordinator_node);
  out->set_replace(record.replace);
  out->set_begun_unix_nanoseconds(absl::ToUnixNanos(record.begun));
}

absl::StatusOr<AttemptRecord> FromProto(const pb::AttemptRecord& in) {
  RETURN_IF_ERROR(CheckName("job", in.job()));
  RETURN_IF_ERROR(CheckName("checkpoint_id", in.checkpoint_id()));
  RETURN_IF_ERROR(CheckName("coordinator_node", in.coordinator_node()));
  if (in.world_size() == 0) return Bad("world_size", "is 0");
  AttemptRecord record;
  record.job = in.job();
  record.checkpoint_id = in.checkpoint_id();
  record.step = in.step();
  record.attempt = FromProto(in.attempt());
  record.incarnation = in.incarnation();
  record.world_size = in.world_size();
  record.coordinator_node = in.coordinator_node();
  record.replace = in.replace();
  record.begun = absl::FromUnixNanos(in.begun_unix_nanoseconds());
  return record;
}

// --- fragment-<node>.pb

void ToProto(const StoredFile& file, pb::File* out) {
  out->set_name(file.name);
  out->set_rank(file.rank);
  out->set_bytes(file.bytes);
  out->set_header_bytes(file.header_bytes);
  out->set_header_crc32c(file.header_crc32c);
  out->set_image_offset_bytes(file.image_offset_bytes);
  out->mutable_unit_crc32c()->Add(file.unit_crc32c.begin(), file.unit_crc32c.end());
  out->set_crc_by_daemon(file.crc_by_daemon);
}

void ToProto(const StoredTensor& tensor, pb::Tensor* out) {
  out->set_name(tensor.name);
  out->set_dtype(static_cast<uint32_t>(tensor.dtype));
  out->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  if (tensor.rank_local) out->set_rank_local(*tensor.rank_local);
  for (const StoredChunk& chunk : tensor.chunks) {
    pb::Chunk* to = out->add_chunks();
    to->mutable_offsets()->Add(chunk.box.offsets.begin(), chunk.box.offsets.end());
    to->mutable_sizes()->Add(chunk.box.sizes.begin(), chunk.box.sizes.end());
    to->set_file(chunk.file);
    to->set_file_offset_bytes(chunk.file_offset_bytes);
    to->set_bytes(chunk.bytes);
  }
}

void ToProto(const StoredItem& item, pb::Item* out) {
  out->set_name(item.name);
  out->set_kind(static_cast<pb::Item::Kind>(item.kind));
  if (item.rank_local) out->set_rank_local(*item.rank_local);
  out->set_bytes(item.bytes);
  out->set_crc32c(item.crc32c);
  if (item.bytes <= kInlineItemBytesMax) {
    out->set_value(item.value);
  } else {
    out->mutable_stored()->set_file(item.file);
    out->mutable_stored()->set_file_offset_bytes(item.file_offset_bytes);
  }
}

absl::StatusOr<StoredFile> FromProto(const pb::File& in) {
  if (!IsShardFile(in.name())) return Bad("name", "is not that of a shard file");
  if (in.header_bytes() == 0 || in.header_bytes() % kSectionAlignment != 0 ||
      in.header_bytes() > kHeaderBytesMax + 8) {
    return Bad("header_bytes", "is not a multiple of 4096 in range");
  }
  if (in.bytes() < in.header_bytes() || in.bytes() > 2 * kRankBytesMax) {
    return Bad("bytes", "is out of range");
  }
  if (in.image_offset_bytes() % kSectionAlignment != 0 ||
      in.image_offset_bytes() > 2 * kRankBytesMax) {
    return Bad("image_offset_bytes", "is not a multiple of 4096 in range");
  }
  const uint64_t first = in.image_offset_bytes() / kUnitBytes;
  const uint64_t end = in.image_offset_bytes() + in.bytes() - in.header_bytes();
  const uint64_t units =
      in.bytes() == in.header_bytes() ? 0 : (end + kUnitBytes - 1) / kUnitBytes - first;
  if (static_cast<uint64_t>(in.unit_crc32c_size()) != units) {
    return Bad("unit_crc32c", absl::StrCat("has ", in.unit_crc32c_size(),
                                           " checksums; the data section has ", units, " units"));
  }
  StoredFile file;
  file.name = in.name();
  file.rank = in.rank();
  file.bytes = in.bytes();
  file.header_bytes = in.header_bytes();
  file.header_crc32c = in.header_crc32c();
  file.image_offset_bytes = in.image_offset_bytes();
  file.unit_crc32c.assign(in.unit_crc32c().begin(), in.unit_crc32c().end());
  file.crc_by_daemon = in.crc_by_daemon();
  return file;
}

// Is [offset, offset + bytes) in the data section of files[file], of `rank_local` if that is set?
absl::Status CheckPlace(const std::vector<StoredFile>& files, uint32_t file, uint64_t offset,
                        uint64_t bytes, const std::optional<uint32_t>& rank_local) {
  if (file >= files.size()) return Bad("file", absl::StrCat(file, " is not in the list"));
  if (offset < files[file].header_bytes || offset > files[file].bytes ||
      bytes > files[file].bytes - offset) {
    return Bad("file_offset_bytes", "is not inside the file's data section");
  }
  if (rank_local && files[file].rank != *rank_local) {
    return Bad("file", "belongs to another rank than the rank-local value");
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredTensor> FromProto(const pb::Tensor& in, const std::vector<StoredFile>& files) {
  StoredTensor tensor;
  RETURN_IF_ERROR(WithContext(CheckEntryName(in.name()), "name"));
  tensor.name = in.name();
  if (in.dtype() > std::numeric_limits<uint8_t>::max() || !IsDType(static_cast<int>(in.dtype()))) {
    return Bad("dtype", absl::StrCat(in.dtype(), " is unknown"));
  }
  tensor.dtype = static_cast<DType>(in.dtype());
  tensor.shape.assign(in.shape().begin(), in.shape().end());
  const uint64_t element_bytes = Info(tensor.dtype).size_bytes;
  RETURN_IF_ERROR(WithContext(CheckedBytes(tensor.shape, element_bytes).status(), "shape"));
  if (in.has_rank_local()) tensor.rank_local = in.rank_local();
  tensor.chunks.reserve(in.chunks_size());
  for (const pb::Chunk& from : in.chunks()) {
    const std::string where = At("chunks", tensor.chunks.size());
    StoredChunk chunk;
    chunk.box.offsets.assign(from.offsets().begin(), from.offsets().end());
    chunk.box.sizes.assign(from.sizes().begin(), from.sizes().end());
    chunk.file = from.file();
    chunk.file_offset_bytes = from.file_offset_bytes();
    chunk.bytes = from.bytes();
    RETURN_IF_ERROR(WithContext(CheckInside(chunk.box, tensor.shape), where));
    if (chunk.bytes == 0 || chunk.bytes != Elements(chunk.box.sizes) * element_bytes) {
      return Bad(absl::StrCat(where, ".bytes"), "is not the size of the box");
    }
    RETURN_IF_ERROR(WithContext(
        CheckPlace(files, chunk.file, chunk.file_offset_bytes, chunk.bytes, tensor.rank_local),
        where));
    tensor.chunks.push_back(std::move(chunk));
  }
  return tensor;
}

absl::StatusOr<StoredItem> FromProto(const pb::Item& in, const std::vector<StoredFile>& files) {
  StoredItem item;
  RETURN_IF_ERROR(WithContext(CheckEntryName(in.name()), "name"));
  item.name = in.name();
  if (in.kind() < pb::Item::KIND_JSON || in.kind() > pb::Item::KIND_BYTES) {
    return Bad("kind", absl::StrCat(in.kind(), " is unknown"));
  }
  item.kind = static_cast<ItemKind>(in.kind());
  if (in.has_rank_local()) item.rank_local = in.rank_local();
  item.bytes = in.bytes();
  item.crc32c = in.crc32c();
  if (item.bytes <= kInlineItemBytesMax) {
    if (!in.has_value() || in.value().size() != item.bytes) {
      return Bad("value", "does not have the size that `bytes` says");
    }
    if (Crc32c(in.value()) != item.crc32c) return Bad("value", "does not have its checksum");
    item.value = in.value();
    return item;
  }
  if (!in.has_stored()) return Bad("stored", "is missing for a large item");
  if (item.bytes > kItemBytesMax) return Bad("bytes", "is out of range");
  item.file = in.stored().file();
  item.file_offset_bytes = in.stored().file_offset_bytes();
  RETURN_IF_ERROR(
      CheckPlace(files, item.file, item.file_offset_bytes, item.bytes, item.rank_local));
  return item;
}

// Tensors and items share one space of names, in which a rank-local name counts per rank.
class NameSpace {
 public:
  // InvalidArgument if the name is there already, or rank-local here and shared there.
  absl::Status Add(absl::string_view name, const std::optional<uint32_t>& rank_local) {
    const int64_t owner = rank_local ? int64_t{*rank_local} : kShared;
    if (!owners_.emplace(name, owner).second) return absl::InvalidArgumentError("comes twice");
    const auto [found, is_new] = is_local_.try_emplace(name, rank_local.has_value());
    if (is_new || found->second == rank_local.has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError("is rank-local at one place and not at another");
  }

 private:
  static constexpr int64_t kShared = -1;

  absl::flat_hash_set<std::pair<absl::string_view, int64_t>> owners_;
  absl::flat_hash_map<absl::string_view, bool> is_local_;
};

absl::Status CheckIdentity(const std::string& job, const std::string& id, const std::string& node) {
  RETURN_IF_ERROR(CheckName("job", job));
  RETURN_IF_ERROR(CheckName("checkpoint_id", id));
  return CheckName("node", node);
}

absl::Status CheckFragmentFiles(const Fragment& fragment) {
  absl::flat_hash_set<absl::string_view> names;
  for (size_t i = 0; i < fragment.files.size(); ++i) {
    const StoredFile& file = fragment.files[i];
    if (!names.insert(file.name).second) return Bad(At("files", i), "the name comes twice");
    if (!std::binary_search(fragment.ranks.begin(), fragment.ranks.end(), file.rank)) {
      return Bad(At("files", i), absl::StrCat("rank ", file.rank, " is none of this node"));
    }
  }
  return absl::OkStatus();
}

// --- OUTCOME.pb

void ToProto(const RankOutcome& rank, pb::RankOutcome* out) {
  out->set_rank(rank.rank);
  out->set_node(rank.node);
  out->set_pid(rank.pid);
  out->set_state(rank.state);
  out->set_planned_bytes(rank.planned_bytes);
  out->set_staged_bytes(rank.staged_bytes);
  out->set_written_bytes(rank.written_bytes);
}

RankOutcome FromProto(const pb::RankOutcome& in) {
  RankOutcome rank;
  rank.rank = in.rank();
  rank.node = in.node();
  rank.pid = in.pid();
  rank.state = in.state();
  rank.planned_bytes = in.planned_bytes();
  rank.staged_bytes = in.staged_bytes();
  rank.written_bytes = in.written_bytes();
  return rank;
}

// --- The checks of MakeManifest().

absl::Status CheckBelongs(const AttemptRecord& record, const FragmentFile& file) {
  const Fragment& fragment = file.fragment;
  if (fragment.attempt != record.attempt) {
    return absl::InvalidArgumentError(absl::StrCat("it is of attempt ", ToString(fragment.attempt),
                                                   ", not ", ToString(record.attempt)));
  }
  if (fragment.job != record.job || fragment.checkpoint_id != record.checkpoint_id) {
    return absl::InvalidArgumentError("it is of another job or checkpoint");
  }
  if (file.file_name != FragmentFileName(fragment.node)) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of node ", QuoteName(fragment.node), " by its content"));
  }
  return absl::OkStatus();
}

absl::Status CheckRanks(uint32_t world_size, const std::vector<const FragmentFile*>& fragments) {
  std::map<uint32_t, absl::string_view> ranks;
  for (const FragmentFile* file : fragments) {
    for (uint32_t rank : file->fragment.ranks) {
      if (rank >= world_size) {
        return Bad(file->file_name, absl::StrCat("rank ", rank, " of ", world_size));
      }
      const auto [found, is_new] = ranks.emplace(rank, file->file_name);
      if (!is_new) {
        return Bad(file->file_name, absl::StrCat("rank ", rank, " is also in ", found->second));
      }
    }
  }
  if (ranks.size() == world_size) return absl::OkStatus();
  uint32_t missing = 0;
  while (ranks.contains(missing)) ++missing;
  return absl::InvalidArgumentError(absl::StrCat("rank ", missing, " is in no fragment"));
}

// What the fragments say of one tensor.
struct JoinedTensor {
  const StoredTensor* first = nullptr;
  const FragmentFile* file = nullptr;
  std::vector<Box> boxes;
};

using JoinedTensors = std::map<std::pair<absl::string_view, std::optional<uint32_t>>, JoinedTensor>;

absl::StatusOr<JoinedTensors> JoinTensors(const std::vector<const FragmentFile*>& fragments) {
  JoinedTensors joined;
  for (const FragmentFile* file : fragments) {
    for (const StoredTensor& tensor : file->fragment.tensors) {
      JoinedTensor& all = joined[{tensor.name, tensor.rank_local}];
      if (all.first == nullptr) {
        all.first = &tensor;
        all.file = file;
      }
      if (all.first->dtype != tensor.dtype || all.first->shape != tensor.shape) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", QuoteName(tensor.name), ": ", all.file->file_name, " and ",
                         file->file_name, " disagree on its dtype or shape"));
      }
      for (const StoredChunk& chunk : tensor.chunks) all.boxes.push_back(chunk.box);
    }
  }
  return joined;
}

}  // namespace

std::string EncodeAttemptRecord(const AttemptRecord& record) {
  pb::AttemptRecord message;
  ToProto(record, &message);
  return Seal(message);
}

absl::StatusOr<AttemptRecord> DecodeAttemptRecord(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::AttemptRecord message, Open<pb::AttemptRecord>(bytes));
  return FromProto(message);
}

std::string EncodeFragment(const Fragment& fragment) {
  pb::Fragment message;
  message.set_format_version(kFormatVersion);
  message.set_job(fragment.job);
  message.set_checkpoint_id(fragment.checkpoint_id);
  ToProto(fragment.attempt, message.mutable_attempt());
  message.set_node(fragment.node);
  message.mutable_ranks()->Add(fragment.ranks.begin(), fragment.ranks.end());
  for (const StoredFile& file : fragment.files) ToProto(file, message.add_files());
  for (const StoredTensor& tensor : fragment.tensors) ToProto(tensor, message.add_tensors());
  for (const StoredItem& item : fragment.items) ToProto(item, message.add_items());
  return Seal(message);
}

absl::StatusOr<Fragment> DecodeFragment(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::Fragment message, Open<pb::Fragment>(bytes));
  RETURN_IF_ERROR(CheckIdentity(message.job(), message.checkpoint_id(), message.node()));
  Fragment fragment;
  fragment.job = message.job();
  fragment.checkpoint_id = message.checkpoint_id();
  fragment.attempt = FromProto(message.attempt());
  fragment.node = message.node();
  fragment.ranks.assign(message.ranks().begin(), message.ranks().end());
  if (std::adjacent_find(fragment.ranks.begin(), fragment.ranks.end(), std::greater_equal<>()) !=
      fragment.ranks.end()) {
    return Bad("ranks", "are not in ascending order");
  }
  for (const pb::File& from : message.files()) {
    absl::StatusOr<StoredFile> file = FromProto(from);
    if (!file.ok()) return WithContext(file.status(), At("files", fragment.files.size()));
    fragment.files.push_back(*std::move(file));
  }
  RETURN_IF_ERROR(CheckFragmentFiles(fragment));
  NameSpace names;
  for (const pb::Tensor& from : message.tensors()) {
    absl::StatusOr<StoredTensor> tensor = FromProto(from, fragment.files);
    absl::Status status = tensor.status();
    if (status.ok()) status = names.Add(from.name(), tensor->rank_local);
    if (!status.ok()) {
      return WithContext(status, absl::StrCat("tensor ", QuoteName(from.name())));
    }
    fragment.tensors.push_back(*std::move(tensor));
  }
  for (const pb::Item& from : message.items()) {
    absl::StatusOr<StoredItem> item = FromProto(from, fragment.files);
    absl::Status status = item.status();
    if (status.ok()) status = names.Add(from.name(), item->rank_local);
    if (!status.ok()) return WithContext(status, absl::StrCat("item ", QuoteName(from.name())));
    fragment.items.push_back(*std::move(item));
  }
  return fragment;
}

std::string EncodeManifest(const Manifest& manifest) {
  pb::Manifest message;
  message.set_format_version(kFormatVersion);
  message.set_job(manifest.job);
  message.set_checkpoint_id(manifest.checkpoint_id);
  message.set_step(manifest.step);
  ToProto(manifest.attempt, message.mutable_attempt());
  message.set_world_size(manifest.world_size);
  for (const FragmentRef& fragment : manifest.fragments) {
    pb::FragmentRef* out = message.add_fragments();
    out->set_node(fragment.node);
    out->set_file(fragment.file);
    out->set_bytes(fragment.bytes);
    out->set_crc32c(fragment.crc32c);
  }
  message.set_tensors(manifest.tensors);
  message.set_items(manifest.items);
  message.set_files(manifest.files);
  message.set_bytes(manifest.bytes);
  return Seal(message);
}

absl::StatusOr<Manifest> DecodeManifest(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::Manifest message, Open<pb::Manifest>(bytes));
  RETURN_IF_ERROR(CheckName("job", message.job()));
  RETURN_IF_ERROR(CheckName("checkpoint_id", message.checkpoint_id()));
  if (message.world_size() == 0) return Bad("world_size", "is 0");
  Manifest manifest;
  for (const pb::FragmentRef& from : message.fragments()) {
    const std::string where = At("fragments", manifest.fragments.size());
    RETURN_IF_ERROR(WithContext(CheckName("node", from.node()), where));
    if (from.file() != FragmentFileName(from.node())) return Bad(where, "node and file disagree");
    if (!manifest.fragments.empty() && manifest.fragments.back().node >= from.node()) {
      return Bad(where, "is not in the order of nodes");
    }
    manifest.fragments.push_back({from.node(), from.file(), from.bytes(), from.crc32c()});
  }
  manifest.job = message.job();
  manifest.checkpoint_id = message.checkpoint_id();
  manifest.step = message.step();
  manifest.attempt = FromProto(message.attempt());
  manifest.world_size = message.world_size();
  manifest.tensors = message.tensors();
  manifest.items = message.items();
  manifest.files = message.files();
  manifest.bytes = message.bytes();
  return manifest;
}

std::string EncodeOutcome(const Outcome& outcome) {
  pb::Outcome message;
  message.set_format_version(kFormatVersion);
  ToProto(outcome.record, message.mutable_record());
  message.set_root_label(outcome.root_label);
  message.set_code(static_cast<int>(outcome.failure.status.code()));
  message.set_message(std::string(outcome.failure.status.message()));
  if (outcome.failure.rank) message.set_rank(*outcome.failure.rank);
  message.set_node(outcome.failure.node);
  message.set_phase(outcome.failure.phase);
  for (const RankOutcome& rank : outcome.ranks) ToProto(rank, message.add_ranks());
  message.set_ended_unix_nanoseconds(absl::ToUnixNanos(outcome.ended));
  return Seal(message);
}

absl::StatusOr<Outcome> DecodeOutcome(absl::string_view bytes) {
  ASSIGN_OR_RETURN(const pb::Outcome message, Open<pb::Outcome>(bytes));
  Outcome outcome;
  if (message.record().checkpoint_id().empty()) {
    RETURN_IF_ERROR(CheckName("job", message.record().job()));
    outcome.record.job = message.record().job();
    outcome.record.attempt = FromProto(message.record().attempt());
  } else {
    absl::StatusOr<AttemptRecord> record = FromProto(message.record());
    if (!record.ok()) return WithContext(record.status(), "record");
    outcome.record = *std::move(record);
  }
  if (message.code() < static_cast<int>(absl::StatusCode::kCancelled) ||
      message.code() > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return Bad("code", absl::StrCat(message.code(), " is no error"));
  }
  outcome.root_label = message.root_label();
  outcome.failure.status =
      absl::Status(static_cast<absl::StatusCode>(message.code()), message.message());
  if (message.has_rank()) outcome.failure.rank = message.rank();
  outcome.failure.node = message.node();
  outcome.failure.phase = message.phase();
  for (const pb::RankOutcome& from : message.ranks()) outcome.ranks.push_back(FromProto(from));
  outcome.ended = absl::FromUnixNanos(message.ended_unix_nanoseconds());
  return outcome;
}

absl::StatusOr<Manifest> MakeManifest(const AttemptRecord& record,
                                      const std::vector<FragmentFile>& fragments) {
  std::vector<const FragmentFile*> sorted;
  for (const FragmentFile& file : fragments) {
    RETURN_IF_ERROR(WithContext(CheckBelongs(record, file), file.file_name));
    sorted.push_back(&file);
  }
  std::sort(sorted.begin(), sorted.end(), [](const FragmentFile* a, const FragmentFile* b) {
    return a->fragment.node < b->fragment.node;
  });
  RETURN_IF_ERROR(CheckRanks(record.world_size, sorted));

  Manifest manifest;
  manifest.job = record.job;
  manifest.checkpoint_id = record.checkpoint_id;
  manifest.step = record.step;
  manifest.attempt = record.attempt;
  manifest.world_size = record.world_size;
  NameSpace names;
  std::set<absl::string_view> shard_names;
  for (const FragmentFile* file : sorted) {
    manifest.fragments.push_back(
        {file->fragment.node, file->file_name, file->bytes.size(), Crc32c(file->bytes)});
    for (const StoredFile& shard : file->fragment.files) {
      if (!shard_names.insert(shard.name).second) {
        return Bad(file->file_name, absl::StrCat(shard.name, " is also in another fragment"));
      }
      manifest.bytes += shard.bytes - shard.header_bytes;
    }
    for (const StoredItem& item : file->fragment.items) {
      absl::Status status = names.Add(item.name, item.rank_local);
      if (!status.ok()) return WithContext(status, absl::StrCat("item ", QuoteName(item.name)));
      ++manifest.items;
    }
  }
  manifest.files = shard_names.size();
  ASSIGN_OR_RETURN(const JoinedTensors tensors, JoinTensors(sorted));
  for (const auto& [key, tensor] : tensors) {
    absl::Status status = names.Add(key.first, key.second);
    if (status.ok()) status = CheckTiling(tensor.first->shape, tensor.boxes);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", QuoteName(key.first), ": ", status.message()));
    }
  }
  manifest.tensors = tensors.size();
  return manifest;
}

}  // namespace ckptd
