#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>
#include <triage/api.h>
#include <triage/config.h>
#include <triage/error.h>
#include <triage/layout.h>
#include <triage/masked_rows.h>
#include <triage/typing.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The interface between triage and a script engine. The front end for Lua implements it; an engine outside of triage
/// needs nothing else.
namespace triage {

namespace given {
struct Callee;
}

/// A value that the host may change per call, and what it may change it to. A value that is not allowed is an
/// InputError of the call, or of `set_param`.
struct Param {
  std::string name;
  /// The default, which sets the type: int64, double, bool, a list of int64 or double, or a tensor.
  c10::IValue value;
  /// The smallest and the largest allowed number, which each element of a list or tensor is held to; none: no bound.
  /// NaN is not allowed where there is a bound.
  std::optional<c10::Scalar> min = {};
  std::optional<c10::Scalar> max = {};
  std::vector<c10::Scalar> values = {};  ///< unless empty: these numbers alone
  bool finite = true;                    ///< NaN and Inf are not allowed
  std::string help = {};                 ///< one line for people; may be empty
};

/// A tensor that a policy keeps from one call to the next.
struct StateSpec {
  std::string name;
  /// An exact dtype and fixed sizes. The name "N" as the first dimension is the batch: the first size of the first
  /// input that has dimensions.
  TensorSpec type;
  c10::Scalar init = 0;  // the value of all elements before the first call
};

/// What a policy declares of the values of an output. Each call checks it, in the loop that writes the output.
struct TRIAGE_API OutputRange {
  bool finite = false;  ///< no NaN and no Inf
  /// The smallest and the largest allowed number; none: no bound. NaN is not allowed where there is a bound.
  std::optional<c10::Scalar> min = {};
  std::optional<c10::Scalar> max = {};
  /// "finite", "0 to 1", "at least 0, finite".
  std::string text() const;
};

/// What `run` does with samples of an output that are not within its declared range. Each is counted
/// (CallStatistics::violations), whatever is done.
enum class OnViolation : uint8_t {
  flag,          ///< their records get NAN, INF or OUT_OF_BOUNDS, CRITICAL, at the location `output.<name>`
  pass_through,  ///< the same, and their rows of outputs that are named as inputs are those of these inputs
  revert,        ///< the version before answers and is live again, if it keeps to its own ranges; else as `flag`
};
/// "flag", "pass_through", "revert".
TRIAGE_API const char* to_string(OnViolation on_violation) noexcept;

/// The inputs, outputs and params of a policy. `outputs` is empty until the script names them or a run shows their
/// number.
struct Signature {
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<Param> params;
  /// Declared types of the inputs, in their order; empty if there are none. `run` throws a ValidationError for an input
  /// that does not fit.
  std::vector<std::optional<TensorSpec>> input_types = {};
  /// The same for the outputs. An answer that does not fit is a failure of the policy (PolicyError).
  std::vector<std::optional<TensorSpec>> output_types = {};
  /// What the policy keeps between calls, in the order of names. No part of what hosts pass or get.
  std::vector<StateSpec> state = {};
  /// What the policy calls the free codes. Another policy of the process may call them otherwise.
  CodeNames codes = {};
  /// Declared ranges of the outputs, in their order; empty if there are none.
  std::vector<std::optional<OutputRange>> output_ranges = {};

  /// Names of locations: the first positions of errors in a sample are kept of what is searched there (FirstPositions).
  std::vector<std::string> positions = {};

