#include "runtime/capture/reports/logs.h"

#include <utility>

#include "runtime/backends/graph_program.h"
#include "runtime/backends/shipped.h"
#include "runtime/capture/compiled.h"
#include "runtime/capture/reports/diagram.h"
#include "runtime/graph/text/describe.h"
#include "runtime/graph/text/graph_event.h"
#include "runtime/messages/debugging/debug_folder.h"
#include "runtime/messages/debugging/trace_file.h"
#include "runtime/messages/logs/artefacts.h"

namespace triage::capture {
std::string named(const std::string& name, const Source& definition) {
  const std::string place = definition.file + ":" + std::to_string(definition.line);
  return "'" + name + (definition.file.empty() || name == place ? "'" : "' (" + place + ")");
}

std::string span_name(const CacheEntry& entry) {
  return "graph " + entry.graph->name() + '[' + std::to_string(entry.number - 1) + ']';
}

std::string recompile_heading(const std::string& name, const Source& definition, Stance stance) {
  const std::string place = definition.file + ":" + std::to_string(definition.line);
  const bool told = definition.file.empty() || name == place;  // what has no name is called by its place
  const std::string function = "function " + name + (told ? "" : " in " + place);
  const std::string reasons = "\n  triggered by the following guard failure(s):";
  if (stance == Stance::default_stance) return "Recompiling " + function + reasons;
  const char* const then = stance == Stance::eager_then_compile ? "; the next call is captured" : "";
  return "Running the script of " + function + " (stance " + stance_name(stance) + then + ")" + reasons;
}

bool reports_recompiles(Stance stance) noexcept {
  return stance != Stance::force_eager && stance != Stance::fail_on_recompile;  // asks for no graph; the error says why
}

Backend with_step(Backend backend, std::string name) {
  if (name == "fused" || name == "aot_eager") return backend;
  return [backend = std::move(backend), name = std::move(name)](const graph::Graph& graph,
                                                                const std::vector<at::Tensor>& examples) {
    const messages::CompilationStep step(3, "backend '" + name + "'", graph.name(),
                                         "backend '" + name + "' compiles graph `" + graph.name() + "`");
    return backend(graph, examples);
  };
}

namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The graph as a program. A backend that only this process knows is `eager` there.
std::string runnable(const graph::Graph& graph, const std::vector<at::Tensor>& examples, const std::string& backend) {
  try {
    const bool known = is_shipped_backend(backend);
    graph::GraphProgram program = graph::program_of(graph, examples, known ? backend : "eager", /*keep_values=*/false);
    if (!known)
      program.comment =
          "Its backend is the script's own. To run the graph with it, register it here\n"
          "(triage.register_backend), and name it as `backend`.";
    return graph::text(program);
  } catch (const std::exception& error) {  // inputs that no program can make, such as sparse ones
    return "error(" + graph::string_literal("this graph cannot be a program: " + first_line(error.what())) + ")\n";
  }
}

}  // namespace

namespace {

/// In plain ATen too, where that is no long list.
void trace_stages(const graph::Graph& graph) {
  constexpr size_t most_decomposed = 200;  // nodes
  graph::trace_graph(graph, "captured");
  if (graph.nodes().size() > most_decomposed || !messages::trace_on()) return;
  try {
    graph::trace_graph(graph::decompose(graph), "plain ATen");
  } catch (const std::exception&) {  // the inputs have no types
  }
}

}  // namespace

void log_graph(const graph::Graph& graph, const std::vector<at::Tensor>& examples, const std::string& backend) {
  using messages::Artefact, messages::DebugFile;
  if (messages::wants_debug_file(DebugFile::graph_transformed))
    messages::write_debug_file(DebugFile::graph_transformed, graph::print(graph));
  if (messages::wants_debug_file(DebugFile::graph_runnable))
    messages::write_debug_file(DebugFile::graph_runnable, runnable(graph, examples, backend));
  draw_diagram(graph);
  trace_stages(graph);
  const std::string heading = "graph `" + graph.name() + "`, " + std::to_string(graph.nodes().size()) + " operations";
  if (messages::logs(Artefact::graph))
    messages::log_artefact(Artefact::graph, LogLevel::info, heading, graph::print(graph), graph.name());
  if (messages::logs(Artefact::graph_code))
    messages::log_artefact(Artefact::graph_code, LogLevel::debug, heading + ", in plain ATen",
                           graph::print(graph::decompose(graph)), graph.name());
}

void log_guards(const std::string& graph, const std::function<std::string()>& text) {
  using messages::Artefact, messages::DebugFile;
  if (messages::wants_debug_file(DebugFile::guards)) messages::write_debug_file(DebugFile::guards, text());
  messages::trace([&] { return messages::TraceEvent("guards").text("text", text()); });
  if (messages::logs(Artefact::guards))
    messages::log_artefact(Artefact::guards, LogLevel::debug, "guards of graph `" + graph + "`", text(), graph);
}

}  // namespace triage::capture
