#pragma once
#include <memory>
#include <string_view>

namespace spdlog {
class logger;
}

namespace triage::messages {

/// Hands each message on to `logger`, on one line. Whatever the runtime logs goes through one of these.
std::shared_ptr<spdlog::logger> line_by_line(std::shared_ptr<spdlog::logger> logger);

/// The same for what is said where no Runtime is at hand: to spdlog's default logger.
void warn(std::string_view text);

}  // namespace triage::messages
