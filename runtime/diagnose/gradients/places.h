#pragma once
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <triage/provenance.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

/// Which operation of the forward made a node of autograd's graph.
namespace triage::diagnose {

struct Place {
  Producer made_by;
  bool varies = true;                // its results depend on data, not only on parameters
  std::vector<at::Tensor> bad_rows;  // bool (N,) on the CPU, of each operand with a NaN or Inf: by its dim 0
};

/// Whether it takes up the gradient of a leaf.
bool is_leaf_node(const torch::autograd::Node& node);

/// Null where nobody noted it.
const Place* place_of(const torch::autograd::Node& node);

/// While alive, the operations of this thread leave their places at the nodes that they make. The nodes keep them.
class NotePlaces {
 public:
  /// Where the operation of this name runs now.
  using Describe = std::function<Producer(const std::string& name)>;
  explicit NotePlaces(Describe describe);
  ~NotePlaces();
  NotePlaces(const NotePlaces&) = delete;
  NotePlaces& operator=(const NotePlaces&) = delete;

  /// A leaf that is data, though it requires grad.
  void note_data(const at::Tensor& tensor) { data_.insert(tensor.unsafeGetTensorImpl()); }

 private:
  struct Operation;
  static std::unique_ptr<at::ObserverContext> opened(const at::RecordFunction& function);
  static void closed(const at::RecordFunction& function, at::ObserverContext* context);
  void begin(const at::RecordFunction& function, Operation& operation);
  void end(const at::RecordFunction& function, const Operation& operation);
  bool varies(const at::Tensor& operand) const;

  Describe describe_;
  std::unordered_set<const c10::TensorImpl*> data_;
  int depth_ = 0;
  NotePlaces* around_;
  at::CallbackHandle handle_ = 0;
  at::RecordFunctionGuard enabled_{true};
};

/// Dim 0 of the first operand that was data for an operation of a trace on this thread; 0: there was none.
int64_t samples_of_trace();

}  // namespace triage::diagnose
