#include "runtime/capture/replay/lazy_tensor.h"

#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <triage/error.h>

#include "runtime/compat/autograd_history.h"
#include "runtime/compat/readable_memory.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/evaluation/evaluate.h"
#include "runtime/memory/overlap.h"

#include <algorithm>
#include <typeinfo>

namespace triage::capture {
namespace {

/// Memory that is counted, and is not there.
c10::Storage empty_storage(const ResultLayout& layout) {
  c10::DataPtr none(
      nullptr, &compat::memory_to_come, [](void*) {}, layout.device);
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), layout.storage_bytes,
                                                            std::move(none), nullptr, false));
}

void release_storage(void* storage) { delete static_cast<c10::Storage*>(storage); }

c10::IValue value_of(const TraceArgument& argument, const c10::Argument& declared,
                     const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& values) {
  switch (argument.from) {
    case TraceArgument::From::value:
      return values[argument.index];
    case TraceArgument::From::input:
      return inputs[argument.index];
    case TraceArgument::From::list: {
      c10::impl::GenericList items(graph::type_of(declared).element);
      for (const TraceArgument& item : argument.items) items.push_back(value_of(item, declared, inputs, values));
      return items;
    }
    default: {
      const graph::ArgumentType type = graph::type_of(declared);
      const bool wrapped = type.kind == graph::Kind::tensor && argument.constant.isScalar();
      return wrapped ? graph::boxed_constant(argument.constant, type) : argument.constant;
    }
  }
}

}  // namespace

torch::jit::Stack arguments_of_step(const TraceStep& step, const std::vector<at::Tensor>& inputs,
                                    const std::vector<at::Tensor>& values) {
  torch::jit::Stack stack;
  stack.reserve(step.arguments.size());
  for (size_t i = 0; i < step.arguments.size(); ++i)
    stack.push_back(value_of(step.arguments[i], step.op.schema().arguments()[i], inputs, values));
  return stack;
}

namespace {

uint32_t version_of(const at::Tensor& tensor) { return tensor.is_inference() ? 0 : tensor._version(); }

bool is_unfilled(const WeakTensor& value) {
  const auto known = value.lock();
  return known && LazyTensor::unfilled(at::Tensor(known));
}

}  // namespace

void PendingSegment::note_versions() {
  versions.clear();
  for (const at::Tensor& input : inputs) versions.push_back(version_of(input));
  value_versions.assign(values.size(), std::nullopt);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto known = values[i].lock();
    if (!known) continue;
    const at::Tensor value(known);
    if (!LazyTensor::unfilled(value)) value_versions[i] = version_of(value);
  }
}

bool PendingSegment::looks_at(const at::Tensor& tensor) const {
  if (std::none_of(values.begin(), values.end(), is_unfilled)) return false;
  const auto same_memory = [&](const at::Tensor& other) { return share_memory(other, tensor); };
  if (std::any_of(inputs.begin(), inputs.end(), same_memory)) return true;
  return std::any_of(values.begin(), values.end(), [&](const WeakTensor& value) {
    const auto known = value.lock();
    return known && same_memory(at::Tensor(known));
  });
}

