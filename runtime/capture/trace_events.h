#pragma once
#include <triage/front_end.h>

#include <string>

#include "runtime/capture/graph_break.h"

/// What captures tell the trace (messages/trace_file.h). Nothing where it is off.
namespace triage::capture {

/// In the scope of the new graph. `segment`: of a function with graph breaks, one of its graphs.
void trace_capture(const std::string& function, const Source& definition, const std::string& backend, bool segment);
void trace_guards(const std::string& guards);
void trace_break(const std::string& function, const Source& definition, const GraphBreak& graph_break);
/// Why no graph fits a call.
void trace_recompile(const std::string& function, const Source& definition, const std::string& why);
/// The backend cannot compile a graph, and another answers in its place, or nobody.
void trace_failure(const std::string& function, const Source& definition, const std::string& backend,
                   const std::string& message);

}  // namespace triage::capture
