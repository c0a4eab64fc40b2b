#include "tests/fuzz/operators/memory_of_arguments.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace triage::fuzz {

MemoryOfArguments::MemoryOfArguments(const c10::FunctionSchema& schema, const torch::jit::Stack& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    if (arguments[i].isTensor()) add(argument.name(), arguments[i].toTensor(), written);
    if (arguments[i].isList())
      for (const c10::IValue& item : arguments[i].toListRef())
        if (item.isTensor()) add(argument.name(), item.toTensor(), written);
  }
}

void MemoryOfArguments::add(const std::string& name, const at::Tensor& tensor, bool written) {
  if (!tensor.defined() || !tensor.has_storage() || !tensor.device().is_cpu()) return;
  c10::StorageImpl* impl = tensor.storage().unsafeGetStorageImpl();
  auto found =
      std::find_if(storages_.begin(), storages_.end(), [&](const Storage& storage) { return storage.impl == impl; });
  if (found == storages_.end()) {
    const auto* data = static_cast<const unsigned char*>(impl->data());
    storages_.push_back({impl, data, {}, std::vector<bool>(impl->nbytes())});
    found = storages_.end() - 1;
    if (data) found->bytes.assign(data, data + impl->nbytes());
  }
  if (written)
    mark_written(*found, tensor);
  else
    read_only_.push_back({tensor, name, tensor.sizes().vec(), tensor.strides().vec(), tensor.storage_offset()});
}

void MemoryOfArguments::mark_written(Storage& storage, const at::Tensor& tensor) {
  if (tensor.numel() == 0) return;
  const auto width = static_cast<int64_t>(tensor.element_size());
  std::vector<int64_t> position(static_cast<size_t>(tensor.dim()), 0);
  int64_t element = tensor.storage_offset();
  while (true) {
    for (int64_t byte = element * width; byte < (element + 1) * width; ++byte)
      storage.written[static_cast<size_t>(byte)] = true;
    int64_t dim = tensor.dim() - 1;
    for (; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      element += tensor.stride(dim);
      if (++position[d] < tensor.size(dim)) break;
      element -= tensor.stride(dim) * tensor.size(dim);
      position[d] = 0;
    }
    if (dim < 0) return;
  }
}

std::string MemoryOfArguments::undeclared_change() const {
  for (const Shape& shape : read_only_)
    if (shape.tensor.sizes() != at::IntArrayRef(shape.sizes) ||
        shape.tensor.strides() != at::IntArrayRef(shape.strides) || shape.tensor.storage_offset() != shape.offset)
      return "undeclared write: sizes of argument '" + shape.name + "' changed";
  for (const Storage& storage : storages_) {
    if (storage.impl->data() != storage.data) continue;  // a written one that got new memory
    for (size_t i = 0; i < storage.bytes.size(); ++i)
      if (!storage.written[i] && storage.data[i] != storage.bytes[i])
        return "undeclared write: byte " + std::to_string(i) + " of " + std::to_string(storage.bytes.size()) +
               " of an argument's memory changed";
  }
  return "";
}

}  // namespace triage::fuzz
