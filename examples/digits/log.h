#pragma once
#include <memory>

namespace spdlog {
class logger;
}

/// Writes nowhere: the demo tells itself what the runtime would log.
std::shared_ptr<spdlog::logger> quiet_logger();
