#include <triage/diagnostics.h>

#include <utility>

#include "runtime/messages/boundary.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/replay_settings.h"
#include "runtime/messages/debugging/repro_settings.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/debugging/verbose.h"
#include "runtime/messages/logs/artefacts.h"
#include "runtime/messages/logs/log_file.h"
#include "runtime/messages/profiling/profiler_spans.h"

namespace triage {

Diagnostics get_diagnostics() {
  const messages::ReproSettings repro = messages::repro_settings();
  return {messages::current_logs().text(),
          messages::log_file(),
          messages::debug_function(),
          messages::debug_dir(),
          messages::repro_after_word(repro.after),
          repro.level,
          repro.folder,
          repro.backends,
          messages::verbose(),
          messages::trace_dir(),
          messages::replay_dir(),
          messages::replay_mask(),
          messages::profiler_spans()};
}

void set_diagnostics(const Diagnostics& diagnostics) {
  messages::errors_only([&] {
    messages::Logs logs;
    logs.apply_list(diagnostics.logs);
    messages::ReproSettings repro;
    repro.after = messages::repro_after_from(diagnostics.repro_after);
    repro.level = messages::repro_level_from(diagnostics.repro_level);
    repro.folder = diagnostics.repro_dir;
    repro.backends = diagnostics.repro_backends;
    messages::set_log_file(diagnostics.log_file);
    messages::set_current_logs(logs);
    messages::set_debug_function(diagnostics.function);
    if (diagnostics.debug_dir != messages::debug_dir()) messages::set_debug_dir(diagnostics.debug_dir);
    if (diagnostics.trace_dir != messages::trace_dir()) messages::set_trace_dir(diagnostics.trace_dir);
    messages::set_repro_settings(std::move(repro));
    messages::set_verbose(diagnostics.verbose);
    messages::set_replay_dir(diagnostics.replay_dir);
    messages::set_replay_mask(diagnostics.replay_mask);
    messages::set_profiler_spans(diagnostics.profiler_spans);
  });
}

std::string logs_help() { return messages::artefacts_help(); }

}  // namespace triage
