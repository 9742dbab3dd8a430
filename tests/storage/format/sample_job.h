// SampleJob writes the files of a small checkpoint into memory: shards, fragments, record,
// manifest.
#ifndef CKPTD_TESTS_STORAGE_FORMAT_SAMPLE_JOB_H_
#define CKPTD_TESTS_STORAGE_FORMAT_SAMPLE_JOB_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "storage/format/records.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {

// The bytes [begin, begin + bytes) of the value of this name. For a rank-local one the name is
// "<name>@rank<R>". Byte i is (CRC32C of the name + 31 i + i / 256) mod 256, or its lowest bit for
// `is_bool`.
std::string SampleBytes(const std::string& name, uint64_t begin, uint64_t bytes,
                        bool is_bool = false);

// A large item with its sample content.
ItemEntry LargeItem(const std::string& name, uint64_t bytes);

struct SampleFiles {
  std::map<std::string, std::string> bytes_by_name;  // Everything in the checkpoint's folder.
  AttemptRecord record;
  std::vector<FragmentFile> fragments;
  Manifest manifest;
};

// The checkpoint "step-17" of the job "demo": rank i, with plans[i], is on node nodes[i]. The plans
// must be valid and complete (CHECKed).
SampleFiles WriteSample(const std::vector<RankPlan>& plans, const std::vector<std::string>& nodes);

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_FORMAT_SAMPLE_JOB_H_
