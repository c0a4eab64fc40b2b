#pragma once
#include <triage/graph.h>

namespace triage::capture {

/// graph.dot and graph.svg of the debug folder, where they are asked for. Graphviz draws the second one, as a process
/// of its own: the program `triage` starts it, a host does not.
void draw_diagram(const graph::Graph& graph);

}  // namespace triage::capture
