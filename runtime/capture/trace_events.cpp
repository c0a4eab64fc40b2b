#include "runtime/capture/trace_events.h"

#include "runtime/messages/trace_file.h"

namespace triage::capture {
namespace {

using messages::TraceEvent;

/// Functions are told apart by their names and where they begin.
TraceEvent of_function(const char* event, const std::string& function, const Source& definition) {
  TraceEvent made(event);
  made.text("function", function).text("file", definition.file).number("line", definition.line);
  return made;
}

}  // namespace

void trace_capture(const std::string& function, const Source& definition, const std::string& backend, bool segment) {
  messages::trace([&] {
    return of_function("capture", function, definition)
        .text("backend", backend)
        .json("segment", segment ? "true" : "false");
  });
}

void trace_guards(const std::string& guards) {
  messages::trace([&] { return TraceEvent("guards").text("text", guards); });
}

void trace_break(const std::string& function, const Source& definition, const GraphBreak& graph_break) {
  messages::trace([&] {
    return of_function("break", function, definition)
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

void trace_failure(const std::string& function, const Source& definition, const std::string& backend,
                   const std::string& message) {
  messages::trace([&] {
    return of_function("failure", function, definition).text("backend", backend).text("message", message);
  });
}

}  // namespace triage::capture
