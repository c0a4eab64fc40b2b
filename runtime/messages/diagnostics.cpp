#include <triage/diagnostics.h>

#include "runtime/messages/artefacts.h"
#include "runtime/messages/log_file.h"

namespace triage {

Diagnostics get_diagnostics() {
  return {messages::current_logs().text(), messages::log_file(), messages::debug_function()};
}

void set_diagnostics(const Diagnostics& diagnostics) {
  messages::Logs logs;
  logs.apply_list(diagnostics.logs);
  messages::set_log_file(diagnostics.log_file);
  messages::set_current_logs(logs);
  messages::set_debug_function(diagnostics.function);
}

std::string logs_help() { return messages::artefacts_help(); }

}  // namespace triage
