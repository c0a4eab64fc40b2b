#include "bindings/c/tensors.h"

#include "bindings/c/status.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace triage::c {
namespace {

constexpr int bool_code = 6;  // kDLBool, which the dlpack.h of LibTorch 1.13 lacks
constexpr int32_t max_dims = 64;

struct DlpackDtype {
  at::ScalarType type;
  int code, bits;
};
constexpr DlpackDtype dtypes[] = {{at::kFloat, kDLFloat, 32},
                                  {at::kDouble, kDLFloat, 64},
                                  {at::kHalf, kDLFloat, 16},
                                  {at::kBFloat16, kDLBfloat, 16},
                                  {at::kLong, kDLInt, 64},
                                  {at::kInt, kDLInt, 32},
                                  {at::kShort, kDLInt, 16},
                                  {at::kChar, kDLInt, 8},
                                  {at::kByte, kDLUInt, 8},
                                  {at::kBool, bool_code, 8},
                                  {at::kComplexFloat, kDLComplex, 64},
                                  {at::kComplexDouble, kDLComplex, 128}};

DLDataType described_as(const DlpackDtype& dtype) {
  return {static_cast<uint8_t>(dtype.code), static_cast<uint8_t>(dtype.bits), 1};
}

/// Which tensor a message is about.
struct TensorLabel {
  const char* what;
  size_t number;
  template <class... Arguments>
  [[noreturn]] void refuse(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    throw Misuse(fmt::format("{} {}: {}", what, number, fmt::format(format, std::forward<Arguments>(arguments)...)));
  }
};

at::ScalarType dtype_of(const DLDataType& dtype, const TensorLabel& name) {
  if (dtype.lanes == 1) {
    for (const DlpackDtype& row : dtypes)
      if (row.code == dtype.code && row.bits == dtype.bits) return row.type;
  }
  name.refuse(
      "a dtype of code {}, {} bits and {} lanes is not supported; pass one lane of float (code {}) of 16, 32 or 64 "
      "bits, "
      "bfloat16 ({}), int ({}) of 8 to 64 bits, uint8 ({}), bool ({}, 8 bits) or complex ({}) of 64 or 128 bits",
      int{dtype.code}, int{dtype.bits}, int{dtype.lanes}, int{kDLFloat}, int{kDLBfloat}, int{kDLInt}, int{kDLUInt},
      bool_code, int{kDLComplex});
}

const DlpackDtype& dtype_for(at::ScalarType type, const TensorLabel& name) {
  for (const DlpackDtype& row : dtypes)
    if (row.type == type) return row;
  name.refuse("it has dtype {}, which DLPack cannot describe; convert it before, as in x:float()", c10::toString(type));
}

at::Device device_of(const DLDevice& device, const TensorLabel& name) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) return at::kCPU;
  if (device.device_type != kDLCUDA)
    name.refuse("a device of type {} is not supported; pass memory of the CPU (type {}), or of CUDA (type {})",
                static_cast<int>(device.device_type), int{kDLCPU}, int{kDLCUDA});
  if (!at::hasCUDA())
    name.refuse("it is on CUDA device {}, but this LibTorch has no CUDA device; pass memory of the CPU",
                device.device_id);
  if (device.device_id < 0 || device.device_id > INT8_MAX)
    name.refuse("a CUDA device cannot have the number {}", device.device_id);
  return {at::kCUDA, static_cast<c10::DeviceIndex>(device.device_id)};
}

DLDevice device_for(at::Device device, const TensorLabel& name) {
  if (!device.is_cpu() && !device.is_cuda())
    name.refuse("it is on device {}, which this interface cannot describe; move it to the CPU before, as in x:cpu()",
                device.str());
  return {device.is_cuda() ? kDLCUDA : kDLCPU, device.is_cuda() ? device.index() : 0};
}

void check_shape(const DLTensor& tensor, const TensorLabel& name) {
  if (tensor.ndim < 0 || tensor.ndim > max_dims) name.refuse("ndim is {}; pass 0 to {}", tensor.ndim, max_dims);
  if (tensor.ndim > 0 && !tensor.shape) name.refuse("shape is null, but ndim is {}; pass that many sizes", tensor.ndim);
  for (int32_t d = 0; d < tensor.ndim; ++d)
    if (tensor.shape[d] < 0) name.refuse("size {} of dimension {} is negative", tensor.shape[d], d);
}

