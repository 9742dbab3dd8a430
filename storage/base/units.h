// Sizes and durations as people write them: 4096 64MiB 1GiB; 250ms 10s 2m.
#ifndef CKPTD_STORAGE_BASE_UNITS_H_
#define CKPTD_STORAGE_BASE_UNITS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ckptd {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

// A whole number of bytes, or with the unit KiB, MiB, GiB or TiB. InvalidArgument names the text.
absl::StatusOr<uint64_t> ParseSize(absl::string_view text);

// A decimal number with the unit ms, s, m or h; "0" needs none. Never negative. InvalidArgument
// names the text.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// The shortest exact form that ParseSize() reads back: "16MiB", "4097".
std::string FormatSize(uint64_t bytes);

// For people, three digits: "90.9 MB" is never meant, units are binary: "86.7 MiB".
std::string HumanSize(uint64_t bytes);

// The shortest exact form that ParseDuration() reads back: "10s", "250ms".
std::string FormatDuration(absl::Duration duration);

constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace ckptd

#endif  // CKPTD_STORAGE_BASE_UNITS_H_
