#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/api.h>
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

/// A captured function as a standalone program: no script, no guards, no cache. Modelled on torch.export's
/// ExportedProgram.
namespace triage {

/// A dynamic dimension of an input: its size may differ in each call. Dimensions with one symbol have one size.
struct DynamicDim {
  size_t input = 0;
  int64_t dim = 0;
  std::string symbol;  // an identifier: "s0", "batch"
};

/// Bounds of a size, both inclusive.
struct SizeBounds {
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
};

struct ExportOptions {
  std::vector<DynamicDim> dynamic_dims = {};      // every other size is the example's
  std::map<std::string, SizeBounds> bounds = {};  // by symbol
  /// For each tensor input, the index of the first input that is the same tensor (its own if none is); each run checks
  /// this. Empty: inputs may or may not be the same tensor. `export_function` and `export_script` compute it.
  std::vector<size_t> same_inputs = {};
  /// The program is untrusted: its operator calls are checked against their contracts.
  bool by_contract = false;
};

/// A graph with its requirements: types of its inputs, dynamic sizes, ranges of its symbols. Immutable; cheap to copy;
/// any number of threads may call every function at once.
class TRIAGE_API ExportedProgram {
 public:
  /// `graph`: as captured, its inputs with their types (`Value::meta`); `params`: the defaults of its param inputs, in
  /// their order; `notes`: notes for readers, one line each. Throws GraphError if the graph does not verify, InputError
  /// if the options do not fit it.
  ExportedProgram(graph::Graph graph, ExportOptions options = {}, std::vector<c10::IValue> params = {},
                  std::vector<std::string> notes = {});

  /// Runs it on tensors of the exported types and sizes (params: their defaults, unless given after the tensors as
  /// 0-dim tensors). Throws InputError that names the input and the mismatch, PolicyError if an operator or an
  /// assertion fails, LimitError past the deadline: between operators, and, if the program is checked against
  /// contracts, before an operator that may take longer than the remaining time. In a host function that a policy
  /// calls, programs run within the deadline of that call.
  std::vector<at::Tensor> run(at::ArrayRef<at::Tensor> inputs,
                              std::optional<std::chrono::steady_clock::time_point> deadline = {}) const;

  /// The program as readable text, with types, symbols, signature and range constraints.
  std::string text() const;
  const graph::Graph& graph() const;
  const ExportOptions& options() const;

  /// The same program in plain ATen, without operators of triage.
  ExportedProgram run_decompositions() const;
  /// Checks all invariants again; throws GraphError.
  void verify() const;

  /// Writes a text file with everything, tensors bit for bit. Throws FileError; the write is atomic.
  void save(const std::string& path) const;
  /// Throws FileError if the file does not exist or is not a program. The file is treated as untrusted, and verified.
  /// Nothing in it runs before a call of `run` or `text`. Unless it is `trusted`, its operator calls are checked
  /// against their contracts (docs/operators.md), now and in every run.
  static ExportedProgram load(const std::string& path, bool trusted = false);

  /// Writes a TorchScript module whose `forward` computes the same bits without triage; load it with torch.jit.load.
  /// Params become keyword arguments with their defaults. Throws GraphError that names an operator that TorchScript
  /// cannot call.
  void save_torchscript(const std::string& path) const;

  struct State;  // runtime/export/state.h

 private:
  explicit ExportedProgram(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

/// Runs `fn` on `inputs` and captures it as a program. Throws GraphBreakError for anything that one graph cannot hold,
/// and InputError if the script specializes a dynamic size; exceptions of `fn` pass through. If inputs could be the
/// same tensor (their types allow it), `fn` runs again with the same tensor for both. If it then behaves differently,
/// as a function that compares its arguments may, the program requires the identities of `inputs`
/// (`ExportOptions::same_inputs`). Errors of these further runs are not reported.
TRIAGE_API ExportedProgram export_function(const std::string& name, const std::vector<std::string>& input_names,
                                           at::ArrayRef<at::Tensor> inputs,
                                           const std::function<std::vector<at::Tensor>(at::ArrayRef<at::Tensor>)>& fn,
                                           const ExportOptions& options = {});

/// The same for a policy's script: its params stay inputs of the program, with `params` (0-dim tensors in the order of
/// the signature) as their defaults. Its state becomes inputs behind `inputs`, and outputs behind its own, in the order
/// of the signature: what one run returns as state is for the next.
TRIAGE_API ExportedProgram export_script(Script& script, at::ArrayRef<at::Tensor> inputs,
                                         at::ArrayRef<at::Tensor> params, const ExportOptions& options = {});

}  // namespace triage
