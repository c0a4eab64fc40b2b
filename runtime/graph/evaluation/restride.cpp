#include "runtime/graph/evaluation/restride.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <torch/library.h>

#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/operators/semantics.h"

namespace triage::graph {
namespace {

/// ATen's elementwise operators, and those that take only the form of their first argument, give its order to the
/// result. These do not, because they are made of other calls.
bool makes_row_major(std::string_view name) {
  static const auto& names = *new std::unordered_set<std::string_view>{"aten::masked_fill", "aten::copy"};
  return names.count(name) != 0;
}

/// Nobody else has this tensor, or its memory: the interpreter gave away the last one.
bool is_given_away(const at::Tensor& tensor) { return tensor.use_count() == 1 && tensor.storage().use_count() == 1; }

/// Gaps are left out, as `empty_like` does: what a graph program may call must not take memory that nobody counts.
at::Tensor restrided(const at::Tensor& self, const at::Tensor& like) {
  const std::vector<int64_t> strides = like.unsafeGetTensorImpl()->is_non_overlapping_and_dense()
                                           ? like.strides().vec()
                                           : at::infer_dense_strides(like.sizes(), like.strides());
  if (self.strides() == strides) return is_given_away(self) ? self : self.clone();
  return restride_in_aten(self, like);
}

}  // namespace

c10::OperatorHandle restride() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(kRestride, "");
  return op;
}

at::Tensor restride_in_aten(const at::Tensor& self, const at::Tensor& like) {
  const at::Tensor order = like.detach();
  return at::where(at::ones_like(order, order.options().dtype(at::kBool)), self, order);
}

bool keeps_order(const c10::OperatorHandle& op) {
  const operators::Semantics& does = operators::semantics_of(op);
  const bool by_first =
      does.sizes == operators::ResultSizes::broadcast || does.has(operators::Semantics::form_of_first);
  return by_first && !makes_row_major(op.operator_name().name);
}

// Made of other calls, on all devices: autograd records these.
TORCH_LIBRARY_FRAGMENT(triage, m) { m.def("restride(Tensor self, Tensor like) -> Tensor", TORCH_FN(restrided)); }

}  // namespace triage::graph
