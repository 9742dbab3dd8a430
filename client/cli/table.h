// Table lines texts up in columns for a terminal.
#ifndef CKPTD_CLIENT_CLI_TABLE_H_
#define CKPTD_CLIENT_CLI_TABLE_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ckptd {

// Text that a terminal shows as it is: control characters are escaped, so that a name can neither
// break a line nor move the cursor.
std::string Printable(absl::string_view text);

class Table {
 public:
  // A title that starts with '>' makes a column of numbers, lined up on the right.
  explicit Table(const std::vector<std::string>& titles);

  // One text per column.
  void Add(std::vector<std::string> row);

  bool empty() const { return rows_.size() == 1; }

  // Titles and rows, each with a line end and `indent` spaces before it.
  std::string Text(int indent = 0) const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // The first: the titles.
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CLI_TABLE_H_
