// OUTCOME.pb of a failed attempt. The input is the file without its checksum.
#include "storage/format/records.h"
#include "tests/fuzz/record.h"

namespace ckptd {
namespace {

void Run(absl::string_view input) {
  const auto outcome = CheckRecordInput(input, DecodeOutcome, EncodeOutcome);
  if (!outcome) return;
  CKPT_CHECK(!outcome->failure.status.ok(), "a failed attempt has an error");
  CKPT_CHECK(!outcome->record.job.empty(), "a failed attempt has a job");
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
