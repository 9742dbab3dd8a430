#include "client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ckptd {
namespace {

constexpr char kHome[] = "\x1b[H";
constexpr char kEraseLine[] = "\x1b[K";
constexpr char kEraseBelow[] = "\x1b[J";

// The first `columns` characters of UTF-8.
absl::string_view Cut(absl::string_view line, int columns) {
  int characters = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    bool begins = (line[i] & 0xc0) != 0x80;
    if (begins && ++characters > columns) return line.substr(0, i);
  }
  return line;
}

}  // namespace

std::string FitToScreen(absl::string_view text, int rows, int columns) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  // The last row stays free: a line end there would move everything up.
  size_t room = static_cast<size_t>(std::max(rows, 2)) - 1;
  if (lines.size() > room) {
    size_t hidden = lines.size() - room + 1;
    lines.resize(room);
    lines.back() = absl::StrCat("… ", hidden, " more lines");
  }
  std::string fitted;
  for (const std::string& line : lines) {
    absl::StrAppend(&fitted, Cut(line, std::max(columns, 1)), kEraseLine, "\n");
  }
  return fitted;
}

void Redraw(absl::string_view text, std::ostream& out) {
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) size = {24, 80, 0, 0};
  out << kHome << FitToScreen(text, size.ws_row, size.ws_col) << kEraseBelow << std::flush;
}

}  // namespace ckptd
