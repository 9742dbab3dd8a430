// How the benchmark tells its figures: a line of the table for each row, and the JSON document.
#ifndef CKPTD_TESTS_BENCH_REPORT_H_
#define CKPTD_TESTS_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "tests/bench/row.h"

namespace ckptd::bench {

struct Machine {
  std::string cpu;
  int cores = 0;
  uint64_t memory_bytes = 0;
  std::string kernel;
  std::string folder;
  std::string file_system;  // The folder's.
  std::string fio;          // What fio uses there.

  static Machine ThisOne();  // Without what belongs to the folder.
};

std::string MachineLine(const Machine& machine);
std::string TableHead();
std::string TableLine(const Row& row);

// {machine,rounds,rows:[{name,unit,ours_s,yardstick,yardstick_s,ours_bytes,yardstick_bytes,
// allowance_s,spread,ratio,low,high,goal,goal_is,met}]}: the samples are in the lists of the row's
// unit.
std::string ReportJson(const Machine& machine, int rounds, const std::vector<Row>& rows);

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_REPORT_H_
