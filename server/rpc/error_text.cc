#include "server/rpc/error_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "storage/plan/rank_plan.h"

namespace ckptd {
namespace {

// gRPC refuses trailers of more than 8 KiB, in which one byte may take three.
constexpr size_t kTextBytesMax = 2000;

std::string Shortened(absl::string_view text) {
  if (text.size() <= kTextBytesMax) return std::string(text);
  size_t cut = kTextBytesMax;
  while (cut > kTextBytesMax - 3 && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) --cut;
  return std::string(text.substr(0, cut)) + "...";
}

}  // namespace

std::string ErrorText(const absl::Status& status) {
  std::string text = Shortened(status.message());
  return CheckEntryName(text).ok() ? text : Shortened(absl::CHexEscape(text));
}

}  // namespace ckptd
