#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/error.h>
#include <triage/graph.h>
#include <triage/layout.h>
#include <triage/tracked.h>

#include <cstdint>
#include <string>
#include <vector>

/// Which operation *produced* a NaN or Inf, told from those that passed it on: a diagnosis for which the computation runs
/// operation by operation on given inputs. The producer of a kind (NaN, Inf) for a sample is the first operation whose results
/// have that kind in that sample while none of its operands has it there; for an operation that mixes samples, none has it in
/// any (it is run once more, with the samples that have it clean, to see whether it does). So a NaN made out of an Inf has a
/// producer, and passing on means that the same kind was there before.
namespace triage {

struct Producer {
  enum class Kind : uint8_t {
    input,     ///< it came in with the inputs
    held,      ///< a parameter, buffer or constant holds it
    operation  ///< made here
  };
  Kind kind;
  std::string name;      ///< of the input or parameter; of the operator (`aten::log`)
  std::string location;  ///< TorchScript: path of the submodule that it ran in, empty in the model's own code
  Source source;         ///< the line that made it; empty file where not known
  Code code;             ///< err::nan or err::inf; who produced both is there twice
  /// The samples, in order. Empty where the value does not have the samples in front (a mean over the batch, a weight):
  /// it then concerns all.
  std::vector<int64_t> rows;
  /// Of a NaN made out of Inf: who produced that, by name and place. Empty where the operands held none.
  std::vector<std::string> from_inf;
};

struct Provenance {
  int64_t samples = 0;              ///< dim 0 of the first tensor among the inputs
  std::vector<Producer> producers;  ///< inputs, then what is held, then operations in the order in which they ran
  int64_t operations = 0;           ///< how many there are with floating results
  int64_t passed_on = 0;            ///< how many of these had bad results and produced nothing bad
  struct Output {
    std::string name;
    std::vector<int64_t> rows;  ///< bad samples of this output
  };
  std::vector<Output> outputs;  ///< those that are bad, flags aside
};

/// Runs a captured graph: `inputs` in the order of the graph's inputs, params included. Throws InputError for a wrong number
/// of inputs, and what the operations throw.
Provenance provenance(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs);
/// Runs a method of a TorchScript model. In a loop, an operation counts once, with the samples of all rounds.
Provenance provenance(const torch::jit::Module& module, std::vector<c10::IValue> inputs,
                      const std::string& method = "forward");

}  // namespace triage