  /// How many outputs have a range: so many masks `Script::call` returns behind its state, and then the `positions`.
  size_t num_ranges() const noexcept {
    size_t count = 0;
    for (const auto& range : output_ranges) count += range.has_value();
    return count;
  }
};

/// What `run` does when the policy itself fails: an error in its code, an operator that throws, an exhausted budget or
/// deadline. A call that does not fit the signature is an error of the host and always throws InputError.
enum class OnError : uint8_t {
  raise,         ///< throw
  pass_through,  ///< an output named as an input is that input, untouched; flags outputs have UNKNOWN everywhere.
                 ///< If the policy has any other output, `run` throws and names that output.
  last_good,     ///< answer with the latest earlier version that has run without failing; throw if there is none
};

/// "raise", "pass_through", "last_good".
TRIAGE_API const char* to_string(OnError on_error) noexcept;

/// Budgets of one script. Zero means unlimited, and so does the largest value.
struct Limits {
  uint64_t instructions = 50'000'000;  // VM instructions per load, and per run of the function
  double seconds = 5.0;                // wall time, likewise; more than 1e8, three years, is unlimited
  size_t script_bytes = 64u << 20;     // interpreter memory (soft: checked, never refused in the allocator)
  size_t tensor_bytes = 4ull << 30;    // live tensors that the script made
};

/// A function or module of the host that policies may call: tensors in, tensors out. Front ends call it with
/// `call_host_function`.
struct HostFunction {
  std::string name;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> fn;
  /// Of pure functions and modules, which are nodes of graphs; null for others, whose calls are graph breaks. `fn` is
  /// empty then.
  std::shared_ptr<const given::Callee> callee = nullptr;
};

/// A tensor of the host that policies may read, and never write to: `call_operator` refuses that.
struct HostTensor {
  std::string name;
  at::Tensor tensor;
};

struct ScriptOptions {
  std::string path;  // the name of the chunk; "policies/repair.lua"
  Limits limits;
  bool trusted = false;  // it may call every operator of LibTorch, with any arguments (docs/operators.md)
  std::vector<HostFunction> host_functions;
  std::vector<HostTensor> host_tensors;
  std::function<void(const std::string&)> print;  // the target of `print` in the script; default: stdout
  /// Gives the bytes of a file of the policy: `name` is relative to the folder of its source file, with `/` between
  /// folders ("lib/clip.lua"). Called only while the script is loaded; what it gives is part of the version, and never
  /// changes for a name. Throws FileError for a name that leads out of the folder, and for a file that is missing, is
  /// no regular file, is too large, or is refused by RuntimeOptions::verify. Null: the policy has no folder
  /// (Runtime::load_source).
  std::function<std::shared_ptr<const std::string>(const std::string& name)> read_file = {};
};

/// One loaded version of a script, with its own interpreter. Not thread-safe: the caller holds a mutex.
class TRIAGE_API Script {
 public:
  virtual ~Script() = default;
  virtual const std::string& name() const = 0;
  virtual const Signature& signature() const = 0;
  virtual bool fullgraph() const = 0;  // the script requires one graph
  /// What the script wants where rows that it masks may reach gradients.
  virtual MaskedRows masked_rows() const { return MaskedRows::warn; }
  /// What the script wants done when it fails; none: what the host says.
  virtual std::optional<OnError> on_error() const { return {}; }
  virtual OnViolation on_violation() const { return OnViolation::flag; }
  /// How errors accumulate in its flags, where it passes operators no configuration; none: as get_config() says.
  virtual std::optional<AccumulationConfig> accumulation() const { return {}; }
  /// Runs the policy's function once. It calls operators with `call_operator`, which may record and defer them. Before
  /// it, or a function that it calls, reads values of a tensor without an operator, it calls `break_graph`, and
  /// `materialize` with the tensor. `params` are in the order of the signature: 0-dim tensors for numbers and booleans,
  /// 1-D ones for lists (float32 or int64); then come the tensors of its state. The new state comes behind the outputs,
  /// in the same order, and then for each output with a range a mask, bool of shape (N): true for samples that are not
  /// within it. Throws PolicyError, GraphBreakError, LimitError.
  virtual std::vector<at::Tensor> call(at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                                       std::optional<std::chrono::steady_clock::time_point> deadline) = 0;
  /// Counts writes to variables and tables so far (it may overcount): triage does not use a graph again that was
  /// captured before a write that no recorder saw.
  virtual uint64_t writes() const { return 0; }
  /// Counts stores that may let a tensor outlive the call.
  virtual uint64_t stores() const { return writes(); }
  /// Outside tensors that the function reads and that may differ in each call: those of the next or current call. A
  /// graph takes them as inputs; their number and order, and which of them are the same tensor, never change.
  virtual at::ArrayRef<at::Tensor> variables() const { return {}; }
  /// The name of one of them in the script, or of the object that holds it; empty if it has none.
  virtual std::string variable_name(size_t /*number*/) const { return {}; }
  /// The start of its function, for messages; `quoted` is the position with its source line. Empty if unknown.
  struct Definition {
    Source where;
    std::string quoted;
  };
  virtual Definition definition() const { return {}; }
  /// Flags with locations that the script named may be where triage does not see them: the names last. Thread-safe.
  virtual void keep_locations() noexcept {}
  /// Which outputs of the last call are flags; without the state and the masks.
  virtual const std::vector<bool>& flags_outputs() const = 0;
  /// Runs the policy's own tests: each name with its failure message; an empty message means passed.
  virtual std::vector<std::pair<std::string, std::string>> run_tests() = 0;
};

/// For front ends, on the thread that runs the script: calls `op`, as the dispatcher would, and records it during
/// capture. `stack` ends with the arguments at entry, with the results at exit. Throws GraphBreakError; exceptions of
/// the operator pass through.
TRIAGE_API void call_operator(const c10::OperatorHandle& op, torch::jit::Stack& stack);
/// Runs the deferred operators that `tensor` depends on.
TRIAGE_API void materialize(const at::Tensor& tensor);
/// Reports an operation that one graph cannot hold: `what` is a clause that names it, `hint` a sentence that says what
/// to do instead. Does nothing outside capture. Throws GraphBreakError if one graph is required.
TRIAGE_API void break_graph(const std::string& what, const std::string& hint = {});

/// Loads `source`, throws LoadError or LimitError. Thread-safe.
using FrontEnd = std::function<std::unique_ptr<Script>(std::string_view source, const ScriptOptions& options)>;

/// Calls a function of the host (ScriptOptions::host_functions), which is a graph break, unless it has a `callee`: then
/// it is an operator like others. A reload tries a new version on synthetic inputs: then it does not call a function
/// without `callee` but throws Error, which the front end passes on. It throws GraphBreakError if one graph is
/// required; exceptions of the function pass through, as PolicyError if they are no std::exception.
TRIAGE_API std::vector<at::Tensor> call_host_function(const HostFunction& function,
                                                      const std::vector<at::Tensor>& arguments);

/// Registers the front end for a file extension (".lua").
TRIAGE_API void register_front_end(const std::string& ending, FrontEnd front_end);
/// Throws LoadError that names the library to link if no front end is registered for the extension of `path`.
TRIAGE_API FrontEnd find_front_end(const std::string& path);

}  // namespace triage
