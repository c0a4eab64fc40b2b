#pragma once
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <triage/provenance.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "runtime/diagnose/operator_watch.h"

/// Which operation of the forward made a node of autograd's graph.
namespace triage::diagnose {

/// Of LibTorch's own kind, which versions differ in.
using NodeHandle = decltype(torch::autograd::Edge::function);

/// Visits each node once, from `roots` towards the leaves; what stands behind a node only where `visit` is true of it.
void walk_nodes(std::vector<NodeHandle> roots, const std::function<bool(const NodeHandle&)>& visit);

struct NodeOrigin {
  Producer made_by;
  bool varies = true;                // its results depend on data, not only on parameters
  int64_t samples = 0;               // dim 0 of the first operand of the trace that was data; 0: there was none
  std::vector<at::Tensor> bad_rows;  // bool (N,) on the CPU, of each operand with a NaN or Inf: by its dim 0
};

/// Whether it takes up the gradient of a leaf.
bool is_leaf_node(const torch::autograd::Node& node);

/// Null where nobody noted it.
const NodeOrigin* place_of(const torch::autograd::Node& node);

/// While alive, the operations of this thread leave their places at the nodes that they make. The nodes keep them.
class NotePlaces {
 public:
  /// Where the operation of this name runs now.
  using Describe = std::function<Producer(const std::string& name)>;
  explicit NotePlaces(Describe describe);
  NotePlaces(const NotePlaces&) = delete;
  NotePlaces& operator=(const NotePlaces&) = delete;

  /// A leaf that is data, though it requires grad.
  void note_data(const at::Tensor& tensor) { data_.insert(tensor.unsafeGetTensorImpl()); }

 private:
  /// An operation that runs, and the nodes that stood before it.
  struct Operation {
    std::shared_ptr<NodeOrigin> place;
    std::unordered_set<const torch::autograd::Node*> before;
  };
  std::optional<size_t> begin(const at::RecordFunction& call, const std::string& name);
  void end(const at::RecordFunction& call);
  bool varies(const at::Tensor& operand) const;

  Describe describe_;
  std::unordered_set<const c10::TensorImpl*> data_;
  int64_t samples_ = 0;
  Operation running_;
  OperatorWatch watch_;
};

}  // namespace triage::diagnose
