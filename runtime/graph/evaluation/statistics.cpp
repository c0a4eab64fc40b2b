// `triage::batch_norm`, one step of torch.nn.BatchNorm in training: it counts the batch, which decides how much the
// batch weighs in the running statistics where no momentum is given, and calls `aten::batch_norm`, which writes these
// statistics.
#include "runtime/graph/evaluation/statistics.h"

#include <ATen/ATen.h>
#include <c10/util/Optional.h>
#include <torch/library.h>

#include <algorithm>
#include <string_view>

namespace triage::graph {
namespace {

at::Tensor batch_norm(const at::Tensor& input, const c10::optional<at::Tensor>& weight,
                      const c10::optional<at::Tensor>& bias, const at::Tensor& running_mean,
                      const at::Tensor& running_var, const at::Tensor& num_batches_tracked, bool training,
                      c10::optional<double> momentum, double eps) {
  if (training) {
    const at::NoGradGuard no_grad;
    at::Tensor(num_batches_tracked).add_(1);
    if (!momentum) momentum = 1.0 / static_cast<double>(num_batches_tracked.item<int64_t>());
  }
  return at::batch_norm(input, weight, bias, running_mean, running_var, training, momentum.value_or(0), eps,
                        at::globalContext().userEnabledCuDNN());
}

/// The constant, or what is computed; null: the schema has no such argument.
const Operand* operand_of(const Node& node, std::string_view name) {
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i].name() == name) return &node.operands[i];
  return nullptr;
}

bool writes_statistics(const Node& node) {
  if (node.op.operator_name().name.find("_norm") == std::string::npos) return false;
  const Operand* mean = operand_of(node, "running_mean");
  if (!mean || (mean->constant() && mean->constant()->isNone())) return false;
  for (const std::string_view name : {"training", "train", "use_input_stats"})
    if (const Operand* trains = operand_of(node, name))
      return !trains->constant() || !trains->constant()->isBool() || trains->constant()->toBool();
  return false;
}

}  // namespace

const Node* find_statistics(const Graph& graph) {
  const auto found = std::find_if(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    return writes_statistics(*node) && !node->op.operator_name().name.ends_with("_backward");
  });
  return found == graph.nodes().end() ? nullptr : found->get();
}

// For all devices, and as autograd sees it: `aten::batch_norm` has the derivative.
TORCH_LIBRARY_FRAGMENT(triage, m) {
  m.def(
      "batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
      "Tensor num_batches_tracked, bool training, float? momentum, float eps) -> Tensor",
      TORCH_FN(batch_norm));
}

}  // namespace triage::graph
