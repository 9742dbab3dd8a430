// Where ckptctl reads and writes.
#ifndef CKPTD_CLIENT_CLI_TERMINAL_H_
#define CKPTD_CLIENT_CLI_TERMINAL_H_

#include <istream>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"

namespace ckptd {

struct Terminal {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool interactive = false;  // Someone can be asked.
  bool screen = false;       // `out` can be redrawn.
};

// `text` cut to a screen of `rows` and `columns`: lines that do not fit are counted in the last
// one. Each line ends by erasing what was there before. Characters count as one column each.
std::string FitToScreen(absl::string_view text, int rows, int columns);

// Draws `text` over what the screen shows.
void Redraw(absl::string_view text, std::ostream& out);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_TERMINAL_H_
