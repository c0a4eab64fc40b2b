#pragma once
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <triage/provenance.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/diagnose/bad_rows.h"

/// A backward in which every derivative is looked at.
namespace triage::diagnose {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_data = false;  // of leaves: it has the samples in dim 0
};

class GradientWalk {
 public:
  explicit GradientWalk(int64_t samples) : trail_(samples), samples_(samples) {}

  /// From `outputs`, whose gradients are `gradients`, to `leaves`. Throws what the derivatives throw.
  Provenance run(const std::vector<NamedTensor>& outputs, const std::vector<at::Tensor>& gradients,
                 const std::vector<NamedTensor>& leaves) &&;

 private:
  using Gradients = torch::autograd::variable_list;
  using Node = torch::autograd::Node;
  using Value = std::pair<const Node*, uint32_t>;  // a result of the forward, by its node
  class Hook;
  class Hooks;

  void look(Node& node, const Gradients& made, const Gradients& given);
  BadRows arrived(const Node& node, uint32_t result, const at::Tensor& gradient);
  void find_samples(Node& node, const Gradients& given, size_t operand, const BadRows& read, BadRows& bad) const;
  at::Tensor samples_behind(Node& node, const Gradients& given, size_t operand, BadKind kind) const;
  Rerun reruns(Node& node, const Gradients& given, const std::vector<BadRows>& bad) const;
  BadRows run_on(Node& node, Gradients gradients) const;
  bool varies(const Node* node) const;
  size_t index_of(const Producer& like);

  Trail trail_;
  int64_t samples_;
  std::vector<const Node*> data_;          // the leaves that have samples
  std::map<Value, BadRows> sent_;          // to each value so far
  std::map<std::string, size_t> indices_;  // of derivatives, by what describes them, in the order of execution
  std::mutex mutex_;                       // devices have threads of their own
};

}  // namespace triage::diagnose
