#include "tests/fuzz/operators/shared_memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "runtime/graph/passes/aliases.h"

namespace triage::fuzz {
namespace {

void append_tensors(std::vector<at::Tensor>& all, const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) all.push_back(value.toTensor());
  if (value.isList())
    for (const c10::IValue& item : value.toListRef()) append_tensors(all, item);
}

bool shares(const std::vector<at::Tensor>& tensors, const at::Tensor& result) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor& other) { return result.is_alias_of(other); });
}

}  // namespace

std::string untold_sharing(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                           const torch::jit::Stack& results) {
  if (graph::writes(op)) return "";  // no call of a graph
  const graph::Sharing told = graph::sharing(op);
  std::vector<at::Tensor> viewed, others, made;
  for (size_t i = 0; i < arguments.size(); ++i)
    append_tensors(told != graph::Sharing::none && graph::may_share(op, i) ? viewed : others, arguments[i]);
  for (const c10::IValue& result : results) append_tensors(made, result);
  for (size_t i = 0; i < made.size(); ++i) {
    if (shares(others, made[i]) && !shares(viewed, made[i]))
      return "untold view: a result has the memory of an argument";
    if (told == graph::Sharing::always && made[i].numel() > 0 && !shares(viewed, made[i]))
      return "untold copy: a result that is said to be a view has memory of its own";
    if (told == graph::Sharing::none && shares({made.begin(), made.begin() + static_cast<std::ptrdiff_t>(i)}, made[i]))
      return "untold view: two results share memory";
  }
  return "";
}

}  // namespace triage::fuzz
