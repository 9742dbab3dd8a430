#include "tests/bench/fio.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/base/status.h"
#include "storage/base/units.h"
#include "tests/bench/child.h"

namespace ckptd::bench {
namespace {

constexpr uint64_t kBlockBytes = 4 * kMiB;

using Json = nlohmann::json;
using Flags = std::vector<std::string>;

struct Engine {
  Flags flags;
  std::string text;
};

// From the best to what works everywhere.
std::vector<Engine> Engines() {
  return {
      {{"--ioengine=io_uring", "--iodepth=16", "--direct=1", "--fixedbufs", "--registerfiles"},
       "io_uring, direct, depth 16, fixed buffers, registered files"},
      {{"--ioengine=io_uring", "--iodepth=16", "--direct=1"}, "io_uring, direct, depth 16"},
      {{"--ioengine=libaio", "--iodepth=16", "--direct=1"}, "libaio, direct, depth 16"},
      {{"--ioengine=psync", "--direct=0"}, "psync, buffered"},
  };
}

struct Measured {
  double seconds = 0;
  uint64_t bytes = 0;
};

// Runs one job; `direction` is "read" or "write".
absl::StatusOr<Measured> Run(const std::string& direction, const Flags& flags) {
  Flags arguments = {"fio",     "--name=yardstick",     "--rw=" + direction,
                     "--bs=4M", "--output-format=json", "--file_service_type=sequential",
                     "--thread"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  ASSIGN_OR_RETURN(const std::unique_ptr<Child> child, Child::Start(arguments, "/dev/null"));
  const std::string text = child->ReadAll();
  const int end = child->AwaitEnd();
  // Notes may come before the document.
  const Json document =
      Json::parse(text.substr(std::min(text.find('{'), text.size())), nullptr, false);
  if (end != 0 || !document.contains("jobs") || document["jobs"][0].value("error", 1) != 0) {
    return absl::UnavailableError(
        absl::StrCat("fio failed with exit code ", end, ": ", absl::StrJoin(arguments, " ")));
  }
  const Json& side = document["jobs"][0][direction];
  // Milliseconds; a tiny file takes none.
  return Measured{.seconds = std::max(side.value("runtime", 0.0), 1.0) / 1000,
                  .bytes = side.value("io_bytes", uint64_t{0})};
}

Flags WriteFlags(const std::string& file, uint64_t bytes, bool preallocated) {
  return {"--filename=" + file, absl::StrCat("--size=", RoundUp(bytes, kBlockBytes)),
          "--end_fsync=1", preallocated ? "--fallocate=native" : "--fallocate=none"};
}

void Append(Flags& flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
}

}  // namespace

absl::StatusOr<Fio> Fio::Probe(const std::string& folder) {
  absl::Status status;
  for (const Engine& engine : Engines()) {
    const Fio fio(folder, engine.flags, engine.text);
    status = fio.Write(kBlockBytes, false).status();
    if (status.ok()) return fio;
  }
  return WithContext(status, "no engine of fio works (deploy/setup installs it)");
}

Fio::Fio(std::string folder, std::vector<std::string> engine, std::string text)
    : folder_(std::move(folder)), engine_(std::move(engine)), text_(std::move(text)) {}

absl::StatusOr<double> Fio::Write(uint64_t bytes, bool preallocated) const {
  const std::string file = folder_ + "/fio";
  Flags flags = WriteFlags(file, bytes, preallocated);
  Append(flags, engine_);
  const absl::StatusOr<Measured> measured = Run("write", flags);
  std::error_code error;
  std::filesystem::remove(file, error);
  if (!measured.ok()) return measured.status();
  return measured->seconds * static_cast<double>(bytes) / static_cast<double>(measured->bytes);
}

absl::StatusOr<double> Fio::Read(const std::vector<std::string>& files, bool direct) const {
  uint64_t bytes = 0;
  uint64_t smallest = UINT64_MAX;
  for (const std::string& file : files) {
    std::error_code error;
    const uint64_t size = std::filesystem::file_size(file, error);
    if (error) return ErrnoStatus(error.value(), absl::StrCat("look at ", file));
    bytes += size;
    smallest = std::min<uint64_t>(smallest, size);
  }
  // Files below one request are read in one that fits.
  const uint64_t block = std::min(kBlockBytes, smallest / 4096 * 4096);
  Flags flags = {"--readonly", "--filename=" + absl::StrJoin(files, ":"),
                 absl::StrCat("--bs=", block)};
  if (direct) {
    Append(flags, engine_);
  } else {
    Append(flags, {"--ioengine=psync", "--direct=0", "--fadvise_hint=sequential"});
  }
  ASSIGN_OR_RETURN(const Measured measured, Run("read", flags));
  return measured.seconds * static_cast<double>(bytes) / static_cast<double>(measured.bytes);
}

}  // namespace ckptd::bench
