#pragma once
#include <triage/front_end.h>

#include <string>

#include "runtime/capture/graph_break.h"

/// What captures tell the trace (messages/debugging/trace_file.h). Nothing where it is off.
namespace triage::capture {

/// In the scope of the new graph.
void trace_capture(const Script& script, const std::string& backend);
/// The same for a graph between two graph breaks of a function.
void trace_segment(const std::string& function, const std::string& backend);
void trace_break(const Script& script, const GraphBreak& graph_break);
/// Why no graph fits a call.
void trace_recompile(const std::string& function, const Source& definition, const std::string& why);
/// The backend cannot compile a graph, and another answers in its place, or nobody.
void trace_failure(const Script& script, const std::string& backend, const std::string& message);

}  // namespace triage::capture
