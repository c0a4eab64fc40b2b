#include "other_device.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <doctest/doctest.h>
#include <torch/library.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

namespace triage::test {

namespace {

const char* device_named() { return std::getenv("TRIAGE_TEST_DEVICE"); }

}  // namespace

const c10::Device OTHER_DEVICE =
    device_named() ? c10::Device(std::string(device_named()) + ":0") : c10::Device(c10::DeviceType::PrivateUse1, 0);
bool is_real_device() { return OTHER_DEVICE.type() != c10::DeviceType::PrivateUse1; }
bool has_autograd() {
  const bool has = at::hasCUDA() || !c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA);
  if (!has) MESSAGE("left out: LibTorch was built for CUDA, and there is no driver");
  return has;
}

namespace {

using at::Tensor;

bool is_other(const Tensor& tensor) { return tensor.defined() && tensor.device().type() == OTHER_DEVICE.type(); }

/// A tensor in this memory, laid out as `like`.
Tensor tensor_in(c10::Storage storage, c10::DispatchKey key, const Tensor& like) {
  Tensor result = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  result.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

/// The memory of `owner`, which lives as long, as memory of the device.
c10::Storage same_memory(const Tensor& owner, c10::Device device) {
  const auto& storage = owner.storage();
  void* data = const_cast<void*>(static_cast<const void*>(storage.data_ptr().get()));
  c10::DataPtr memory(
      data, new Tensor(owner), [](void* kept) { delete static_cast<Tensor*>(kept); }, device);
  return {c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(memory), c10::GetCPUAllocator(), true};
}

Tensor seen_by_host(const Tensor& tensor) {
  return tensor_in(same_memory(tensor, c10::Device(at::kCPU)), c10::DispatchKey::CPU, tensor);
}

thread_local std::vector<std::string>* waits = nullptr;

/// One call, made with the host's tensors.
class HostCall {
 public:
  explicit HostCall(bool is_copy) : is_copy_(is_copy) {}

  c10::IValue argument(const c10::IValue& value) {
    if (value.isTensor()) return tensor_argument(value.toTensor());
    if (value.isDevice() && value.toDevice().type() == OTHER_DEVICE.type()) return c10::Device(at::kCPU);
    if (!value.isList()) return value;
    c10::impl::GenericList list(value.toList().elementType());
    for (const c10::IValue& item : value.toListRef()) list.push_back(argument(item));
    return list;
  }

  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) return tensor_result(value.toTensor());
    if (!value.isTensorList()) return value;
    c10::List<Tensor> list;
    for (const c10::IValue& item : value.toListRef()) list.push_back(tensor_result(item.toTensor()));
    return list;
  }

  bool copies_between_devices() const { return copies_ && any_; }

  /// Results are written to tensors that are empty before.
  void keep_resized() const {
    for (const auto& [impl_of_host, original] : originals_) {
      const auto* const host = impl_of_host;
      if (!is_other(original)) continue;
      auto* const impl = original.unsafeGetTensorImpl();
      const Tensor& now = *std::find_if(kept_.begin(), kept_.end(),
                                        [&](const Tensor& kept) { return kept.unsafeGetTensorImpl() == host; });
      if (now.storage().data_ptr().get() != original.storage().data_ptr().get())
        impl->set_storage_keep_dtype(same_memory(now, OTHER_DEVICE));
      if (now.sizes() != original.sizes() || now.strides() != original.strides())
        impl->set_sizes_and_strides(now.sizes(), now.strides());
    }
  }

 private:
  Tensor tensor_argument(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!is_other(tensor)) {
      copies_ |= is_copy_ || tensor.dim() != 0;  // a kernel takes one number as an argument
      originals_.emplace(tensor.unsafeGetTensorImpl(), tensor);
      return tensor;
    }
    any_ = true;
    Tensor host = seen_by_host(tensor);
    originals_.emplace(host.unsafeGetTensorImpl(), tensor);
    storages_.emplace(host.storage().unsafeGetStorageImpl(), tensor.storage());
    kept_.push_back(host);
    return host;
  }

  Tensor tensor_result(const Tensor& host) {
    if (!host.defined()) return host;
    if (const auto same = originals_.find(host.unsafeGetTensorImpl()); same != originals_.end()) return same->second;
    const auto view = storages_.find(host.storage().unsafeGetStorageImpl());
    auto storage = view == storages_.end() ? same_memory(host, OTHER_DEVICE) : view->second;
    return tensor_in(std::move(storage), c10::DispatchKey::PrivateUse1, host);
  }

  std::map<const c10::TensorImpl*, Tensor> originals_;  // of the host's
  std::map<const c10::StorageImpl*, c10::Storage> storages_;
  std::vector<Tensor> kept_;
  bool is_copy_, copies_ = false, any_ = false;
};

/// Whether the host needs values, or a number of elements that values decide.
bool reads_values(const std::string& name, const c10::IValue* arguments) {
  static const std::set<std::string> all = {"aten::_local_scalar_dense",
                                            "aten::nonzero",
                                            "aten::masked_select",
                                            "aten::equal",
                                            "aten::is_nonzero",
                                            "aten::_unique2",
                                            "aten::unique_dim",
                                            "aten::unique_consecutive",
                                            "aten::bincount",
                                            "aten::repeat_interleave"};
  if (name != "aten::index") return all.count(name) != 0;
  for (const c10::IValue& index : arguments[1].toListRef())
    if (index.isTensor() && index.toTensor().defined() && index.toTensor().scalar_type() == at::kBool) return true;
  return false;
}

