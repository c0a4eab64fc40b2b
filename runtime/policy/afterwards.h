#pragma once
#include "runtime/messages/logs/log.h"

#include <exception>

namespace triage::policy {

/// What follows a change that has happened: records of the log, what is kept for a restart, whom to tell. Where that
/// fails, mostly because memory is short, the change stands, and so does the answer of the call that led to it; the log
/// says so.
template <class Follow>
void afterwards(const messages::Logger& logger, const Follow& follow) noexcept {
  try {
    follow();
  } catch (const std::exception&) {
    logger.write(LogLevel::error,
                 "triage could not do all that follows a change, mostly because memory is short: records of the log "
                 "are missing, what is kept for a restart is as it was before, or a changed file is taken up later");
  }
}

}  // namespace triage::policy
