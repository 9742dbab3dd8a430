#include "storage/base/units.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "storage/base/status.h"

namespace ckptd {
namespace {

struct SizeUnit {
  absl::string_view name;
  int shift;
};
constexpr SizeUnit kSizeUnits[] = {{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};

struct DurationUnit {
  absl::string_view name;
  int64_t milliseconds;
};
constexpr DurationUnit kDurationUnits[] = {{"ms", 1}, {"h", 3600000}, {"m", 60000}, {"s", 1000}};

}  // namespace

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  absl::string_view digits = text;
  int shift = 0;
  for (const SizeUnit& unit : kSizeUnits) {
    if (absl::ConsumeSuffix(&digits, unit.name)) {
      shift = unit.shift;
      break;
    }
  }
  uint64_t value = 0;
  bool plain = !digits.empty() && digits.find_first_not_of("0123456789") == digits.npos;
  if (!plain || !absl::SimpleAtoi(digits, &value) || (value << shift) >> shift != value) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a size: \"", text, "\" (such as 4096, 64MiB or 1GiB)"));
  }
  return value << shift;
}

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  if (text == "0") return absl::ZeroDuration();
  absl::string_view digits = text;
  for (const DurationUnit& unit : kDurationUnits) {
    if (!absl::ConsumeSuffix(&digits, unit.name)) continue;
    double value = 0;
    bool plain = !digits.empty() && digits.find_first_not_of("0123456789.") == digits.npos;
    if (!plain || !absl::SimpleAtod(digits, &value) || value * unit.milliseconds > 1e15) break;
    return absl::Microseconds(static_cast<int64_t>(value * unit.milliseconds * 1000 + 0.5));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("not a duration: \"", text, "\" (such as 250ms, 10s or 2m)"));
}

std::string FormatSize(uint64_t bytes) {
  for (const SizeUnit& unit : kSizeUnits) {
    uint64_t one = uint64_t{1} << unit.shift;
    if (bytes != 0 && bytes % one == 0) return absl::StrCat(bytes / one, unit.name);
  }
  return absl::StrCat(bytes);
}

std::string HumanSize(uint64_t bytes) {
  for (const SizeUnit& unit : kSizeUnits) {
    double one = static_cast<double>(uint64_t{1} << unit.shift);
    if (bytes >= one) return absl::StrFormat("%.3g %s", bytes / one, unit.name);
  }
  return absl::StrCat(bytes, " B");
}

std::string FormatDuration(absl::Duration duration) {
  int64_t milliseconds = absl::ToInt64Milliseconds(duration);
  if (milliseconds % 1000 != 0) return absl::StrCat(milliseconds, "ms");
  int64_t seconds = milliseconds / 1000;
  if (seconds != 0 && seconds % 3600 == 0) return absl::StrCat(seconds / 3600, "h");
  if (seconds != 0 && seconds % 60 == 0) return absl::StrCat(seconds / 60, "m");
  return absl::StrCat(seconds, "s");
}

}  // namespace ckptd
