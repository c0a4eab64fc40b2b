#include "runtime/diagnose/gradients/walk.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <array>

#include "runtime/diagnose/gradients/places.h"

namespace triage::diagnose {
namespace {

constexpr int64_t most_single_samples = 256;  // that a derivative runs on one by one

Producer described(const torch::autograd::Node& node) {
  if (const NodeOrigin* place = place_of(node)) return place->made_by;
  return {Producer::Kind::operation, node.name(), {}, {}, {}, {}, {}};
}

bool has_kind(const BadRows& bad, BadKind kind) { return bad.is_bad() && bad.has(kind); }

}  // namespace

/// Hands what a derivative got and made to the walk.
class GradientWalk::Hook final : public torch::autograd::FunctionPostHook {
 public:
  Hook(GradientWalk& walk, Node& node) : walk_(walk), node_(node) {}
  Gradients operator()(const Gradients& made, const Gradients& given) override {
    walk_.look(node_, made, given);
    return made;
  }

 private:
  GradientWalk& walk_;
  Node& node_;
};

/// While alive, a hook stands behind each derivative on the way from `roots` to the leaves.
class GradientWalk::Hooks {
 public:
  Hooks(GradientWalk& walk, const std::vector<NodeHandle>& roots) {
    walk_nodes(roots, [&](const NodeHandle& node) {
      if (is_leaf_node(*node)) return false;
      keys_.emplace_back(node, node->add_post_hook(std::make_unique<Hook>(walk, *node)));
      return true;
    });
  }
  ~Hooks() {
    for (const auto& [node, key] : keys_) node->del_post_hook(key);
  }
  Hooks(const Hooks&) = delete;
  Hooks& operator=(const Hooks&) = delete;

 private:
  std::vector<std::pair<NodeHandle, uintptr_t>> keys_;
};

Provenance GradientWalk::run(const std::vector<NamedTensor>& outputs, const std::vector<at::Tensor>& gradients,
                             const std::vector<NamedTensor>& leaves) && {
  Gradients roots, seeds, variables;
  std::vector<NodeHandle> nodes;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i].tensor;
    roots.push_back(output);
    seeds.push_back(gradients[i]);
    const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(output);
    nodes.push_back(edge.function);
    sent_[{edge.function.get(), edge.input_nr}].add(trail_.note_input("gradient of " + outputs[i].name, gradients[i]));
  }
  std::vector<torch::autograd::Edge> edges;
  for (const NamedTensor& leaf : leaves) {
    variables.push_back(leaf.tensor);
    edges.push_back(torch::autograd::impl::gradient_edge(leaf.tensor));
    if (leaf.is_data) data_.push_back(edges.back().function.get());
  }
  Gradients found;
  {
    const Hooks hooks(*this, nodes);
    found = torch::autograd::grad(roots, variables, seeds, /*retain_graph=*/true, /*create_graph=*/false,
                                  /*allow_unused=*/true);
  }
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (!found[i].defined()) continue;
    trail_.note_output(leaves[i].name, arrived(*edges[i].function, edges[i].input_nr, found[i]));
  }
  return std::move(trail_).finish();
}

void GradientWalk::look(Node& node, const Gradients& made, const Gradients& given) {
  const std::lock_guard lock(mutex_);
  at::NoGradGuard no_grad;
  std::vector<BadRows> got(given.size()), sent(made.size());
  BadRows read, all;
  for (size_t i = 0; i < given.size(); ++i) {
    got[i] = arrived(node, static_cast<uint32_t>(i), given[i]);
    read.add(got[i]);
  }
  for (size_t i = 0; i < made.size(); ++i) {
    if (!node.next_edge(i).is_valid()) continue;
    sent[i] = trail_.bad_rows(made[i], varies(node.next_edge(i).function.get()));
    find_samples(node, given, i, read, sent[i]);
    all.add(sent[i]);
  }
  const Producer like = described(node);
  const Origins inf_from = trail_.note_operation(index_of(like), like, read, all, reruns(node, given, got));
  for (size_t i = 0; i < made.size(); ++i) {
    if (!node.next_edge(i).is_valid()) continue;
    if (has_kind(sent[i], is_inf)) sent[i].inf_from = inf_from;
    sent_[{node.next_edge(i).function.get(), node.next_edge(i).input_nr}].add(sent[i]);
  }
}

