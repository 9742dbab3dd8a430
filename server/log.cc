#include "server/log.h"

#include <unistd.h>

#include <mutex>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "spdlog/logger.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/base_sink.h"

namespace ckptd {
namespace {

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The distribution's file sinks own their file or are bound to stdout and stderr; this one is
// neither.
class StreamSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit StreamSink(std::FILE* stream) : stream_(stream) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    std::fwrite(line.data(), 1, line.size(), stream_);
    std::fflush(stream_);
  }
  void flush_() override { std::fflush(stream_); }

 private:
  std::FILE* const stream_;
};

bool WantsJson(LogFormat format, std::FILE* stream) {
  if (format == LogFormat::kAuto) return isatty(fileno(stream)) == 0;
  return format == LogFormat::kJson;
}

// Text that is not UTF-8 is shown with replacement characters: a log line is for reading.
std::string Quote(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string TextValue(const LogValue& value) {
  const std::string& text = value.text();
  bool plain = !text.empty();
  for (unsigned char c : text)
    plain = plain && c > ' ' && c != '"' && c != '=' && c != '\\' && c < 0x7f;
  return plain ? text : Quote(text);
}

}  // namespace

LogValue::LogValue(absl::Duration value)
    : text_(absl::StrFormat("%.6g", absl::ToDoubleSeconds(value))) {}

struct Logger::Sink {
  explicit Sink(std::FILE* stream) : logger("ckptd", std::make_shared<StreamSink>(stream)) {}
  spdlog::logger logger;
};

Logger::Logger(LogLevel level, LogFormat format, std::FILE* stream)
    : level_(level), json_(WantsJson(format, stream)), sink_(std::make_unique<Sink>(stream)) {
  sink_->logger.set_level(SpdlogLevel(level));
  sink_->logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
      json_ ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::utc));
}

Logger::~Logger() = default;

void Logger::Log(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) {
  if (!Enabled(level)) return;
  std::string line =
      json_ ? absl::StrCat("\"event\":", Quote(std::string(event))) : std::string(event);
  for (const LogField& field : fields) {
    if (json_) {
      absl::StrAppend(&line, ",", Quote(std::string(field.key)), ":",
                      field.value.quoted() ? Quote(field.value.text()) : field.value.text());
    } else {
      absl::StrAppend(&line, " ", field.key, "=", TextValue(field.value));
    }
  }
  sink_->logger.log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace ckptd
