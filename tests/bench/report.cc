#include "tests/bench/report.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "storage/base/units.h"

namespace ckptd::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) {
      return std::string(
          absl::StripLeadingAsciiWhitespace(absl::string_view(line).substr(line.find(':') + 1)));
    }
  }
  return "unknown";
}

std::string Amount(double value, Unit unit) {
  if (unit == Unit::kBytes) return HumanSize(static_cast<uint64_t>(value));
  if (value < 1) return absl::StrFormat("%.1f ms", value * 1000);
  return absl::StrFormat("%.3f s", value);
}

bool AtMost(const Row& row) { return row.goal.kind == Goal::Kind::kAtMost; }

Json RowJson(const Row& row) {
  const bool seconds = row.unit == Unit::kSeconds;
  const std::vector<double> none;
  const Figure figure = row.figure();
  return {{"name", row.name},
          {"unit", seconds ? "s" : "bytes"},
          {"ours_s", seconds ? row.ours : none},
          {"yardstick", row.yardstick},
          {"yardstick_s", seconds ? row.measure : none},
          {"ours_bytes", seconds ? none : row.ours},
          {"yardstick_bytes", seconds ? none : row.measure},
          {"allowance_s", row.goal.allowance},
          {"spread", Spread(row.measure)},
          {"ratio", figure.ratio},
          {"low", figure.low},
          {"high", figure.high},
          {"goal", row.goal.figure},
          {"goal_is", AtMost(row) ? "at most" : "at least"},
          {"met", row.met()}};
}

}  // namespace

Machine Machine::ThisOne() {
  utsname names;
  uname(&names);
  return {.cpu = CpuName(),
          .cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
          .memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
          .kernel = names.release,
          .folder = "",
          .file_system = "",
          .fio = ""};
}

std::string MachineLine(const Machine& machine) {
  return absl::StrCat(machine.cores, " cores (", machine.cpu, "), ",
                      HumanSize(machine.memory_bytes), ", Linux ", machine.kernel, "\n",
                      machine.folder, " on ", machine.file_system, "; fio: ", machine.fio, "\n");
}

std::string TableHead() {
  return absl::StrFormat("%-20s  %11s  %11s  %6s  %-20s  %-7s  %-4s  %s\n", "row", "ours",
                         "yardstick", "spread", "ratio [90 %]", "goal", "", "yardstick is");
}

std::string TableLine(const Row& row) {
  const Figure figure = row.figure();
  std::string note = row.yardstick;
  if (row.goal.allowance > 0) {
    absl::StrAppend(&note, "; ", Amount(row.goal.allowance, row.unit), " of ours not counted");
  }
  return absl::StrFormat(
      "%-20s  %11s  %11s  %4.0f %%  %-20s  %-7s  %-4s  %s\n", row.name,
      Amount(Median(row.ours), row.unit), Amount(Median(row.measure), row.unit),
      100 * Spread(row.measure),
      absl::StrFormat("%.2f [%.2f, %.2f]", figure.ratio, figure.low, figure.high),
      absl::StrFormat("%s %.2f", AtMost(row) ? "<=" : ">=", row.goal.figure),
      row.met() ? "met" : "MISS", note);
}

std::string ReportJson(const Machine& machine, int rounds, const std::vector<Row>& rows) {
  Json document = {{"machine",
                    {{"cpu", machine.cpu},
                     {"cores", machine.cores},
                     {"memory_bytes", machine.memory_bytes},
                     {"kernel", machine.kernel},
                     {"folder", machine.folder},
                     {"file_system", machine.file_system},
                     {"fio", machine.fio}}},
                   {"rounds", rounds},
                   {"rows", Json::array()}};
  for (const Row& row : rows) document["rows"].push_back(RowJson(row));
  return document.dump(2) + "\n";
}

}  // namespace ckptd::bench
