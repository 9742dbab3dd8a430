// Logger writes what happened, one event a line, with key=value fields in the words of the other
// interfaces:
//
//   2026-03-01T12:00:00.123Z info attempt.committed job=llm id=step-100 bytes=90866412
//   {"time":"2026-03-01T12:00:00.123Z","level":"info","event":"attempt.committed","job":"llm",…}
//
// Threads. Log() may be called from any thread; lines are written whole.
#ifndef CKPTD_SERVER_LOG_H_
#define CKPTD_SERVER_LOG_H_

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ckptd {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kAuto, kText, kJson };  // Auto: text on a terminal, JSON elsewhere.

// A field's value as text. Numbers and truth values stay such in JSON.
class LogValue {
 public:
  LogValue(absl::string_view text) : text_(text), quoted_(true) {}
  LogValue(const std::string& text) : text_(text), quoted_(true) {}
  LogValue(const char* text) : text_(text), quoted_(true) {}
  LogValue(bool value) : text_(value ? "true" : "false") {}
  LogValue(double value) : text_(absl::StrCat(value)) {}
  template <std::integral Integer>
  LogValue(Integer value) : text_(absl::StrCat(value)) {}
  LogValue(absl::Duration value);  // Decimal seconds.

  const std::string& text() const { return text_; }
  bool quoted() const { return quoted_; }

 private:
  std::string text_;
  bool quoted_ = false;  // In JSON.
};

struct LogField {
  absl::string_view key;
  LogValue value;
};

class Logger {
 public:
  // Lines of a lower level than `level` are dropped. `stream` is not owned and outlives the logger.
  Logger(LogLevel level, LogFormat format, std::FILE* stream = stderr);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool Enabled(LogLevel level) const { return level >= level_; }

  void Log(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields = {});

  void Debug(absl::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogLevel::kDebug, event, fields);
  }
  void Info(absl::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogLevel::kInfo, event, fields);
  }
  void Warning(absl::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogLevel::kWarning, event, fields);
  }
  void Error(absl::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogLevel::kError, event, fields);
  }

 private:
  struct Sink;

  const LogLevel level_;
  const bool json_;
  const std::unique_ptr<Sink> sink_;
};

}  // namespace ckptd

#endif  // CKPTD_SERVER_LOG_H_
