#pragma once
#include <triage/backend.h>
#include <triage/compiler_config.h>
#include <triage/error.h>
#include <triage/graph.h>

#include <functional>
#include <string>
#include <vector>

namespace triage::capture {

struct CacheEntry;

/// "'repair' (repair.lua:3)": a function as warnings name it, with the line where it begins; without where that is its
/// name.
std::string named(const std::string& name, const Source& definition);

/// "graph repair[0]": a captured graph for LibTorch's profiler, the function's first one.
std::string span_name(const CacheEntry& entry);

/// How the report of a call begins that no graph fits; its reasons follow, a line each. What then happens, the stance
/// says.
std::string recompile_heading(const std::string& name, const Source& definition, Stance stance);
/// Is there anything to report under it?
bool reports_recompiles(Stance stance) noexcept;

/// The backend, called `name`, as a step in the log of captures; `fused` and `aot_eager` log steps of their own.
Backend with_step(Backend backend, std::string name);

/// To the logs `graph` and `graph_code` and to the debug folder, where these are on. The folder gets the graph as a
/// program too, with random inputs of the kinds of `examples`.
void log_graph(const graph::Graph& graph, const std::vector<at::Tensor>& examples, const std::string& backend);

/// To the log `guards`, the debug folder and the trace, where these are on: what `text` gives.
void log_guards(const std::string& graph, const std::function<std::string()>& text);

}  // namespace triage::capture