void PendingSegment::compute(bool want) {
  if (std::none_of(values.begin(), values.end(), is_unfilled)) return;
  bool written = false;
  for (size_t i = 0; i < versions.size(); ++i) written |= version_of(inputs[i]) != versions[i];
  for (size_t i = 0; i < value_versions.size(); ++i)
    if (const auto known = values[i].lock(); known && value_versions[i])
      written |= version_of(at::Tensor(known)) != *value_versions[i];
  if (written) throw Error("internal error: a tensor was written to before what was deferred had read it");
  if (want && segment)
    for (size_t i = 0; i < values.size(); ++i)
      if (is_unfilled(values[i])) {
        segment->wanted[i] = true;
        segment->ready = false;
      }
  std::optional<c10::InferenceMode> usual;  // where who reads a value is in inference mode, and who made it was not
  if (c10::InferenceMode::is_enabled() != state.inference) usual.emplace(state.inference);
  const c10::AutoGradMode mode(state.grad_mode);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);  // nothing is deferred under it
  std::vector<at::Tensor> computed;
  for (const TraceStep* step : path) {
    torch::jit::Stack stack = arguments_of_step(*step, inputs, computed);
    step->op.callBoxed(&stack);
    for (uint32_t i = 0; i < step->num_results; ++i) {
      at::Tensor result = stack[i].toTensor();
      const auto known = values[step->first_value + i].lock();
      if (known) {  // what the script has is the one that later steps look at
        const at::Tensor value(known);
        if (auto* lazy = LazyTensor::unfilled(value)) lazy->fill(result, step->aliases);
        result = value;
      }
      computed.push_back(std::move(result));
    }
  }
}

LazyTensor::LazyTensor(const ResultLayout& layout, std::shared_ptr<PendingSegment> pending, uint32_t value)
    : TensorImpl(empty_storage(layout), layout.keys, layout.dtype), pending_(std::move(pending)), value_(value) {
  set_sizes_and_strides(layout.sizes, layout.strides);
  set_storage_offset(layout.storage_offset);
  if (layout.requires_grad) set_requires_grad(true);  // `fill` says where its gradients go
  storage_until_filled_ = storage();
  unfilled_.fetch_add(1, std::memory_order_relaxed);
}

LazyTensor::~LazyTensor() {
  if (pending_) set_filled();
}

void LazyTensor::release_resources() {
  if (pending_) set_filled();
  storage_until_filled_ = {};
  TensorImpl::release_resources();
}

void LazyTensor::set_filled() {
  pending_.reset();
  unfilled_.fetch_sub(1, std::memory_order_relaxed);
}

LazyTensor* LazyTensor::unfilled(const at::Tensor& tensor) {
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (typeid(impl) != typeid(LazyTensor)) return nullptr;  // nothing derives from it: no search among the bases
  auto& lazy = static_cast<LazyTensor&>(impl);
  return lazy.is_filled() ? nullptr : &lazy;
}

void LazyTensor::fill(const at::Tensor& result, bool alias) {
  if (result.sizes() != sizes() || result.dtype() != dtype())
    throw Error("internal error: a followed trace gave another shape or dtype than it gave before");
  if (result.requires_grad() && result.is_leaf() && !result.is_view())  // no other tensor can collect its gradients
    throw Error("internal error: an operator of a followed trace handed an argument back, which it did not before");
  if (alias || result.key_set() != key_set() || !result.has_storage()) {
    shallow_copy_from(result.getIntrusivePtr());
  } else {
    auto* keep = new c10::Storage(result.storage());  // not the tensor: a detached one keeps no gradients alive
    c10::StorageImpl* own = storage_until_filled_.unsafeGetStorageImpl();
    // Not the storage's own pointer: what is copied on write has to be copied now.
    auto* data = static_cast<char*>(result.data_ptr());
    if (data) data -= static_cast<size_t>(result.storage_offset()) * result.element_size();
    own->set_data_ptr(c10::DataPtr(data, keep, &release_storage, result.device()));
    own->set_nbytes(result.storage().nbytes());
    c10::Allocator* const allocator = result.storage().allocator();  // the script may let it grow, as any result
    own->set_allocator(allocator ? allocator : c10::GetAllocator(result.device().type()));
    own->set_resizable(true);
    set_sizes_and_strides(result.sizes(), result.strides());
    set_storage_offset(result.storage_offset());
  }
  compat::take_history(at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::reclaim_copy(this)),
                       result);
  set_filled();
}

void LazyTensor::read() {
  if (!pending_ || !pending_->closed) return;
  const std::shared_ptr<PendingSegment> segment = pending_;
  if (segment->segment) {
    segment->segment->wanted[value_] = true;
    segment->segment->ready = false;
  }
  segment->compute();
}

}  // namespace triage::capture