/// `copy_` between devices ends in this operator, which the host does not have.
void copy_from(torch::jit::Stack& stack) {
  Tensor to = stack[stack.size() - 2].toTensor();
  to.copy_(stack[stack.size() - 3].toTensor());
  torch::jit::drop(stack, 3);
  stack.emplace_back(std::move(to));
}

/// As on GPUs, where most operators take numbers of the host beside tensors of the device.
void refuse_numbers(const std::string& name, const c10::IValue* arguments, size_t count) {
  if (name.rfind("aten::cl", 0) != 0 && name != "aten::where") return;
  for (size_t i = 0; i < count; ++i)
    if (arguments[i].isTensor() && arguments[i].toTensor().defined() && arguments[i].toTensor().is_cpu())
      throw std::invalid_argument("expected all tensors to be on the same device");
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const std::string& name = op.operator_name().name;
  refuse_numbers(name, stack->data() + stack->size() - count, count);
  HostCall call(/*is_copy=*/name == "aten::_copy_from");
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(count); value != stack->end(); ++value)
    *value = call.argument(*value);
  if (waits && (call.copies_between_devices() || reads_values(name, stack->data() + stack->size() - count)))
    waits->push_back(name);
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (name == "aten::_copy_from")
      copy_from(*stack);
    else
      op.callBoxed(stack);
  }
  call.keep_resized();
  const size_t results = op.schema().returns().size();
  for (auto value = stack->end() - static_cast<std::ptrdiff_t>(results); value != stack->end(); ++value)
    *value = call.result(*value);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>()); }

// LibTorch has nothing for autograd of what has no kernel for it, other than for GPUs.
TORCH_LIBRARY_IMPL(triage, AutogradPrivateUse1, m) {
  for (const char* name : {"size", "item", "math", "math.Scalar", "math.Tensor", "assert_scalar"})
    m.impl(name, torch::CppFunction::makeFallthrough());
}

/// One device with one stream. LibTorch's own guard for such devices has none, and autograd of 2.6 asks for it where
/// gradients of two uses are added.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device /*device*/) const override { return OTHER_DEVICE; }
  c10::Device getDevice() const override { return OTHER_DEVICE; }
  void setDevice(c10::Device /*device*/) const override {}
  void uncheckedSetDevice(c10::Device /*device*/) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

// Frames of operators: 't' of triage, 'a' of others.
thread_local std::string frames;
thread_local std::vector<std::string>* made = nullptr;

bool on_device(const c10::IValue& value) {
  if (value.isTensor()) return is_other(value.toTensor());
  if (!value.isTensorList()) return false;
  const auto list = value.toTensorVector();
  return std::any_of(list.begin(), list.end(), is_other);
}

bool copies_between_devices(const std::string& name, at::ArrayRef<const c10::IValue> arguments) {
  return name == "aten::copy_" && arguments[0].toTensor().device() != arguments[1].toTensor().device();
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  const std::string name = function.name();
  const bool ours = name.rfind("triage::", 0) == 0;
  const bool computes = !ours && name != "aten::result_type";
  if (made && computes && !frames.empty() && frames.back() == 't') made->push_back(name);
  if (waits && is_real_device()) {
    const auto inputs = function.inputs();
    const bool there = std::any_of(inputs.begin(), inputs.end(), on_device);
    if ((there && reads_values(name, inputs.data())) || copies_between_devices(name, inputs)) waits->push_back(name);
  }
  frames.push_back(ours ? 't' : 'a');
  return nullptr;
}

void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) { frames.pop_back(); }

}  // namespace

Tensor to_other(const Tensor& tensor) {
  const auto& storage = tensor.storage();
  const Tensor copy = at::empty({static_cast<int64_t>(storage.nbytes())}, at::kByte);
  if (storage.nbytes() > 0) std::memcpy(copy.data_ptr(), storage.data_ptr().get(), storage.nbytes());
  if (!is_real_device()) return tensor_in(same_memory(copy, OTHER_DEVICE), c10::DispatchKey::PrivateUse1, tensor);
  const at::NoGradGuard no_grad;
  return at::empty({0}, tensor.options().device(OTHER_DEVICE))
      .set_(copy.to(OTHER_DEVICE).storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

Tensor from_other(const Tensor& tensor) {
  if (!is_other(tensor)) return tensor;
  return is_real_device() ? tensor.detach().cpu() : seen_by_host(tensor.detach());
}

Calls calls_of(const std::function<void()>& run) {
  Calls calls;
  waits = &calls.waits;
  made = &calls.made;
  frames.clear();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_begin, on_end).needsInputs(is_real_device()).scopes({at::RecordScope::FUNCTION}));
  struct End {
    at::CallbackHandle handle;
    ~End() {
      at::removeCallback(handle);
      waits = made = nullptr;
    }
  } end{handle};
  const at::RecordFunctionGuard enabled(true);
  run();
  return calls;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text = std::to_string(names.size()) + ":";
  for (const std::string& name : names) text += " " + name;
  return text;
}

}  // namespace triage::test
