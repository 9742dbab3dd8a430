// One rank as a process of its own, which does what the lines on stdin tell it. Every line is
// answered by one on stdout: "ok" and figures, or "error" and a text.
//
//     copy AT                        seconds
//     open SESSION SOCKET JOB INCARNATION
//     prewarm SESSION
//     save SESSION ID AT             seconds blocked; staged now
//     wait SESSION                   of the last save, when it is committed: seconds to durable,
//     bytes load SESSION ID AT             seconds, bytes that came from memory close SESSION
//
// AT is the nanosecond of CLOCK_MONOTONIC at which all ranks begin. Ends with its stdin.
#ifndef CKPTD_TESTS_BENCH_RANK_PROCESS_H_
#define CKPTD_TESTS_BENCH_RANK_PROCESS_H_

#include <cstdint>

#include "tests/bench/workload.h"

namespace ckptd::bench {

int RunRankProcess(const Workload& workload, uint32_t rank);  // The exit code.

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_RANK_PROCESS_H_
