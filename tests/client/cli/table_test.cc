#include "client/cli/table.h"

#include "gtest/gtest.h"

namespace ckptd {
namespace {

TEST(Table, LinesColumnsUp) {
  Table table({"ID", ">SIZE", "WHY"});
  EXPECT_TRUE(table.empty());
  table.Add({"a", "10", "x"});
  table.Add({"größer", "5", ""});
  EXPECT_FALSE(table.empty());
  EXPECT_EQ(table.Text(),
            "ID      SIZE  WHY\n"
            "a         10  x\n"
            "größer     5\n");
  EXPECT_EQ(Table({"A"}).Text(2), "  A\n");
}

TEST(Table, KeepsControlCharactersFromTheTerminal) {
  Table table({"ID"});
  table.Add({"a\nb\x1b[2J"});
  EXPECT_EQ(table.Text(), "ID\na\\nb\\x1b[2J\n");
  EXPECT_EQ(Printable("größer \"x\""), "größer \"x\"");
}

}  // namespace
}  // namespace ckptd