/// Throws for sizes and strides that no memory can have: LibTorch would compute with numbers that overflow.
void check_layout(const DLTensor& tensor, size_t item_size, const TensorLabel& name) {
  check_shape(tensor, name);
  int64_t elements = 1, last = 0;
  bool fits = true;
  for (int32_t d = tensor.ndim; d-- > 0;) {
    const int64_t size = tensor.shape[d], stride = tensor.strides ? tensor.strides[d] : elements;
    int64_t step = 0;
    if (stride < 0)
      name.refuse("stride {} of dimension {} is negative, which LibTorch does not support; copy the tensor", stride, d);
    fits &= !__builtin_mul_overflow(elements, size, &elements);
    if (size > 0)
      fits &= !__builtin_mul_overflow(size - 1, stride, &step) && !__builtin_add_overflow(last, step, &last);
  }
  int64_t bytes = 0;
  fits &=
      !__builtin_add_overflow(std::max(last, elements), 1, &last) && !__builtin_mul_overflow(last, item_size, &bytes);
  if (!fits) name.refuse("its sizes and strides span more than 2^63 bytes; check them");
  if (elements == 0) return;
  if (!tensor.data) name.refuse("data is null, but it has {} elements", elements);
  constexpr uint64_t most_memory = uint64_t{1} << 57;  // all addresses that a process can have
  if (tensor.byte_offset > most_memory || static_cast<uint64_t>(bytes) > most_memory)
    name.refuse("byte_offset ({}) and the {} bytes that its sizes and strides span lie beyond the end of memory",
                tensor.byte_offset, bytes);
  if ((reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset) % item_size != 0)
    name.refuse("data + byte_offset ({}) is no multiple of the size of an element ({} bytes); align it",
                tensor.byte_offset, item_size);
}

void call_deleter(void* tensor) {
  auto* managed = static_cast<DLManagedTensor*>(tensor);
  const InCallback inside;
  managed->deleter(managed);
}

/// `owner`: the deleter of this tensor is called when nothing uses the memory any more; at once if this throws.
at::Tensor convert(const DLManagedTensor* managed, std::unique_ptr<void, void (*)(void*)> owner,
                   const TensorLabel& name) {
  if (!managed) name.refuse("it is null; pass a DLManagedTensor");
  const DLTensor& tensor = managed->dl_tensor;
  const at::ScalarType dtype = dtype_of(tensor.dtype, name);
  check_layout(tensor, c10::elementSize(dtype), name);
  const at::Device device = device_of(tensor.device, name);
  const auto dims = static_cast<size_t>(tensor.ndim);
  // Without elements the offset may lead anywhere.
  void* data = tensor.data ? static_cast<std::byte*>(tensor.data) + tensor.byte_offset : nullptr;
  at::TensorMaker maker = at::for_blob(data, {tensor.shape, dims});
  if (tensor.strides) maker.strides(at::IntArrayRef(tensor.strides, dims));
  if (owner) {
    const auto deleter = owner.get_deleter();
    maker.context(owner.release(), deleter);
  }
  return maker.options(at::TensorOptions(device).dtype(dtype)).target_device(device).make_tensor();
}

/// A tensor that the host holds.
struct DlpackTensor {
  explicit DlpackTensor(at::Tensor held) : tensor(std::move(held)) {}
  at::Tensor tensor;
  DLManagedTensor managed{};
};

}  // namespace

at::Tensor borrow(const DLManagedTensor* tensor, const char* what, size_t number) {
  return convert(tensor, {nullptr, call_deleter}, {what, number});
}

void ReceivedTensors::add(DLManagedTensor* tensor) { taken_.push_back(tensor); }

ReceivedTensors::~ReceivedTensors() {
  for (size_t i = 0; i < taken_.size(); ++i) {
    DLManagedTensor* tensor = taken_[i];
    // The same one twice is refused, and freed once.
    const bool is_first = std::find(taken_.begin(), taken_.begin() + i, tensor) == taken_.begin() + i;
    if (tensor && tensor->deleter && is_first) call_deleter(tensor);
  }
}

