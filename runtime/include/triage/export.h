#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/front_end.h>
#include <triage/graph.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// A captured function as a program of its own: no script, no guards, no cache. After torch.export's ExportedProgram.
namespace triage {

/// A dimension of an input that may be of another size in each call. Dimensions with one symbol are of one size.
struct DynamicDim {
  size_t input = 0;
  int64_t dim = 0;
  std::string symbol;  // an identifier: "s0", "batch"
};

/// Bounds of a size, both included.
struct SizeBounds {
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
};

struct ExportOptions {
  std::vector<DynamicDim> dynamic_dims = {};      // every other size is that of the example
  std::map<std::string, SizeBounds> bounds = {};  // by symbol
  /// Of each tensor input, the first that is the same tensor (itself, where none is); each run is then held to it. Empty:
  /// inputs may be one tensor or not. `export_function` and `export_script` find out which it is.
  std::vector<size_t> same_inputs = {};
  /// Its calls of operators are held to their contracts: who wrote it is not trusted.
  bool by_contract = false;
};

/// A graph with what it holds for: types of its inputs, the sizes that may vary, the ranges of its symbols. Immutable; cheap to
/// copy; every function may be called by any number of threads at once.
class ExportedProgram {
 public:
  /// `graph` as captured, its inputs with their types (`Value::meta`); `params`: the defaults of those of its inputs that are
  /// params, in their order; `notes`: what a reader should know about it, one line each. Throws GraphError where the graph does
  /// not verify, InputError where the options do not fit it.
  ExportedProgram(graph::Graph graph, ExportOptions options = {}, std::vector<c10::IValue> params = {},
                  std::vector<std::string> notes = {});

  /// Runs it on tensors of the types and sizes it was exported for (params: their defaults, unless given behind the tensors as
  /// 0-dim tensors). Throws InputError that names the input and what is wrong, PolicyError where an operator fails or an
  /// assertion does not hold, LimitError past the deadline: between operators, and before one that may take longer than what is
  /// left, where the program is held to contracts. A function of the host that a policy calls runs programs in the time of that
  /// call.
  std::vector<at::Tensor> run(at::ArrayRef<at::Tensor> inputs,
                              std::optional<std::chrono::steady_clock::time_point> deadline = {}) const;

  /// The program with types, symbols, signature and range constraints, as people read it.
  std::string text() const;
  const graph::Graph& graph() const;
  const ExportOptions& options() const;

  /// The same program in plain ATen: no operator of triage is left.
  ExportedProgram run_decompositions() const;
  /// Checks all invariants again; throws GraphError.
  void verify() const;

  /// A text file that holds everything, tensors bit for bit. Throws FileError; the file is written whole or not at all.
  void save(const std::string& path) const;
  /// Throws FileError where there is no such file, or it is none of these; it is read with suspicion, and verified. Nothing of
  /// it runs before `run`, or before `text` is asked for. Unless it is `trusted`, its calls of operators are held to their
  /// contracts (docs/operators.md), now and whenever it runs.
  static ExportedProgram load(const std::string& path, bool trusted = false);

  /// A TorchScript module whose `forward` computes the same bits without triage: torch.jit.load reads it. Params become keyword
  /// arguments with their defaults. Throws GraphError naming an operator that TorchScript cannot call.
  void save_torchscript(const std::string& path) const;

  struct State;  // runtime/export/state.h

 private:
  explicit ExportedProgram(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// Runs `fn` on `inputs` and makes a program of what it does to them. Throws GraphBreakError at whatever one graph cannot
/// hold, InputError where the script fixed a size that was to be dynamic, and what `fn` throws. Where inputs could be one tensor
/// (their types allow it), `fn` runs again with them so: where it then does something else, as a function may that compares its
/// arguments, the program is held to what `inputs` are (`ExportOptions::same_inputs`); errors of those runs go nowhere else.
ExportedProgram export_function(const std::string& name, const std::vector<std::string>& input_names,
                                at::ArrayRef<at::Tensor> inputs,
                                const std::function<std::vector<at::Tensor>(at::ArrayRef<at::Tensor>)>& fn,
                                const ExportOptions& options = {});

/// The same of a policy's script: its params stay inputs of the program, with `params` (0-dim tensors in the order of the
/// signature) as their defaults.
ExportedProgram export_script(Script& script, at::ArrayRef<at::Tensor> inputs, at::ArrayRef<at::Tensor> params,
                              const ExportOptions& options = {});

}  // namespace triage
