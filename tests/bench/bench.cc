// How fast ckptd is, next to memcpy and fio on the same machine:
//
//     bazel run -c opt //tests/bench:bench -- [--only ROW] [--rounds 15] [--dir DIR] [--json FILE]
//
// Exit code 0 if every row could be measured, whether its goal is met or not.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "storage/base/status.h"
#include "tests/bench/disk.h"
#include "tests/bench/fio.h"
#include "tests/bench/rank_process.h"
#include "tests/bench/report.h"
#include "tests/bench/row.h"

namespace ckptd::bench {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> only;
  int rounds = 15;
  std::string folder = "/var/tmp";
  std::string json;
  double scale = 1;
  std::string daemon;
  std::string workload;  // Of a rank process.
  int rank = -1;
};

// Bazel runs a program elsewhere than where it was called.
std::string CallersPath(const std::string& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder == nullptr ? fs::absolute(path) : fs::path(folder) / path;
}

// "durable" names all rows that begin so, "durable.W1" also "durable.W1.posix".
bool IsWanted(const std::string& name, const std::vector<std::string>& only) {
  for (const std::string& wanted : only) {
    if (name == wanted || absl::StartsWith(name, wanted + ".")) return true;
  }
  return only.empty();
}

std::vector<RowMaker> WantedRows(const std::vector<std::string>& only) {
  std::vector<RowMaker> wanted;
  for (const auto& rows : {MemoryRows(), DiskRows(), DaemonRows()}) {
    for (const RowMaker& row : rows) {
      if (IsWanted(row.name, only)) wanted.push_back(row);
    }
  }
  return wanted;
}

absl::Status WriteReport(const std::string& file, const std::string& text) {
  std::ofstream stream(CallersPath(file));
  stream << text;
  if (stream.flush().good()) return absl::OkStatus();
  return absl::UnknownError(absl::StrCat("cannot write ", file));
}

absl::Status Measure(const Options& options, const std::vector<RowMaker>& makers) {
  std::string folder = CallersPath(options.folder) + "/ckptd-bench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("make a folder in ", options.folder));
  }
  const absl::Cleanup remove = [&folder] {
    std::error_code error;
    fs::remove_all(folder, error);
  };
  ASSIGN_OR_RETURN(const Fio fio, Fio::Probe(folder));
  std::mt19937 random(std::random_device{}());
  Machine machine = Machine::ThisOne();
  machine.folder = folder;
  machine.file_system = FileSystemOf(folder);
  machine.fio = fio.text();
  std::printf("%s%s", MachineLine(machine).c_str(), TableHead().c_str());
  std::fflush(stdout);

  absl::Status failed;
  std::vector<Row> rows;
  for (const RowMaker& maker : makers) {
    const Setting setting = {.folder = absl::StrCat(folder, "/", maker.name),
                             .rounds = options.rounds,
                             .scale = options.scale,
                             .daemon = options.daemon,
                             .random = random,
                             .fio = fio};
    std::error_code error;
    fs::create_directory(setting.folder, error);
    absl::StatusOr<Row> row = maker.make(setting, maker.name);
    fs::remove_all(setting.folder, error);
    if (row.ok()) {
      std::printf("%s", TableLine(*row).c_str());
      rows.push_back(*std::move(row));
    } else {
      std::printf("%-20s  %s\n", maker.name.c_str(), row.status().ToString().c_str());
      failed.Update(WithContext(row.status(), maker.name));
    }
    std::fflush(stdout);
  }
  if (!options.json.empty()) {
    failed.Update(WriteReport(options.json, ReportJson(machine, options.rounds, rows)));
  }
  return failed;
}

int Run(int argc, char** argv) {
  Options options;
  CLI::App app("How fast ckptd is, next to memcpy and fio on the same machine.");
  app.add_option("--only", options.only,
                 "a row, or the rows that begin with it (block, load.W1 …)");
  app.add_option("--rounds", options.rounds, "how often each side is measured")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dir", options.folder, "a folder on the disk to measure")->capture_default_str();
  app.add_option("--json", options.json, "write the report there, with all samples");
  app.add_option("--daemon", options.daemon, "another binary of the daemon");
  // Not for users: smaller workloads, and what a rank process is told.
  app.add_option("--scale", options.scale)->group("");
  app.add_option("--workload", options.workload)->group("");
  app.add_option("--rank-process", options.rank)->group("");
  CLI11_PARSE(app, argc, argv);
  if (options.rank >= 0) {
    const absl::StatusOr<Workload> workload = MakeWorkload(options.workload, options.scale);
    return workload.ok() ? RunRankProcess(*workload, static_cast<uint32_t>(options.rank)) : 2;
  }
  const std::vector<RowMaker> makers = WantedRows(options.only);
  if (makers.empty()) return std::fprintf(stderr, "no such row\n"), 2;
  signal(SIGPIPE, SIG_IGN);
  const absl::Status status = Measure(options, makers);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace ckptd::bench

int main(int argc, char** argv) { return ckptd::bench::Run(argc, argv); }
