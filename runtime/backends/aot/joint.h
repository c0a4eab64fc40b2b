#pragma once
#include <ATen/core/Tensor.h>
#include <triage/graph.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

/// The forward and the backward computation of a function as one graph, and that graph cut in two.
namespace triage::aot {

/// Inputs: first the primals (what the function takes), then one tangent for each gradient that comes in, in the order
/// of the outputs. Outputs: first those of the function, then the gradients of primals, as far as there are any. It
/// holds for inputs of the sizes, strides and dtypes that it was recorded with.
struct Joint {
  graph::Graph graph;
  size_t num_primals = 0;
  size_t num_outputs = 0;
  std::vector<bool> samples;       // one for each primal: whether it may hold samples; the others are weights
  std::vector<bool> has_gradient;  // one for each primal
  std::vector<bool> shares;        // one for each primal: ATen gives this gradient the memory of an earlier one
  std::vector<std::pair<graph::Value*, bool>> row_masks;  // that make rows of a gradient 0, where they hold this
};

/// Primals as autograd shall see them: those that require grad as variables of their own, so that a backward run ends
/// at them.
std::vector<at::Tensor> as_leaves(const std::vector<at::Tensor>& primals);

/// Records `function` (a graph without variables) and its backward run. `primals` say by requires_grad whose gradients
/// are wanted; `tangents` hold one tensor for each output, undefined where no gradient comes in. Runs both on the given
/// values. Throws GraphError where that cannot stand in one graph, and what ATen throws.
Joint record_joint(const graph::Graph& function, const std::vector<at::Tensor>& primals,
                   const std::vector<at::Tensor>& tangents);

/// The two halves. What the backward graph needs of the forward one is saved between them; what it can have for free
/// (views) or what the outputs did not need is computed in the backward graph.
struct Halves {
  graph::Graph forward;   // primals -> outputs, saved values
  graph::Graph backward;  // saved primals, saved values, tangents -> gradients
  std::vector<size_t> saved_primals;
  size_t num_saved = 0;
  std::vector<std::optional<size_t>> output_of_saved;  // a saved value that is an output as well
};
/// `folds`: constants (folds_constants).
Halves partition(const Joint& joint, bool folds);

/// The dead-row pass. A row of a gradient that a selection over rows (`fix`, `take_ok_p`, `where` with a mask of the
/// rows) made 0 contributes nothing to what comes after it in the backward run, though other factors of the row be NaN
/// or infinite: where a product with such a factor follows, the row of the product is made 0, and where a sum over the
/// rows follows (the gradient of a weight), the row of the other factor. Followed through: operations row by row, views
/// that keep rows together, matrix products, convolutions, layer norm. Elsewhere nothing is changed, nor where no row
/// is dead.
void mask_rows(Joint& joint);

/// Where values of masked rows come into a gradient nevertheless.
struct GradientLeak {
  std::string what;
  Source source;
};
/// Proves, of a joint graph behind mask_rows, that what the samples hold in masked rows decides neither gradients of
/// weights nor those of other rows; else names the operator. `primals` have the sizes that the graph was recorded with.
std::optional<GradientLeak> find_leak(const Joint& joint, at::ArrayRef<at::Tensor> primals);

}  // namespace triage::aot
