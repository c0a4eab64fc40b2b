#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <triage/api.h>
#include <triage/error.h>
#include <triage/graph.h>
#include <triage/layout.h>
#include <triage/tracked.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

/// Finds the operation that *produced* a NaN or Inf, as opposed to those that passed it on: the computation runs
/// operation by operation on given inputs. The producer of a kind (NaN, Inf) for a sample is the first operation whose
/// results have that kind in that sample while none of its operands has it there. If the operation mixes samples, no
/// operand may have it in any sample (the operation runs once more, with those samples cleaned, to find out whether it
/// mixes). So a NaN made out of an Inf has a producer; an operation passes a kind on if an operand already had the same
/// kind.
namespace triage {

struct Producer {
  enum class Kind : uint8_t {
    input,      ///< it came in with the inputs
    held,       ///< a parameter, buffer or constant holds it
    operation,  ///< made here
    sum         ///< of gradients: the sum of those that one value has from several uses; made where the value was made
  };
  Kind kind;
  std::string name;      ///< of the input or parameter; of the operator (`aten::log`)
  std::string location;  ///< TorchScript: path of the submodule that it ran in; empty in the model's own code
  Source source;         ///< the line that made it; the file is empty if unknown
  Code code;             ///< err::nan or err::inf; a producer of both appears twice
  /// The samples, in order. Empty if the value does not have the samples in dim 0 (a mean over the batch, a weight): it
  /// then concerns all.
  std::vector<int64_t> rows;
  /// For a NaN made out of Inf: the producers of the Inf, by name and place. Empty if the operands held none.
  std::vector<std::string> from_inf;
};

struct Provenance {
  int64_t samples = 0;              ///< dim 0 of the first tensor among the inputs
  std::vector<Producer> producers;  ///< inputs, then held values, then operations in the order of execution
  int64_t operations = 0;           ///< number of operations with floating results
  int64_t passed_on = 0;            ///< number of these that had bad results but produced none
  struct Output {
    std::string name;
    std::vector<int64_t> rows;  ///< bad samples of this output
  };
  std::vector<Output> outputs;  ///< the bad ones, without flags
};

/// Runs a captured graph: `inputs` in the order of the graph's inputs, params included. Throws InputError for a wrong
/// number of inputs; exceptions of the operations pass through.
TRIAGE_API Provenance provenance(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs);
/// Runs a method of a TorchScript model. In a loop, an operation counts once, with the samples of all rounds.
TRIAGE_API Provenance provenance(const torch::jit::Module& module, std::vector<c10::IValue> inputs,
                                 const std::string& method = "forward");

// Where a gradient became bad. The same, of the way back: the producer of a kind for a sample is the first operation
// whose derivative makes that kind in that sample of gradients that have it nowhere there: the square root of 0, a
// product of a gradient 0 with an Inf that the forward left. `operations` and `passed_on` count derivatives, `outputs`
// are the inputs and parameters whose gradients are bad. Gradients of parameters have no samples; where one is bad,
// `rows` are the samples whose gradients, or whose operands in the forward, made it so, and all samples if none can be
// told from the others. PyTorch's anomaly mode finds the first NaN, without samples, and no Inf.
//
// All keep autograd's graph, write no `grad` and run hooks of tensors. Derivatives run once more where they got
// something bad.

/// Of a captured graph: forward and backward, to all inputs with floats and to constants that require grad.
/// `gradients`: of the outputs of the graph, in their order; one that is undefined, or none: 1 for each element. Throws
/// InputError where no output depends on these, or for gradients of other sizes.
TRIAGE_API Provenance gradient_provenance(const graph::Graph& graph, at::ArrayRef<at::Tensor> inputs,
                                          at::ArrayRef<at::Tensor> gradients = {});
/// Of a method of a TorchScript model: to all inputs with floats and to parameters that require grad. `gradients`: of
/// the tensors in what it returns, in their order.
TRIAGE_API Provenance gradient_provenance(const torch::jit::Module& module, std::vector<c10::IValue> inputs,
                                          at::ArrayRef<at::Tensor> gradients = {},
                                          const std::string& method = "forward");
/// Of what has been computed: to all leaves that it depends on. Without a GradientTrace around the forward, operations
/// have the names of autograd (`SqrtBackward0`) and no lines. `samples`: dim 0 of the batch; 0: that of the first
/// tensor that the trace saw an operation take, without a trace that of `outputs`.
TRIAGE_API Provenance gradient_provenance(at::ArrayRef<at::Tensor> outputs, at::ArrayRef<at::Tensor> gradients = {},
                                          int64_t samples = 0);

/// While alive, operations of this thread leave their names, and the lines of the policies that they stand in, for
/// gradient_provenance, which may be called later. Policies and compiled functions run operator by operator meanwhile,
/// in all threads (Stance::force_eager). For debugging: each operation looks for NaN and Inf in its operands.
class TRIAGE_API GradientTrace {
 public:
  GradientTrace();
  ~GradientTrace();
  GradientTrace(const GradientTrace&) = delete;
  GradientTrace& operator=(const GradientTrace&) = delete;

 private:
  class Notes;
  std::unique_ptr<Notes> notes_;
};

}  // namespace triage
