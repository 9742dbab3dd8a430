// Small but whole saves for tests: real records, real shard headers, a few bytes of data.
#ifndef CKPTD_TESTS_STORAGE_COMMIT_TEST_SAVE_H_
#define CKPTD_TESTS_STORAGE_COMMIT_TEST_SAVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "storage/disk/disk.h"
#include "storage/format/records.h"

namespace ckptd {

// What one node writes for an attempt.
struct TestNode {
  struct Shard {
    std::string name;
    std::string bytes;
  };
  std::vector<Shard> shards;
  Fragment fragment;
};

// Each rank has a rank-local tensor "w" of `tensor_bytes`, whose bytes depend on attempt and rank,
// and a small item "lr".
TestNode MakeTestNode(const AttemptRecord& record, absl::string_view node,
                      const std::vector<uint32_t>& ranks, uint64_t tensor_bytes = 8);

// A record of job "job", coordinated by node "a".
AttemptRecord MakeTestRecord(absl::string_view checkpoint_id, uint64_t sequence,
                             uint32_t world_size);

// Puts a committed checkpoint of one node "a" into `path`, as a save would have left it.
void PlantTestCheckpoint(Disk& disk, const std::string& path, const AttemptRecord& record,
                         const TestNode& node);

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_COMMIT_TEST_SAVE_H_
