#include "server/log.h"

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace ckptd {
namespace {

using testing::MatchesRegex;

// A logger that writes to a file, and what it has written.
class Log {
 public:
  Log(LogLevel level, LogFormat format) : file_(std::tmpfile()), logger_(level, format, file_) {}
  ~Log() { std::fclose(file_); }

  Logger& logger() { return logger_; }
  std::string Text() {
    std::rewind(file_);
    std::string text(1 << 20, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), file_));
    return text;
  }

 private:
  std::FILE* file_;
  Logger logger_;
};

TEST(Logger, WritesOneEventALineWithItsFields) {
  Log log(LogLevel::kInfo, LogFormat::kText);
  log.logger().Info("attempt.failed", {{"job", "llm"}, {"rank", 3}, {"why", "no space: /a b"}});
  EXPECT_THAT(log.Text(), MatchesRegex("[0-9-]+T[0-9:.]+Z info attempt.failed job=llm rank=3 "
                                       "why=\"no space: /a b\"\n"));
}

TEST(Logger, KeepsALineWholeWhateverIsInAValue) {
  Log log(LogLevel::kInfo, LogFormat::kText);
  log.logger().Warning("x", {{"a", "one\ntwo"}, {"b", ""}, {"c", "\xff"}, {"d", "%v {}"}});
  EXPECT_THAT(log.Text(),
              MatchesRegex(".* warning x a=\"one\\\\ntwo\" b=\"\" c=.* d=\"%v \\{\\}\"\n"));
}

TEST(Logger, WritesJsonThatParses) {
  Log log(LogLevel::kDebug, LogFormat::kJson);
  log.logger().Debug("a \"b\"", {{"text", "q\"\n\xfe"},
                                 {"count", uint64_t{1} << 63},
                                 {"ok", true},
                                 {"seconds", absl::Milliseconds(1500)}});
  nlohmann::json line = nlohmann::json::parse(log.Text());
  EXPECT_EQ(line["level"], "debug");
  EXPECT_EQ(line["event"], "a \"b\"");
  EXPECT_EQ(line["count"], uint64_t{1} << 63);
  EXPECT_EQ(line["ok"], true);
  EXPECT_EQ(line["seconds"], 1.5);
  EXPECT_THAT(line["time"].get<std::string>(), MatchesRegex("....-..-..T..:..:..\\....Z"));
}

TEST(Logger, DropsLowerLevels) {
  Log log(LogLevel::kWarning, LogFormat::kText);
  log.logger().Info("quiet");
  log.logger().Error("loud");
  EXPECT_THAT(log.Text(), MatchesRegex("[^\n]* error loud\n"));
}

TEST(Logger, ChoosesJsonWhereNoTerminalIs) {
  Log log(LogLevel::kInfo, LogFormat::kAuto);
  log.logger().Info("ready");
  EXPECT_EQ(nlohmann::json::parse(log.Text())["event"], "ready");
}

TEST(Logger, MayBeUsedByManyThreads) {
  Log log(LogLevel::kInfo, LogFormat::kText);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < 100; ++i) log.logger().Info("line", {{"thread", t}, {"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> lines = absl::StrSplit(log.Text(), '\n', absl::SkipEmpty());
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) {
    EXPECT_THAT(line, MatchesRegex("[^ ]+ info line thread=[0-9] i=[0-9]+"));
  }
}

}  // namespace
}  // namespace ckptd
