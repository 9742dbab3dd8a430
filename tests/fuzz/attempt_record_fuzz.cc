// ATTEMPT.pb. The input is the file without its checksum.
#include "storage/format/paths.h"
#include "storage/format/records.h"
#include "tests/fuzz/record.h"

namespace ckptd {
namespace {

void Run(absl::string_view input) {
  const auto record = CheckRecordInput(input, DecodeAttemptRecord, EncodeAttemptRecord);
  if (!record) return;
  CKPT_CHECK(record->world_size > 0, "an attempt has ranks");
  for (const std::string& name : {record->job, record->checkpoint_id, record->coordinator_node}) {
    const std::string file_name = EncodeName(name);
    CKPT_CHECK(file_name.size() <= kEncodedNameBytesMax, "a name is a file name");
    CKPT_CHECK(file_name.find('/') == std::string::npos && file_name[0] != '.',
               "a name stays in its folder");
    CKPT_CHECK(DecodeName(file_name) == name, "a file name gives its name back");
  }
  CKPT_CHECK(ParseAttemptName(ToString(record->attempt)) == record->attempt,
             "an attempt's name gives the attempt back");
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
