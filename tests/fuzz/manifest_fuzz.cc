// MANIFEST.pb. The input is the file without its checksum.
#include "storage/format/paths.h"
#include "storage/format/records.h"
#include "tests/fuzz/record.h"

namespace ckptd {
namespace {

void Run(absl::string_view input) {
  const auto manifest = CheckRecordInput(input, DecodeManifest, EncodeManifest);
  if (!manifest) return;
  CKPT_CHECK(manifest->world_size > 0, "a checkpoint has ranks");
  const FragmentRef* before = nullptr;
  for (const FragmentRef& fragment : manifest->fragments) {
    CKPT_CHECK(before == nullptr || before->node < fragment.node, "nodes are in order");
    CKPT_CHECK(fragment.file.find('/') == std::string::npos, "a fragment is in the same folder");
    CKPT_CHECK(NodeOfFragmentFile(fragment.file) == fragment.node,
               "a fragment has its node's name");
    before = &fragment;
  }
}

}  // namespace
}  // namespace ckptd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ckptd::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