at::ArrayRef<at::Tensor> ReceivedTensors::tensors() {
  for (size_t i = 1; i < taken_.size(); ++i) {
    const auto* earlier = std::find(taken_.begin(), taken_.begin() + i, taken_[i]);
    if (taken_[i] && taken_[i]->deleter && earlier != taken_.begin() + i)
      TensorLabel{what_, i}.refuse(
          "it is the same DLManagedTensor as {} {}, and its deleter can be called only once; pass two, or one without "
          "deleter",
          what_, earlier - taken_.begin());
  }
  for (size_t i = 0; i < taken_.size(); ++i) {
    DLManagedTensor* tensor = std::exchange(taken_[i], nullptr);
    const bool has_deleter = tensor && tensor->deleter;
    tensors_.push_back(convert(tensor, {has_deleter ? tensor : nullptr, call_deleter}, {what_, i}));
    borrowed_.push_back(!has_deleter);
  }
  return {tensors_.data(), tensors_.size()};
}

void ReceivedTensors::give_back() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const c10::Storage storage = tensors_[i].storage();
    tensors_[i].reset();
    if (!borrowed_[i] || storage.use_count() == 1 || storage.nbytes() == 0) continue;
    const auto bytes = static_cast<int64_t>(storage.nbytes());
    const auto options = at::TensorOptions(storage.device()).dtype(at::kByte);
    const at::Tensor copy = at::for_blob(storage.data_ptr().get(), {bytes})
                                .options(options)
                                .target_device(storage.device())
                                .make_tensor()
                                .clone();
    storage.set_data_ptr(copy.storage().set_data_ptr(at::DataPtr(nullptr, storage.device())));
  }
}

DLManagedTensor* give(at::Tensor tensor, const char* what, size_t number) {
  const TensorLabel name{what, number};
  if (tensor.layout() != at::kStrided || tensor.is_quantized())
    name.refuse(
        "it is a sparse or quantized tensor, which DLPack cannot describe; make it dense before, as in x:to_dense()");
  const DLDevice device = device_for(tensor.device(), name);
  const DlpackDtype& dtype = dtype_for(tensor.scalar_type(), name);
  tensor = tensor.resolve_conj().resolve_neg();
  if (tensor.numel() > 0 && !tensor.data_ptr()) tensor = tensor.clone();  // zeros that LibTorch keeps without memory
  if (tensor.numel() > 0 && !tensor.data_ptr())
    name.refuse("it has no memory of its own; let the policy return a copy");
  auto given = std::make_unique<DlpackTensor>(std::move(tensor));
  const at::Tensor& held = given->tensor;
  DLTensor& described = given->managed.dl_tensor;
  described.data = held.data_ptr();
  described.device = device;
  described.ndim = static_cast<int32_t>(held.dim());
  described.dtype = described_as(dtype);
  described.shape = const_cast<int64_t*>(held.sizes().data());      // NOLINT: DLPack has no const
  described.strides = const_cast<int64_t*>(held.strides().data());  // NOLINT
  given->managed.manager_ctx = given.get();
  given->managed.deleter = [](DLManagedTensor* self) { delete static_cast<DlpackTensor*>(self->manager_ctx); };
  return &given.release()->managed;
}

DlpackDescription::DlpackDescription(const graph::TensorMeta& meta, const char* what, size_t number)
    : sizes(meta.sizes) {
  const TensorLabel name{what, number};
  DLTensor& described = managed.dl_tensor;
  described.device = device_for(meta.device, name);
  described.ndim = static_cast<int32_t>(sizes.size());
  described.dtype = described_as(dtype_for(meta.dtype, name));
  described.shape = sizes.data();
}

graph::TensorMeta form_of(const DLManagedTensor* tensor, const char* what, size_t number) {
  const TensorLabel name{what, number};
  if (!tensor) name.refuse("it is null; pass a DLManagedTensor");
  const DLTensor& form = tensor->dl_tensor;
  check_shape(form, name);
  const at::IntArrayRef sizes(form.shape, static_cast<size_t>(form.ndim));
  return {dtype_of(form.dtype, name), sizes.vec(), at::kCPU};
}

at::Device device_of(const DLDevice& device, const char* what) { return device_of(device, TensorLabel{what, 0}); }

}  // namespace triage::c
