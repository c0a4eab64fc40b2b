#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <triage/error.h>
#include <triage/typing.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The small interface through which `runtime/` reaches a script engine; `bindings/lua` implements it.
namespace triage {

/// A number the host may change per call: int64, double or bool, with its default.
struct Param {
  std::string name;
  c10::IValue value;
};

/// What a policy takes and gives. `outputs` is empty until the script says or has shown how many there are.
struct Signature {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<Param> params;
  /// Declared types of the inputs, in their order; empty where there are none. `run` throws a ValidationError for an input
  /// that does not fit.
  std::vector<std::optional<TensorSpec>> input_types = {};
  /// The same for the outputs. An answer that does not fit is a failure of the policy (PolicyError).
  std::vector<std::optional<TensorSpec>> output_types = {};
};

/// Budgets of one script. Zero means unlimited.
struct Limits {
  uint64_t instructions = 50'000'000;  // VM instructions per load, and per run of the function
  double seconds = 5.0;                // wall time, likewise
  size_t script_bytes = 64u << 20;     // interpreter memory (soft: checked, never refused in the allocator)
  size_t tensor_bytes = 4ull << 30;    // tensors alive that the script made
};

/// A function of the host that policies may call (a graph break): tensors in, tensors out.
struct HostFunction {
  std::string name;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> fn;
};

struct ScriptOptions {
  std::string path;  // names the chunk; "policies/repair.lua"
  Limits limits;
  bool trusted = false;  // it may call every operator of LibTorch, with any arguments (docs/operators.md)
  std::vector<HostFunction> host_functions;
  std::function<void(const std::string&)> print;  // where `print` of the script goes; default: stdout
};

/// One loaded version of a script, with an interpreter of its own. Not thread-safe: whoever calls it holds a mutex.
class Script {
 public:
  virtual ~Script() = default;
  virtual const std::string& name() const = 0;
  virtual const Signature& signature() const = 0;
  virtual bool fullgraph() const = 0;  // the script asked for one graph or an error
  /// Runs the policy's function once. It calls operators with `call_operator`, which may record and defer them. Where it,
  /// or what it calls, reads values of a tensor other than by an operator, it calls `break_graph`, and `materialize` with
  /// the tensor.
  /// `params` are 0-dim tensors in the order of the signature. Throws PolicyError, GraphBreakError, LimitError.
  virtual std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                                       std::optional<std::chrono::steady_clock::time_point> deadline) = 0;
  /// How often it has written to variables and tables so far (it may count too much): what was captured before a write that
  /// no recorder saw is not used again.
  virtual uint64_t writes() const { return 0; }
  /// The same for whoever asks whether a tensor may have been stored where it outlives the call.
  virtual uint64_t stores() const { return writes(); }
  /// Tensors from outside that the function reads, where they may be others in the next call: those of the call to come, or
  /// running. A graph takes them like inputs; their number and order, and which of them are the same tensor, never change.
  virtual at::ArrayRef<at::Tensor> variables() const { return {}; }
  /// What the script calls one of them, or what it finds it in; empty where that has no name.
  virtual std::string variable_name(size_t /*number*/) const { return {}; }
  /// Where its function begins, for messages; `quoted` is that place with its source line. Empty where it is not known.
  struct Definition {
    Source where;
    std::string quoted;
  };
  virtual Definition definition() const { return {}; }
  /// Of the last call: which outputs are flags.
  virtual const std::vector<bool>& flags_outputs() const = 0;
  /// The policy's own tests: each name with how it failed; empty message: passed.
  virtual std::vector<std::pair<std::string, std::string>> run_tests() = 0;
};

/// For front ends, on the thread that runs the script: calls `op`, as the dispatcher would, and captures it where the policy is
/// captured. `stack` ends with its arguments, then with its results. Throws what the operator throws, and GraphBreakError.
void call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// Computes what operators that were deferred have left of `tensor`.
void materialize(const at::Tensor& tensor);
/// The script does what one graph cannot hold: a clause that says what, and a sentence that says what to do instead.
/// Nothing happens where nothing is captured. Throws GraphBreakError where one graph is asked for.
void break_graph(const std::string& what, const std::string& hint = {});

/// Loads `source`, throws LoadError or LimitError. Thread-safe.
using FrontEnd = std::function<std::unique_ptr<Script>(std::string_view source, const ScriptOptions& options)>;

/// Registers the front end for a file ending (".lua").
void register_front_end(const std::string& ending, FrontEnd front_end);
/// Throws LoadError that says which library to link where none is registered for the ending of `path`.
FrontEnd find_front_end(const std::string& path);

}  // namespace triage