/// What is bad in the gradient of a result of `node`. Its parts were sent before; where they have this kind nowhere,
/// their sum made it.
BadRows GradientWalk::arrived(const Node& node, uint32_t result, const at::Tensor& gradient) {
  BadRows bad = trail_.bad_rows(gradient, varies(&node));
  if (!bad.is_bad()) return bad;
  const BadRows& parts = sent_[{&node, result}];
  bool is_fresh = false;
  for (const BadKind kind : bad_kinds) {
    if (!has_kind(bad, kind)) continue;
    if (!bad.per_sample && has_kind(parts, kind)) bad.of[kind] = parts.of[kind];
    is_fresh |= !has_kind(parts, kind) || bad.of[kind].logical_and(parts.of[kind].logical_not()).any().item<bool>();
  }
  bad.per_sample |= parts.is_bad() && parts.per_sample;
  if (has_kind(bad, is_inf)) bad.inf_from = parts.inf_from;
  if (!is_fresh) return bad;
  Producer like = described(node);
  like.kind = Producer::Kind::sum;
  like.name = "sum of gradients";
  bad.inf_from = trail_.note_operation(index_of(like), like, parts, bad, {});
  return bad;
}

/// The gradient of a parameter has no samples: those that made it bad are found by the gradients of single samples, or
/// where no gradient is needed for it, by the operands of the forward. What passes on a bad gradient passes on its
/// samples.
void GradientWalk::find_samples(Node& node, const Gradients& given, size_t operand, const BadRows& read,
                                BadRows& bad) const {
  if (!bad.is_bad() || bad.per_sample || samples_ == 0) return;
  bool found = true;
  std::array<at::Tensor, 2> rows = bad.of;
  for (const BadKind kind : bad_kinds) {
    if (!has_kind(bad, kind)) continue;
    rows[kind] = samples_behind(node, given, operand, kind);
    if (!rows[kind].defined() && read.is_bad() && read.per_sample)
      rows[kind] = has_kind(read, kind) ? read.of[kind] : read.any();
    found &= rows[kind].defined();
  }
  if (!found) return;
  bad.of = rows;
  bad.per_sample = true;
}

/// Undefined where none can be told from the others.
at::Tensor GradientWalk::samples_behind(Node& node, const Gradients& given, size_t operand, BadKind kind) const {
  const auto is_bad = [&](const Gradients& gradients) {
    const at::Tensor made = node(Gradients(gradients)).at(operand);
    return has_kind(trail_.bad_rows(made, /*varies=*/false), kind);
  };
  Gradients none = given;
  bool has_samples = false;
  for (at::Tensor& gradient : none) {
    if (!gradient.defined()) continue;
    has_samples |= gradient.dim() > 0 && gradient.size(0) == samples_;
    gradient = at::zeros_like(gradient);
  }
  at::Tensor rows = at::zeros({samples_}, at::kBool);
  if (is_bad(none)) {
    const NodeOrigin* const place = place_of(node);
    for (const at::Tensor& bad : place ? place->bad_rows : std::vector<at::Tensor>())
      if (bad.size(0) == samples_) rows.logical_or_(bad);
  } else if (has_samples && samples_ <= most_single_samples) {
    for (int64_t sample = 0; sample < samples_; ++sample) {
      Gradients one = none;
      for (size_t i = 0; i < one.size(); ++i) {
        if (!one[i].defined() || one[i].dim() == 0 || one[i].size(0) != samples_) continue;
        one[i] = one[i].clone();
        one[i].select(0, sample).copy_(given[i].select(0, sample));
      }
      if (is_bad(one)) rows[sample] = true;
    }
  }
  return rows.any().item<bool>() ? rows : at::Tensor();
}

/// The derivative on gradients of which the trail makes others.
Rerun GradientWalk::reruns(Node& node, const Gradients& given, const std::vector<BadRows>& bad) const {
  const auto run_on = [this, &node, &given](const auto& other) {
    Gradients gradients = given;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) gradients[i] = other(gradients[i], i);
    BadRows made;
    const Gradients results = node(std::move(gradients));
    for (size_t i = 0; i < results.size(); ++i)
      if (node.next_edge(i).is_valid()) made.add(trail_.bad_rows(results[i], varies(node.next_edge(i).function.get())));
    return made;
  };
  Rerun rerun;
  rerun.clean = [this, run_on, &node](BadKind kind) {
    return run_on([&](const at::Tensor& gradient, size_t) { return trail_.cleaned(gradient, varies(&node), kind); });
  };
  rerun.without_inf_of = [this, run_on, &node, &bad](const std::string& origin) {
    return run_on([&](const at::Tensor& gradient, size_t i) {
      return trail_.without_inf_of(origin, gradient, bad[i], varies(&node));
    });
  };
  return rerun;
}

/// Whether the gradient of what the node made has samples.
bool GradientWalk::varies(const Node* node) const {
  if (is_leaf_node(*node)) return std::find(data_.begin(), data_.end(), node) != data_.end();
  const NodeOrigin* const place = place_of(*node);
  return !place || place->varies;
}

size_t GradientWalk::index_of(const Producer& like) {
  const std::string text = fmt::format("{} {} {} {}:{}", static_cast<int>(like.kind), like.name, like.location,
                                       like.source.file, like.source.line);
  return indices_.try_emplace(text, indices_.size()).first->second;
}

}  // namespace triage::diagnose
