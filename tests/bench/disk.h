// The disk that the benchmark runs on: what it is, and the same state before each measurement.
#ifndef CKPTD_TESTS_BENCH_DISK_H_
#define CKPTD_TESTS_BENCH_DISK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace ckptd::bench {

// "ext4", or the magic number of one that we do not know.
std::string FileSystemOf(const std::string& folder);

// Waits until what was written is on the disk and the disk has discarded what was deleted, for a
// few seconds at most: a fresh file is slow to write while it still does.
absl::Status Settle(const std::string& folder);

// Takes the files out of the page cache.
absl::Status DropCaches(const std::vector<std::string>& files);

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_DISK_H_
