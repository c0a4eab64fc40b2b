#include "runtime/messages/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "runtime/messages/printable.h"

namespace triage::messages {
namespace {

/// Level, pattern and places are those of the logger behind it.
class OneLine final : public spdlog::sinks::sink {
 public:
  explicit OneLine(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}
  void log(const spdlog::details::log_msg& message) override {
    if (logger_->should_log(message.level))
      logger_->log(message.time, message.source, message.level,
                   one_line({message.payload.data(), message.payload.size()}));
  }
  void flush() override { logger_->flush(); }
  void set_pattern(const std::string&) override {}
  void set_formatter(std::unique_ptr<spdlog::formatter>) override {}

 private:
  std::shared_ptr<spdlog::logger> logger_;
};

}  // namespace

std::shared_ptr<spdlog::logger> line_by_line(std::shared_ptr<spdlog::logger> logger) {
  const std::string name = logger->name();
  auto result = std::make_shared<spdlog::logger>(name, std::make_shared<OneLine>(std::move(logger)));
  result->set_level(spdlog::level::trace);
  return result;
}

void warn(std::string_view text) { spdlog::default_logger()->warn("{}", one_line(text)); }

}  // namespace triage::messages
