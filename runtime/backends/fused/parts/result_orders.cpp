#include "runtime/backends/fused/parts/result_orders.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace triage::fused {
namespace {

constexpr size_t most_known = 16;

/// Dims of one element, and those that repeat their elements, have no place of their own, and stay where they are.
DimOrder order_of(const at::Tensor& tensor) {
  DimOrder order, placed;
  if (!tensor.defined() || is_row_major(tensor)) return order;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    order.push_back(dim);
    if (tensor.size(dim) != 1 && tensor.stride(dim) != 0) placed.push_back(dim);
  }
  DimOrder sorted = placed;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  for (size_t i = 0; i < placed.size(); ++i) order[static_cast<size_t>(placed[i])] = sorted[i];
  return order;
}

constexpr int64_t end = -1;  // of a part of a key

void add_order(const at::Tensor& tensor, std::vector<int64_t>& key) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  key.push_back((impl->is_non_overlapping_and_dense() ? 2 : 0) + (tensor.is_contiguous() ? 1 : 0));
  for (const int64_t dim : order_of(tensor)) key.push_back(dim);
  key.push_back(end);
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    key.push_back((tensor.size(dim) == 1 ? 2 : 0) + (tensor.stride(dim) == 0 ? 1 : 0));
}

/// With the whole numbers of the host, which may be sizes.
void add_sizes(const at::Tensor& tensor, std::vector<int64_t>& key) {
  key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  if (tensor.dim() == 0 && tensor.scalar_type() == at::kLong && tensor.device().is_cpu())
    key.push_back(*tensor.data_ptr<int64_t>());
}

}  // namespace

bool is_row_major(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.dim() < 2 || tensor.is_contiguous()) return true;
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) == 1 || tensor.stride(dim) == 0) continue;
    if (tensor.stride(dim) >= before) return false;
    before = tensor.stride(dim);
  }
  return true;
}

at::Tensor in_order(const at::Tensor& result, const DimOrder& order) {
  if (static_cast<int64_t>(order.size()) != result.dim()) return result;
  std::vector<int64_t> strides(order.size());
  int64_t stride = 1;
  bool same = true;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    strides[static_cast<size_t>(*dim)] = stride;
    same &= result.size(*dim) == 1 || result.stride(*dim) == stride;
    stride *= std::max<int64_t>(result.size(*dim), 1);
  }
  if (same) return result;
  at::Tensor made = at::empty_strided(result.sizes(), strides, result.options());
  made.permute(order).copy_(result.permute(order));  // row-major is what is written: ATen turns matrices in blocks then
  return made;
}

ResultOrders::Key ResultOrders::key_of(at::ArrayRef<at::Tensor> inputs) const {
  Key key;
  for (const at::Tensor& input : inputs) {
    if (input.defined()) by_sizes_ ? add_sizes(input, key) : add_order(input, key);
    key.push_back(end);
  }
  return key;
}

std::vector<DimOrder> ResultOrders::find(at::ArrayRef<at::Tensor> inputs, const Run& run) const {
  Key key = key_of(inputs);
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [known, orders] : known_)
      if (known == key) return orders;
  }
  std::vector<at::Tensor> results;
  run(results);
  std::vector<DimOrder> orders;
  for (const at::Tensor& result : results) orders.push_back(order_of(result));
  const std::lock_guard lock(mutex_);
  if (known_.size() == most_known) known_.erase(known_.begin());
  known_.emplace_back(std::move(key), orders);
  return orders;
}

}  // namespace triage::fused
