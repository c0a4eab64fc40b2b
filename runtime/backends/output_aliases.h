#pragma once
#include <triage/backend.h>

#include <functional>
#include <vector>

/// Outputs lie in memory as the graph says, whatever backend computes them: what is one tensor there is one tensor,
/// views of one memory share it, and nothing else does. Backends compute what has memory of its own; views of that, of
/// inputs and of variables are made behind them by ATen, as far as more than one of them can be seen.
namespace triage {

/// Whose memory outputs may have.
struct LentMemory {
  bool inputs = true;     // else what looks at the memory of an input, and is not that, is a copy
  bool variables = true;  // else variables are copied on every call, as other constants are
};

std::unique_ptr<Executable> compile_outputs(const graph::Graph& graph, const std::vector<at::Tensor>& examples,
                                            const Backend& backend, LentMemory lent);
/// By ATen's interpreter, which needs no cut: autograd sees the calls in the order of the script, and sums gradients
/// so. `interpreter`: compile_eager, timed or not.
std::unique_ptr<Executable> compile_outputs_eager(const graph::Graph& graph, const Backend& interpreter,
                                                  LentMemory lent);

/// A copy with memory of its own. A large tensor that says more elements than its memory holds (expanded) stays
/// expanded.
at::Tensor own_copy(const at::Tensor& tensor);

/// Copies the outputs that `is_lent` holds for. What is one tensor stays one, and looks at one memory share that of the
/// copy (but where gradients go through them).
void copy_lent(std::vector<at::Tensor>& outputs, const std::function<bool(const at::Tensor&)>& is_lent);

/// Those that share memory with an input and are not that input.
void separate_from_inputs(at::ArrayRef<at::Tensor> inputs, std::vector<at::Tensor>& outputs);

}  // namespace triage
