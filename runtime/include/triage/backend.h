#pragma once
#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace triage {

/// What the caller of an Executable says of one call. An Executable that calls others hands the deadline on.
struct CallContext {
  /// When the call gives up, with LimitError: who works step by step looks between steps. None: it takes the time it needs.
  std::optional<std::chrono::steady_clock::time_point> deadline = std::nullopt;
  /// Inputs that their owner gives up: their memory may become that of outputs. Not for others that the Executable calls,
  /// unless it knows that nobody reads those inputs behind them.
  at::ArrayRef<at::Tensor> donated = {};
};

/// What a backend makes of a graph. Immutable; `run` may be called by any number of threads at once.
class Executable {
 public:
  virtual ~Executable() = default;
  /// `inputs` in the order of Graph::inputs() (params included, as 0-dim tensors). Appends to `outputs`, which comes in
  /// empty, one tensor for each of Graph::outputs(). No output shares memory with an input, unless it *is* that input.
  /// Where an operator fails it throws PolicyError with ATen's message, the call and its script line.
  virtual void run(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs,
                   const CallContext& call = {}) const = 0;
  /// Waits until nothing about it gets faster any more (code compiled in the background). Callable from any thread.
  virtual void finish_compiling() const {}
  /// True where the call that captured the graph gets its outputs from here, too, and not from the script that was recorded:
  /// where this gives better gradients than ATen's own.
  virtual bool answers_capture() const { return false; }
  /// From now on it throws GraphError where another backend would serve in its place, since it cannot compile what a call
  /// needs (`fail_on_backend_error`). Called before the first `run`.
  virtual void never_fall_back() {}
  /// What it keeps to interpret the graph, counted; 0 where that is not known. Neither tensors nor code.
  virtual size_t bytes() const { return 0; }
};

/// Makes an Executable of a finished, verified graph. `examples` are inputs of the shapes in use, in graph order.
using Backend =
    std::function<std::unique_ptr<Executable>(const graph::Graph& graph, const std::vector<at::Tensor>& examples)>;

/// Backends by name. Always there: `eager` (the ATen interpreter), `aot_eager` (forward and backward as one graph, cut in
/// two), `fused` (compiled loops over rows). Also found, for tests of what handles failures, but not listed:
/// `faulty_compile:OP`, `faulty_run:OP`, `faulty_result:OP` (an operator of the graph; `relu` where none is named).
/// Thread-safe.
void register_backend(const std::string& name, Backend backend);
/// Throws InputError that lists the names there are.
Backend find_backend(const std::string& name);
std::vector<std::string> list_backends();

}  // namespace triage
