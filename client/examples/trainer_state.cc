#include "client/examples/trainer_state.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/examples/trainer_json.h"
#include "storage/base/status.h"
#include "storage/format/shard_header.h"
#include "storage/plan/dtype.h"

namespace ckptd {
namespace {

absl::Status CannotRead(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--model ", path, ": ", why));
}

}  // namespace

absl::StatusOr<TrainerState> TrainerState::Create(const Options& options) {
  TrainerState state;
  state.rank_ = options.rank;
  state.world_size_ = options.world_size;
  if (!options.model.empty()) RETURN_IF_ERROR(state.AddModel(options.model));
  for (const std::string& text : options.tensors) {
    ASSIGN_OR_RETURN(TensorSpec spec, ParseTensorSpec(text));
    RETURN_IF_ERROR(state.AddPart(std::move(spec)));
  }
  for (const std::string& text : options.items) {
    const size_t equal = text.find('=');
    if (equal == text.npos || !IsJson(text.substr(equal + 1))) {
      return absl::InvalidArgumentError(absl::StrCat("--item ", text, " is not NAME=JSON"));
    }
    state.items_.push_back({text.substr(0, equal), ItemKind::kJson, false, text.substr(equal + 1)});
  }
  return state;
}

absl::Status TrainerState::AddModel(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return CannotRead(path, "cannot be opened");
  const uint64_t file_bytes = static_cast<uint64_t>(file.tellg());
  std::string prefix(std::min<uint64_t>(file_bytes, sizeof(uint64_t)), '\0');
  // What the file claims is compared with what it has before anything is allocated.
  const auto read = [&file](uint64_t offset, char* target, uint64_t bytes) {
    file.seekg(static_cast<std::streamoff>(offset));
    return !!file.read(target, static_cast<std::streamsize>(bytes));
  };
  read(0, prefix.data(), prefix.size());
  absl::StatusOr<uint64_t> header_bytes = HeaderLength(prefix, file_bytes);
  if (!header_bytes.ok()) return CannotRead(path, header_bytes.status().message());
  prefix.resize(*header_bytes);
  if (!read(0, prefix.data(), prefix.size())) return CannotRead(path, "it cannot be read");
  absl::StatusOr<ShardHeader> header = ParseShardHeader(prefix, file_bytes);
  if (!header.ok()) return CannotRead(path, header.status().message());
  for (const HeaderEntry& entry : header->entries) {
    const std::optional<DType> dtype = DTypeFromSafetensors(entry.dtype);
    if (!dtype) {
      return CannotRead(path, absl::StrCat("\"", entry.key, "\" has unknown dtype ", entry.dtype));
    }
    TensorSpec spec{entry.key, *dtype, entry.shape, DefaultSplit(entry.shape), 0};
    RETURN_IF_ERROR(AddPart(std::move(spec)));
    Part& part = parts_.back();
    if (!part.box) continue;
    // Split along the first dimension, a part is contiguous in the file.
    uint64_t row_bytes = Info(*dtype).size_bytes;
    for (size_t i = 1; i < entry.shape.size(); ++i) row_bytes *= entry.shape[i];
    const uint64_t first_row = entry.shape.empty() ? 0 : part.box->offsets[0];
    part.model_bytes.resize(part.bytes.size());
    if (!read(header->header_bytes + entry.begin_bytes + first_row * row_bytes,
              reinterpret_cast<char*>(part.model_bytes.data()), part.model_bytes.size())) {
      return CannotRead(path, absl::StrCat("it ends inside tensor ", entry.key));
    }
  }
  return absl::OkStatus();
}

absl::Status TrainerState::AddPart(TensorSpec spec) {
  RETURN_IF_ERROR(WithContext(CheckedBytes(spec.shape, Info(spec.dtype).size_bytes).status(),
                              absl::StrCat("tensor ", spec.name)));
  Part part;
  part.box = BoxOf(spec, rank_, world_size_);
  if (part.box) part.bytes.resize(Elements(part.box->sizes) * Info(spec.dtype).size_bytes);
  part.spec = std::move(spec);
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

void TrainerState::BytesAt(const Part& part, uint64_t step, std::vector<std::byte>& out) const {
  out.resize(part.bytes.size());
  if (!part.model_bytes.empty()) {
    const auto shift = static_cast<uint8_t>(step % 256);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::byte>(static_cast<uint8_t>(part.model_bytes[i]) + shift);
    }
    return;
  }
  if (!part.box) return;
  const bool local = part.spec.split == Split::kLocal;
  const uint64_t seed =
      TensorSeed(part.spec.name, step, local ? std::optional<uint32_t>(rank_) : std::nullopt);
  ForEachRun(WholeBox(part.spec.shape), *part.box, Info(part.spec.dtype).size_bytes,
             [&](uint64_t whole, uint64_t own, uint64_t bytes) {
               GenerateBytes(seed, whole, std::span(out).subspan(own, bytes));
             });
}

void TrainerState::Fill(uint64_t step) {
  for (Part& part : parts_) {
    // In place, as an optimizer does: a save that still reads must see it.
    std::vector<std::byte> bytes;
    BytesAt(part, step, bytes);
    std::copy(bytes.begin(), bytes.end(), part.bytes.begin());
  }
}

std::optional<TrainerState::Difference> TrainerState::Check(uint64_t step) const {
  std::vector<std::byte> want;
  for (const Part& part : parts_) {
    BytesAt(part, step, want);
    auto [wrong, expected] = std::mismatch(part.bytes.begin(), part.bytes.end(), want.begin());
    if (wrong == part.bytes.end()) continue;
    return Difference{part.spec.name, static_cast<uint64_t>(wrong - part.bytes.begin())};
  }
  return std::nullopt;
}

std::vector<ItemValue> TrainerState::ItemsAt(uint64_t step) const {
  std::vector<ItemValue> items = items_;
  items.push_back({"step", ItemKind::kJson, false, absl::StrCat(step)});
  const double rate = 0.001 / (1.0 + static_cast<double>(step));
  items.push_back({"lr", ItemKind::kJson, true, absl::StrFormat("%.17g", rate)});
  items.push_back({"rank", ItemKind::kJson, true, absl::StrCat(rank_)});
  return items;
}

std::optional<std::string> TrainerState::CheckItems(uint64_t step,
                                                    const std::vector<ItemValue>& items) const {
  for (const ItemValue& want : ItemsAt(step)) {
    auto found = std::find_if(items.begin(), items.end(),
                              [&](const ItemValue& item) { return item.name == want.name; });
    if (found == items.end() || found->value != want.value) return want.name;
  }
  return std::nullopt;
}

State TrainerState::MakeState(uint64_t step) const {
  State state;
  for (const Part& part : parts_) {
    TensorView& tensor = state.tensors.emplace_back();
    tensor.name = part.spec.name;
    tensor.dtype = part.spec.dtype;
    tensor.shape = part.spec.shape;
    tensor.rank_local = part.spec.split == Split::kLocal;
    if (part.box) tensor.chunks.push_back({*part.box, part.bytes.data()});
  }
  state.items = ItemsAt(step);
  return state;
}

std::vector<TensorTarget> TrainerState::MakeTargets() {
  std::vector<TensorTarget> targets;
  for (Part& part : parts_) {
    TensorTarget& target = targets.emplace_back();
    target.name = part.spec.name;
    target.dtype = part.spec.dtype;
    target.shape = part.spec.shape;
    target.rank_local = part.spec.split == Split::kLocal;
    if (part.box) target.boxes.push_back({*part.box, part.bytes.data()});
  }
  return targets;
}

}  // namespace ckptd
