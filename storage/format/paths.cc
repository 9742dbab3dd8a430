#include "storage/format/paths.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {
namespace {

constexpr char kFragmentPrefix[] = "fragment-";
constexpr char kFragmentSuffix[] = ".pb";

bool IsPlain(char c, bool first) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
         (c == '.' && !first);
}

// Reads a decimal number off the front of `text`.
bool ConsumeNumber(absl::string_view& text, uint32_t& number) {
  size_t digits = 0;
  while (digits < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[digits]))) {
    ++digits;
  }
  if (!absl::SimpleAtoi(text.substr(0, digits), &number)) return false;
  text.remove_prefix(digits);
  return true;
}

}  // namespace

std::string EncodeName(absl::string_view text) {
  if (text.empty()) return "%";
  std::string name;
  for (size_t i = 0; i < text.size(); ++i) {
    if (IsPlain(text[i], i == 0)) {
      name.push_back(text[i]);
    } else {
      absl::StrAppendFormat(&name, "%%%02X", static_cast<uint8_t>(text[i]));
    }
  }
  return name;
}

std::optional<std::string> DecodeName(absl::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%') {
      text.push_back(name[i]);
      continue;
    }
    const absl::string_view digits = name.substr(i + 1, 2);
    uint32_t byte;
    if (digits.size() < 2 || !absl::SimpleHexAtoi(digits, &byte)) return std::nullopt;
    text.push_back(static_cast<char>(byte));
    i += 2;
  }
  if (name.size() > kEncodedNameBytesMax || EncodeName(text) != name) return std::nullopt;
  return text;
}

absl::Status CheckName(absl::string_view what, absl::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(what, " is empty"));
  const size_t bytes = EncodeName(text).size();
  if (bytes <= kEncodedNameBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " ", QuoteName(text), " takes ", bytes,
                                                 " bytes as a file name, at most ",
                                                 kEncodedNameBytesMax));
}

std::string ToString(const AttemptName& name) {
  return absl::StrFormat("%u-%016x", name.sequence, name.random);
}

std::optional<AttemptName> ParseAttemptName(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  AttemptName name;
  if (!absl::SimpleAtoi(halves.first, &name.sequence) ||
      !absl::SimpleHexAtoi(halves.second, &name.random) || ToString(name) != text) {
    return std::nullopt;
  }
  return name;
}

std::string JobDir(absl::string_view job) { return EncodeName(job); }
std::string CheckpointsDir(absl::string_view job) { return Join(JobDir(job), "checkpoints"); }
std::string AttemptsDir(absl::string_view job) { return Join(JobDir(job), "attempts"); }
std::string FailedDir(absl::string_view job) { return Join(JobDir(job), "failed"); }
std::string RetiredDir(absl::string_view job) { return Join(JobDir(job), "retired"); }
std::string TrashDir(absl::string_view job) { return Join(JobDir(job), "trash"); }

std::string CheckpointDir(absl::string_view job, absl::string_view id) {
  return Join(CheckpointsDir(job), EncodeName(id));
}

std::string AttemptDir(absl::string_view job, const AttemptName& attempt) {
  return Join(AttemptsDir(job), ToString(attempt));
}

std::string FailedAttemptDir(absl::string_view job, const AttemptName& attempt) {
  return Join(FailedDir(job), ToString(attempt));
}

std::string RetiredCheckpointDir(absl::string_view job, absl::string_view id,
                                 const AttemptName& attempt) {
  return Join(RetiredDir(job), absl::StrCat(EncodeName(id), "~", ToString(attempt)));
}

std::string TrashedCheckpointDir(absl::string_view job, absl::string_view id,
                                 const AttemptName& attempt) {
  return Join(TrashDir(job), absl::StrCat(EncodeName(id), "~", ToString(attempt)));
}

std::string NodeLockFile(absl::string_view node) {
  return absl::StrCat(kOwnDir, "/nodes/", EncodeName(node), ".lock");
}

std::string VerdictFile(absl::string_view job, const AttemptName& attempt) {
  return absl::StrCat(kOwnDir, "/verified/", EncodeName(job), "/", ToString(attempt), ".json");
}

std::optional<RetiredName> ParseRetiredName(absl::string_view name) {
  const std::pair<absl::string_view, absl::string_view> halves =
      absl::StrSplit(name, absl::MaxSplits('~', 1));
  std::optional<std::string> id = DecodeName(halves.first);
  const std::optional<AttemptName> attempt = ParseAttemptName(halves.second);
  if (!id || !attempt) return std::nullopt;
  return RetiredName{*std::move(id), *attempt};
}

std::string ShardFile(uint32_t rank, uint32_t world_size, uint32_t section, uint32_t rewrite) {
  std::string name = absl::StrFormat("shard-%05u", rank);
  if (section > 0) absl::StrAppend(&name, ".", section);
  if (rewrite > 0) absl::StrAppend(&name, "~", rewrite);
  absl::StrAppendFormat(&name, "-of-%05u.safetensors", world_size);
  return name;
}

std::string FragmentFileName(absl::string_view node) {
  return absl::StrCat(kFragmentPrefix, EncodeName(node), kFragmentSuffix);
}

std::optional<std::string> NodeOfFragmentFile(absl::string_view file_name) {
  if (!absl::ConsumePrefix(&file_name, kFragmentPrefix) ||
      !absl::ConsumeSuffix(&file_name, kFragmentSuffix)) {
    return std::nullopt;
  }
  return DecodeName(file_name);
}

bool IsShardFile(absl::string_view file_name) {
  absl::string_view rest = file_name;
  uint32_t rank = 0, section = 0, rewrite = 0, world_size = 0;
  if (!absl::ConsumePrefix(&rest, "shard-") || !ConsumeNumber(rest, rank)) return false;
  if (absl::ConsumePrefix(&rest, ".") && !ConsumeNumber(rest, section)) return false;
  if (absl::ConsumePrefix(&rest, "~") && !ConsumeNumber(rest, rewrite)) return false;
  if (!absl::ConsumePrefix(&rest, "-of-") || !ConsumeNumber(rest, world_size)) return false;
  return rank < world_size && ShardFile(rank, world_size, section, rewrite) == file_name;
}

std::string Join(absl::string_view folder, absl::string_view name) {
  return absl::StrCat(folder, "/", name);
}

}  // namespace ckptd
