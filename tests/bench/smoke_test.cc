// The benchmark runs, small and with two rounds: every row is measured and told. What the figures
// are does not matter here.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace {

using Json = nlohmann::json;

TEST(Bench, MeasuresEveryRowAndWritesTheReport) {
  const std::string folder = testing::TempDir();
  const std::string report = folder + "/report.json";
  const std::string command = "tests/bench/bench --rounds 2 --scale 0.002 --dir '" + folder +
                              "' --json '" + report + "' >&2";
  const int end = std::system(command.c_str());
  ASSERT_TRUE(WIFEXITED(end));
  EXPECT_EQ(WEXITSTATUS(end), 0);

  const Json document = Json::parse(std::ifstream(report));
  EXPECT_EQ(document["rounds"], 2);
  EXPECT_GT(document["machine"]["cores"], 0);
  std::set<std::string> names;
  for (const Json& row : document["rows"]) {
    SCOPED_TRACE(row.dump());
    names.insert(row["name"]);
    const bool seconds = row["unit"] == "s";
    EXPECT_EQ(row["ours_s"].size(), seconds ? 2 : 0);
    EXPECT_EQ(row["yardstick_s"].size(), seconds ? 2 : 0);
    EXPECT_EQ(row["ours_bytes"].size(), seconds ? 0 : 2);
    EXPECT_EQ(row["yardstick_bytes"].size(), seconds ? 0 : 2);
    EXPECT_FALSE(row["yardstick"].get<std::string>().empty());
    EXPECT_LE(row["low"], row["ratio"]);
    EXPECT_GE(row["high"], row["ratio"]);
    EXPECT_GT(row["goal"], 0);
    EXPECT_TRUE(row["met"].is_boolean());
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"block.W1", "block.W2", "block.model", "first.W1", "durable.W1",
                                   "durable.W2", "durable.W1.posix", "durable.W1.fallocate",
                                   "load.W1", "load.W1.one", "load.W2", "load.W2.one", "cpu.write",
                                   "cpu.idle", "rss.plan"}));
}

}  // namespace
