#pragma once
#include <ATen/core/Tensor.h>
#include <triage/api.h>
#include <triage/cache_statistics.h>
#include <triage/graph.h>
#include <triage/masked_rows.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace triage {

/// The context of one call of an Executable. An Executable that calls others passes the deadline on.
struct CallContext {
  /// The call ends with LimitError after this time. An Executable that runs in steps checks it between steps. None: no
  /// limit.
  std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt;
  /// Donated inputs: outputs may take over their memory. An Executable passes them to others only if it knows that
  /// nobody reads these inputs afterwards.
  at::ArrayRef<at::Tensor> donated = {};
};

/// A compiled graph. Immutable; any number of threads may call `run` at once.
class TRIAGE_API Executable {
 public:
  virtual ~Executable() = default;
  /// `inputs` in the order of Graph::inputs() (params included, as 0-dim tensors). Appends to `outputs`, which is empty
  /// at entry, one tensor for each of Graph::outputs(). No output shares memory with an input, unless it *is* that
  /// input. If an operator fails, it throws PolicyError with ATen's message, the call and its script line.
  virtual void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                   const CallContext& call = {}) const = 0;
  /// Waits for all code that compiles in the background: loops for a GPU. Callable from any thread.
  virtual void finish_compiling() const {}
  /// Its fused loops, for inputs like those of the capture.
  virtual LoopTiers loops() const { return {}; }
  /// True if the call that captures the graph also takes its outputs from here, instead of from the recorded script. An
  /// Executable returns true if its bits or its gradients are not those of ATen's calls.
  virtual bool answers_capture() const { return false; }
  /// The number of operator calls that a run spares, about, against the same operators one by one. Where graph breaks
  /// leave nothing to gain, triage runs the script instead. An Executable that does not say is always used.
  virtual size_t spared_calls() const { return UINT32_MAX; }
  /// From now on it throws GraphError instead of falling back to another backend when it cannot compile what a call
  /// needs (`fail_on_backend_error`). Called before the first `run`.
  virtual void never_fall_back() {}
  /// Why the gradients of a call with these inputs may get values of rows that the graph masks; empty if they cannot,
  /// or if the call has no gradients. An Executable that leaves gradients to ATen says so, as this one does.
  virtual std::optional<UnmaskedRows> unmasked_rows(at::ArrayRef<at::Tensor> inputs) const;
  /// From now on it throws GraphError instead of computing such gradients. Called before the first `run`.
  virtual void require_masked_rows() {}
  /// Bytes that it keeps to interpret the graph, without tensors and code; 0 if unknown. Counted, not measured.
  virtual size_t bytes() const { return 0; }
};

/// Compiles a finished, verified graph to an Executable. `examples` are inputs of the shapes in use, in graph order.
/// The graph is constant: a backend that transforms or keeps it does so with a copy, `graph.clone()`.
using Backend =
    std::function<std::unique_ptr<Executable>(const graph::Graph& graph, const std::vector<at::Tensor>& examples)>;

/// Backends by name. Built in: `eager` (the ATen interpreter), `aot_eager` (forward and backward as one graph,
/// partitioned in two), `fused` (compiled loops over rows). For tests of failure handling there are also
/// `faulty_compile:OP`, `faulty_run:OP`, `faulty_result:OP`, which list_backends() omits (OP: an operator of the graph;
/// default `relu`). Thread-safe.
TRIAGE_API void register_backend(const std::string& name, Backend backend);
/// Throws InputError that lists the registered names.
TRIAGE_API Backend find_backend(const std::string& name);
TRIAGE_API std::vector<std::string> list_backends();

}  // namespace triage
