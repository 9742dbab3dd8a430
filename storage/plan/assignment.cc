#include "storage/plan/assignment.h"

#include <algorithm>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "storage/base/check.h"

namespace ckptd {
namespace {

constexpr uint64_t kBalancedReplicaBytesMin = (64 << 10) + 1;

// What replicas have in common: the name and, if it is a tensor with elements, the box.
struct ReplicaKey {
  absl::string_view name;
  const Box* box = nullptr;

  friend bool operator==(const ReplicaKey& a, const ReplicaKey& b) {
    if (a.name != b.name || (a.box == nullptr) != (b.box == nullptr)) return false;
    return a.box == nullptr || *a.box == *b.box;
  }
  friend bool operator<(const ReplicaKey& a, const ReplicaKey& b) {
    if (a.name != b.name) return a.name < b.name;
    if (a.box == nullptr || b.box == nullptr) return b.box != nullptr;
    return *a.box < *b.box;
  }
  template <typename H>
  friend H AbslHashValue(H h, const ReplicaKey& key) {
    h = H::combine(std::move(h), key.name);
    if (key.box == nullptr) return h;
    return H::combine(std::move(h), key.box->offsets, key.box->sizes);
  }
};

ReplicaKey KeyOf(const PlanPart& part) {
  if (part.item != nullptr) return {part.item->name, nullptr};
  if (IsOfEmptyTensor(part)) return {part.tensor->name, nullptr};
  return {part.tensor->name, &part.tensor->chunks[part.chunk_index]};
}

bool IsRankLocal(const PlanPart& part) {
  return part.tensor != nullptr ? part.tensor->rank_local : part.item->rank_local;
}

// How many different names there are at least, and often at all.
size_t LargestPlan(const PlansByRank& plans) {
  size_t entries = 0;
  for (const auto& [rank, plan] : plans) {
    entries = std::max(entries, plan->tensors.size() + plan->items.size());
  }
  return entries;
}

uint64_t StagedBytes(const PlanPart& part) { return part.staged ? part.bytes : 0; }

const PlanPart& PartAt(const std::vector<PlanPart>& parts, uint32_t ordinal) {
  CKPT_CHECK(ordinal < parts.size(), "an ordinal is one of the rank's plan");
  return parts[ordinal];
}

const RankPlan& PlanOf(const PlansByRank& plans, uint32_t rank) {
  const auto found = plans.find(rank);
  CKPT_CHECK(found != plans.end(), "a rank that writes has joined");
  return *found->second;
}

absl::Status Disagreement(absl::string_view name, uint32_t a, uint32_t b, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(QuoteName(name), ": ranks ", a, " and ", b, " ", what));
}

absl::Status ContentsDiffer(absl::string_view name, uint32_t a, uint32_t b) {
  return Disagreement(name, a, b,
                      "hold different values; declare it rank-local, or choose "
                      "replicas=lowest_rank");
}

// What the first rank that has a name says of it.
struct FirstSeen {
  uint32_t rank = 0;
  const TensorEntry* tensor = nullptr;
  const ItemEntry* item = nullptr;
  uint32_t content_rank = 0;  // Of the first tensor with a content checksum.
  std::optional<uint32_t> content_crc32c = std::nullopt;
};

absl::Status CompareTensor(FirstSeen& seen, const TensorEntry& tensor, uint32_t rank,
                           ReplicaPolicy policy) {
  const std::string& name = tensor.name;
  if (seen.tensor == nullptr) {
    return Disagreement(name, seen.rank, rank, "disagree: an item, and a tensor");
  }
  if (seen.tensor->rank_local != tensor.rank_local) {
    return Disagreement(name, seen.rank, rank, "disagree whether it is rank-local");
  }
  if (tensor.rank_local) return absl::OkStatus();
  if (seen.tensor->dtype != tensor.dtype) {
    return Disagreement(name, seen.rank, rank,
                        absl::StrCat("disagree: dtypes ", Info(seen.tensor->dtype).name, " and ",
                                     Info(tensor.dtype).name));
  }
  if (seen.tensor->shape != tensor.shape) {
    return Disagreement(name, seen.rank, rank,
                        absl::StrCat("disagree: shapes ", ShapeString(seen.tensor->shape), " and ",
                                     ShapeString(tensor.shape)));
  }
  if (!tensor.content_crc32c) return absl::OkStatus();
  if (!seen.content_crc32c) {
    seen.content_crc32c = tensor.content_crc32c;
    seen.content_rank = rank;
  }
  if (policy == ReplicaPolicy::kError && *seen.content_crc32c != *tensor.content_crc32c) {
    return ContentsDiffer(name, seen.content_rank, rank);
  }
  return absl::OkStatus();
}

absl::Status CompareItem(const FirstSeen& seen, const ItemEntry& item, uint32_t rank,
                         ReplicaPolicy policy) {
  if (seen.item == nullptr) {
    return Disagreement(item.name, seen.rank, rank, "disagree: a tensor, and an item");
  }
  if (seen.item->rank_local != item.rank_local) {
    return Disagreement(item.name, seen.rank, rank, "disagree whether it is rank-local");
  }
  if (item.rank_local) return absl::OkStatus();
  if (seen.item->kind != item.kind) {
    return Disagreement(item.name, seen.rank, rank, "disagree on the kind of item");
  }
  const bool differ = seen.item->bytes != item.bytes || seen.item->crc32c != item.crc32c;
  if (policy == ReplicaPolicy::kError && differ) return ContentsDiffer(item.name, seen.rank, rank);
  return absl::OkStatus();
}

using RankByReplica = absl::flat_hash_map<ReplicaKey, uint32_t>;

// The lowest rank outside `assigned` that writes a replica.
RankByReplica TakenBy(const PlansByRank& plans, const OrdinalsByRank& taken,
                      const OrdinalsByRank& assigned) {
  RankByReplica taken_by;
  for (const auto& [rank, ordinals] : taken) {
    if (assigned.contains(rank)) continue;
    const std::vector<PlanPart> parts = Parts(PlanOf(plans, rank));
    for (uint32_t ordinal : ordinals) {
      const PlanPart& part = PartAt(parts, ordinal);
      if (!IsRankLocal(part)) taken_by.try_emplace(KeyOf(part), rank);
    }
  }
  return taken_by;
}

// What a rank could write: all but chunks without elements, of which only the first of a tensor
// without elements counts.
std::vector<uint32_t> Writable(const std::vector<PlanPart>& parts) {
  std::vector<uint32_t> ordinals;
  const TensorEntry* named = nullptr;
  for (uint32_t ordinal = 0; ordinal < parts.size(); ++ordinal) {
    const PlanPart& part = parts[ordinal];
    const bool is_first_of_empty_tensor = IsOfEmptyTensor(part) && part.tensor != named;
    if (is_first_of_empty_tensor) named = part.tensor;
    if (part.item != nullptr || part.staged || is_first_of_empty_tensor) {
      ordinals.push_back(ordinal);
    }
  }
  return ordinals;
}

// A replica that several ranks of `to_assign` hold: (rank, ordinal), lowest rank first.
struct Replica {
  uint64_t bytes = 0;
  absl::InlinedVector<std::pair<uint32_t, uint32_t>, 2> holders;
};

// The boxes of one tensor and who writes them.
struct Written {
  const TensorEntry* tensor = nullptr;
  std::vector<Box> boxes;
  std::vector<uint32_t> ranks;
};

absl::Status CheckTensor(const Written& written) {
  const TensorEntry& tensor = *written.tensor;
  const std::optional<TilingFault> fault = FindTilingFault(tensor.shape, written.boxes);
  if (!fault) return absl::OkStatus();
  const std::string where =
      absl::StrCat("tensor ", QuoteName(tensor.name), " of shape ", ShapeString(tensor.shape),
                   ": region ", ToString(fault->region));
  if (!fault->overlap) {
    return absl::FailedPreconditionError(absl::StrCat(where, " is held by no rank"));
  }
  const auto [a, b] = *fault->overlap;
  return absl::FailedPreconditionError(
      absl::StrCat(where, " is written twice, by rank ", written.ranks[a], " as part of ",
                   ToString(written.boxes[a]), " and by rank ", written.ranks[b], " as part of ",
                   ToString(written.boxes[b])));
}

// Tensors in the order in which ranks name them, with what is written of them.
class WrittenTensors {
 public:
  explicit WrittenTensors(size_t expected) {
    tensors_.reserve(expected);
    index_.reserve(expected);
  }
  void AddEntry(const TensorEntry& tensor, uint32_t rank) { Find(tensor, rank); }
  void AddChunk(const TensorEntry& tensor, uint32_t rank, const Box& box) {
    Written& written = Find(tensor, rank);
    written.boxes.push_back(box);
    written.ranks.push_back(rank);
  }
  absl::Status Check() const {
    for (const Written& written : tensors_) {
      if (absl::Status status = CheckTensor(written); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kShared = -1;

  Written& Find(const TensorEntry& tensor, uint32_t rank) {
    const int64_t owner = tensor.rank_local ? int64_t{rank} : kShared;
    const auto [found, is_new] = index_.try_emplace({tensor.name, owner}, tensors_.size());
    if (is_new) tensors_.emplace_back().tensor = &tensor;
    return tensors_[found->second];
  }

  std::vector<Written> tensors_;
  absl::flat_hash_map<std::pair<absl::string_view, int64_t>, size_t> index_;
};

}  // namespace

absl::Status CheckAgreement(const PlansByRank& plans, ReplicaPolicy policy) {
  absl::flat_hash_map<absl::string_view, FirstSeen> names;
  names.reserve(LargestPlan(plans));
  for (const auto& [rank, plan] : plans) {
    for (const TensorEntry& tensor : plan->tensors) {
      const auto [found, is_new] = names.try_emplace(tensor.name, FirstSeen{rank, &tensor});
      absl::Status status = CompareTensor(found->second, tensor, rank, policy);
      if (!status.ok()) return status;
    }
    for (const ItemEntry& item : plan->items) {
      const auto [found, is_new] = names.try_emplace(item.name, FirstSeen{rank, nullptr, &item});
      absl::Status status = CompareItem(found->second, item, rank, policy);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

OrdinalsByRank Assign(const PlansByRank& plans, const OrdinalsByRank& taken,
                      const std::vector<uint32_t>& to_assign, ReplicaPolicy policy) {
  OrdinalsByRank assigned;
  for (uint32_t rank : to_assign) assigned[rank];
  const RankByReplica taken_by = TakenBy(plans, taken, assigned);
  std::map<uint32_t, uint64_t> load_bytes;
  absl::flat_hash_map<ReplicaKey, Replica> replicas;
  size_t parts_count = 0;
  for (const auto& [rank, ordinals] : assigned) parts_count += OrdinalCount(PlanOf(plans, rank));
  replicas.reserve(parts_count);
  for (auto& [rank, ordinals] : assigned) {
    const std::vector<PlanPart> parts = Parts(PlanOf(plans, rank));
    for (uint32_t ordinal : Writable(parts)) {
      const PlanPart& part = parts[ordinal];
      if (IsRankLocal(part)) {
        ordinals.push_back(ordinal);
        load_bytes[rank] += StagedBytes(part);
        continue;
      }
      const auto other = taken_by.find(KeyOf(part));
      const bool is_taken =
          other != taken_by.end() && (policy == ReplicaPolicy::kError || other->second < rank);
      if (is_taken) continue;
      Replica& replica = replicas[KeyOf(part)];
      replica.bytes = StagedBytes(part);
      replica.holders.emplace_back(rank, ordinal);
    }
  }

  std::vector<std::pair<ReplicaKey, const Replica*>> shared;
  for (const auto& [key, replica] : replicas) {
    const auto& [lowest, ordinal] = replica.holders.front();
    if (policy == ReplicaPolicy::kError && replica.holders.size() > 1 &&
        replica.bytes >= kBalancedReplicaBytesMin) {
      shared.emplace_back(key, &replica);
    } else {
      assigned[lowest].push_back(ordinal);
      load_bytes[lowest] += replica.bytes;
    }
  }
  std::sort(shared.begin(), shared.end(), [](const auto& a, const auto& b) {
    return a.second->bytes != b.second->bytes ? a.second->bytes > b.second->bytes
                                              : a.first < b.first;
  });
  for (const auto& [key, replica] : shared) {
    const auto& [rank, ordinal] = *std::min_element(
        replica->holders.begin(), replica->holders.end(), [&](const auto& a, const auto& b) {
          return std::make_tuple(load_bytes[a.first], a) < std::make_tuple(load_bytes[b.first], b);
        });
    assigned[rank].push_back(ordinal);
    load_bytes[rank] += replica->bytes;
  }
  for (auto& [rank, ordinals] : assigned) std::sort(ordinals.begin(), ordinals.end());
  return assigned;
}

absl::Status CheckComplete(const PlansByRank& plans, const OrdinalsByRank& written) {
  WrittenTensors tensors(LargestPlan(plans));
  absl::flat_hash_set<std::pair<absl::string_view, int64_t>> items;
  RankByReplica first_writer;
  size_t written_count = 0;
  for (const auto& [rank, ordinals] : written) written_count += ordinals.size();
  first_writer.reserve(written_count);
  for (const auto& [rank, plan] : plans) {
    for (const TensorEntry& tensor : plan->tensors) tensors.AddEntry(tensor, rank);
    const auto found = written.find(rank);
    if (found == written.end()) continue;
    const std::vector<PlanPart> parts = Parts(*plan);
    for (uint32_t ordinal : found->second) {
      const PlanPart& part = PartAt(parts, ordinal);
      if (part.item != nullptr) {
        items.emplace(part.item->name, part.item->rank_local ? int64_t{rank} : -1);
        continue;
      }
      if (!IsRankLocal(part) && first_writer.try_emplace(KeyOf(part), rank).first->second != rank) {
        continue;
      }
      tensors.AddChunk(*part.tensor, rank, part.tensor->chunks[part.chunk_index]);
    }
  }
  if (absl::Status status = tensors.Check(); !status.ok()) return status;
  for (const auto& [rank, plan] : plans) {
    for (const ItemEntry& item : plan->items) {
      if (items.contains({item.name, item.rank_local ? int64_t{rank} : -1})) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("item ", QuoteName(item.name), " of rank ", rank, " is written by no rank"));
    }
  }
  return absl::OkStatus();
}

OrdinalsByRank Recorded(const PlansByRank& plans, const OrdinalsByRank& written) {
  OrdinalsByRank recorded;
  absl::flat_hash_set<ReplicaKey> lower;
  for (const auto& [rank, ordinals] : written) {
    std::vector<uint32_t>& own = recorded[rank];
    const std::vector<PlanPart> parts = Parts(PlanOf(plans, rank));
    for (uint32_t ordinal : ordinals) {
      const PlanPart& part = PartAt(parts, ordinal);
      if (IsRankLocal(part) || lower.insert(KeyOf(part)).second) own.push_back(ordinal);
    }
  }
  return recorded;
}

}  // namespace ckptd
