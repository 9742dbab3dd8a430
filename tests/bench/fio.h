// The yardstick of the disk: fio with 4 MiB requests, io_uring, direct, depth 16, one job, fixed
// buffers and registered files, fsync at the end; without what the host or the file system forbids.
#ifndef CKPTD_TESTS_BENCH_FIO_H_
#define CKPTD_TESTS_BENCH_FIO_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ckptd::bench {

class Fio {
 public:
  // Tries what works in the folder. Unavailable if there is no fio.
  static absl::StatusOr<Fio> Probe(const std::string& folder);

  // What it uses, for people.
  const std::string& text() const { return text_; }

  // Seconds to write a fresh file of so many bytes and sync it. The file is gone afterwards.
  absl::StatusOr<double> Write(uint64_t bytes, bool preallocated) const;

  // Seconds to read the files, one after the other, their last part below 4 MiB counted by its
  // share. Buffered reads give the advice "sequential".
  absl::StatusOr<double> Read(const std::vector<std::string>& files, bool direct) const;

 private:
  Fio(std::string folder, std::vector<std::string> engine, std::string text);

  std::string folder_;
  std::vector<std::string> engine_;
  std::string text_;
};

}  // namespace ckptd::bench

#endif  // CKPTD_TESTS_BENCH_FIO_H_
