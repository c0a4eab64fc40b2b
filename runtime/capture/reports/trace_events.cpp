#include "runtime/capture/reports/trace_events.h"

#include "runtime/messages/debugging/trace_file.h"

namespace triage::capture {
namespace {

using messages::TraceEvent;

/// Functions are told apart by their names and where they begin.
TraceEvent of_function(const char* event, const std::string& function, const Source& definition) {
  TraceEvent made(event);
  made.text("function", function).text("file", definition.file).number("line", definition.line);
  return made;
}

TraceEvent of_script(const char* event, const Script& script) {
  return of_function(event, script.name(), script.definition().where);
}

}  // namespace

void trace_capture(const Script& script, const std::string& backend) {
  messages::trace([&] { return of_script("capture", script).text("backend", backend).json("segment", "false"); });
}

void trace_segment(const std::string& function, const std::string& backend) {
  messages::trace(
      [&] { return of_function("capture", function, {}).text("backend", backend).json("segment", "true"); });
}

void trace_break(const Script& script, const GraphBreak& graph_break) {
  messages::trace([&] {
    return of_script("break", script)
        .text("at_file", graph_break.where.file)
        .number("at_line", graph_break.where.line)
        .text("id", info(graph_break.kind).id)
        .text("what", graph_break.what)
        .text("explanation", info(graph_break.kind).explanation)
        .text("hint", graph_break.hint)
        .text("stack", graph_break.user_code);
  });
}

void trace_recompile(const std::string& function, const Source& definition, const std::string& why) {
  messages::trace([&] { return of_function("recompile", function, definition).text("why", why); });
}

void trace_failure(const Script& script, const std::string& backend, const std::string& message) {
  messages::trace([&] { return of_script("failure", script).text("backend", backend).text("message", message); });
}

}  // namespace triage::capture
