#pragma once
#include <triage/backend.h>
#include <triage/graph.h>

#include <memory>
#include <string>
#include <utility>

#include "runtime/capture/graph_break.h"

namespace triage::capture {

/// Who wants to know what capture does. Called on the thread of the call, for calls that no graph answered;
/// thread-safe.
class CompileObserver {
 public:
  virtual ~CompileObserver() = default;
  virtual void compiled(const graph::Graph& graph) = 0;
  /// In one call, `times` over.
  virtual void met_break(const std::string& function, const GraphBreak& graph_break, size_t times) = 0;
  /// No graph fits a call, and another is captured, or the script runs because the limit is met. `why`: what the newest
  /// graph does not fit for.
  virtual void recompiled(const std::string& function, const Source& definition, const std::string& why) = 0;
  /// There may be no more graphs. `setting`: what raises the limit.
  virtual void met_limit(const std::string& function, const Source& definition, const std::string& limit,
                         const std::string& setting) = 0;
};

/// The backend, which tells `observer` of each graph that it compiles.
inline Backend observed(Backend backend, std::shared_ptr<CompileObserver> observer) {
  return [backend = std::move(backend), observer = std::move(observer)](const graph::Graph& graph,
                                                                        const std::vector<at::Tensor>& examples) {
    observer->compiled(graph);
    return backend(graph, examples);
  };
}

}  // namespace triage::capture
