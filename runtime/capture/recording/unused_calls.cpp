#include "runtime/capture/recording/unused_calls.h"

#include "runtime/capture/recording/recorder.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/capture/rules/rules.h"
#include "runtime/graph/passes/uses.h"
#include "runtime/operators/semantics.h"

#include <algorithm>
#include <unordered_set>

namespace triage::capture {

using operators::Semantics, operators::semantics_of;

namespace {

void add_all_sizes(const at::Tensor& tensor, const SizeOrigins& origins, Checks& checks) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (const Extent extent = origins.extent(tensor, dim); extent.from != Extent::From::constant)
      checks.sizes.emplace_back(extent, tensor.size(dim));
}

/// The sizes of two tensors that must go together, and for which nothing says that they do.
void add_broadcast_sizes(const at::Tensor& a, const at::Tensor& b, const SizeOrigins& origins, Checks& checks) {
  using From = Extent::From;
  for (int64_t dim = 1; dim <= std::min(a.dim(), b.dim()); ++dim) {
    const Extent of_a = origins.extent(a, a.dim() - dim), of_b = origins.extent(b, b.dim() - dim);
    const int64_t size_of_a = a.size(a.dim() - dim), size_of_b = b.size(b.dim() - dim);
    if (of_a.is(1) || of_b.is(1) || (of_a == of_b && of_a.from != From::unknown)) continue;
    if (of_a.from == From::input && of_b.from == From::input && size_of_a == size_of_b) {
      checks.same.emplace_back(of_a, of_b);
      continue;
    }
    if (of_a.from != From::constant) checks.sizes.emplace_back(of_a, size_of_a);
    if (of_b.from != From::constant) checks.sizes.emplace_back(of_b, size_of_b);
  }
}

}  // namespace

Checks checks_of(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, bool numbers_vary,
                 const SizeOrigins& origins) {
  const Semantics& does = semantics_of(op);
  Checks checks;
  const std::vector<at::Tensor> tensors = tensors_of(arguments);
  if (tensors.empty() || (does.has(Semantics::never_raises) && !numbers_vary)) return checks;
  const bool broadcast = does.sizes == operators::ResultSizes::broadcast;
  if ((!broadcast && !does.has(Semantics::raises_by_sizes)) || judges_values(op, arguments) || numbers_vary) {
    checks.of = Checks::Of::values;
    return checks;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!broadcast) add_all_sizes(tensors[i], origins, checks);
    for (size_t k = 0; broadcast && k < i; ++k) add_broadcast_sizes(tensors[i], tensors[k], origins, checks);
  }
  if (!checks.sizes.empty() || !checks.same.empty()) checks.of = Checks::Of::sizes;
  return checks;
}

void Recorder::hold_unused_calls(const std::vector<at::Tensor>& outputs) {
  if (checks_.empty()) return;
  std::unordered_set<const graph::Value*> used;
  for (const at::Tensor& output : outputs) used.insert(tensors_.value_of(output));
  auto& nodes = graph_.nodes();
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    graph::Node& node = **at;
    const auto found = checks_.find(&node);
    const bool dropped = !graph::is_random(node.op) && !graph::is_effect(node.op) &&
                         std::none_of(node.results.begin(), node.results.end(),
                                      [&](const graph::Value* result) { return used.count(result) != 0; });
    if (dropped && found == checks_.end()) continue;
    if (dropped && found->second.of == Checks::Of::sizes) {
      for (const auto& [extent, size] : found->second.sizes) sizes_.hold_size(extent, size);
      for (const auto& [a, b] : found->second.same) sizes_.hold_same_size(a, b);
      continue;
    }
    node.checks |= dropped;
    graph::for_each_use(node, [&](const graph::Value* value) { used.insert(value); });
  }
}

}  // namespace triage::capture
