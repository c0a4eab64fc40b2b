#include "runtime/diagnose/gradients/places.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <utility>

#include "runtime/diagnose/bad_rows.h"
#include "runtime/diagnose/script_graph.h"

namespace triage::diagnose {
namespace {

using torch::autograd::Node;

/// Carries the place of its node, for as long as the node lives, and does nothing.
class PlaceHook final : public torch::autograd::FunctionPostHook {
 public:
  explicit PlaceHook(std::shared_ptr<const NodeOrigin> place) : place_(std::move(place)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& made,
                                            const torch::autograd::variable_list& /*given*/) override {
    return made;
  }
  const NodeOrigin& place() const { return *place_; }

 private:
  std::shared_ptr<const NodeOrigin> place_;
};

/// The samples of an operand that have a NaN or Inf; undefined where none has.
at::Tensor bad_rows(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() == 0) return {};
  const BadRows bad = Trail(tensor.size(0)).bad_rows(tensor, /*varies=*/true);
  return bad.is_bad() ? bad.any() : at::Tensor();
}

}  // namespace

void walk_nodes(std::vector<NodeHandle> roots, const std::function<bool(const NodeHandle&)>& visit) {
  std::unordered_set<const Node*> seen;
  while (!roots.empty()) {
    const NodeHandle node = std::move(roots.back());
    roots.pop_back();
    if (!node || !seen.insert(node.get()).second || !visit(node)) continue;
    for (const torch::autograd::Edge& edge : node->next_edges()) roots.push_back(edge.function);
  }
}

bool is_leaf_node(const Node& node) { return dynamic_cast<const torch::autograd::AccumulateGrad*>(&node) != nullptr; }

const NodeOrigin* place_of(const Node& node) {
  for (const auto& hook : node.post_hooks())
    if (const auto* place = dynamic_cast<const PlaceHook*>(hook.get())) return &place->place();
  return nullptr;
}

NotePlaces::NotePlaces(Describe describe)
    : describe_(std::move(describe)),
      watch_([this](const at::RecordFunction& call, const c10::OperatorName& name) { return begin(call, name.name); },
             [this](size_t /*number*/, const at::RecordFunction& call) { end(call); }) {}

std::optional<size_t> NotePlaces::begin(const at::RecordFunction& call, const std::string& name) {
  if (!c10::GradMode::is_enabled()) return std::nullopt;
  running_ = {std::make_shared<NodeOrigin>(NodeOrigin{describe_(name), false, 0, {}}), {}};
  for (const c10::IValue& input : call.inputs())
    for_each_tensor(input, [&](const at::Tensor& operand) {
      if (const auto node = operand.grad_fn()) running_.before.insert(node.get());
      const bool is_data = varies(operand);
      if (is_data && samples_ == 0 && operand.dim() > 0) samples_ = operand.size(0);
      running_.place->varies |= is_data;
      if (at::Tensor bad = bad_rows(operand); bad.defined()) running_.place->bad_rows.push_back(std::move(bad));
    });
  running_.place->samples = samples_;
  return 0;
}

void NotePlaces::end(const at::RecordFunction& call) {
  std::vector<NodeHandle> nodes;
  for (const c10::IValue& output : call.outputs())
    for_each_tensor(output, [&](const at::Tensor& result) { nodes.push_back(result.grad_fn()); });
  walk_nodes(std::move(nodes), [&](const NodeHandle& node) {
    if (running_.before.count(node.get()) || is_leaf_node(*node) || place_of(*node)) return false;
    node->add_post_hook(std::make_unique<PlaceHook>(running_.place));
    return true;
  });
}

/// Parameters, what is made of them alone, and numbers are no data.
bool NotePlaces::varies(const at::Tensor& operand) const {
  if (const auto node = operand.grad_fn()) {
    const NodeOrigin* const place = place_of(*node);
    return !place || place->varies;
  }
  if (data_.count(operand.unsafeGetTensorImpl())) return true;
  return !operand.requires_grad() && operand.dim() > 0;
}

}  // namespace triage::diagnose
