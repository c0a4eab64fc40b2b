#pragma once
#include <triage/log.h>

#include <memory>
#include <mutex>
#include <ostream>

namespace triage::test {

/// Tests that provoke what is reported need not show it.
inline Log no_log() {
  return [](const LogRecord&) {};
}

/// Lines such as "[warn] policy 'p': ...".
inline Log log_to(std::ostream& out) {
  return [&out, mutex = std::make_shared<std::mutex>()](const LogRecord& record) {
    const std::lock_guard lock(*mutex);
    out << '[' << to_string(record.level) << "] " << record.text << '\n';
  };
}

}  // namespace triage::test
