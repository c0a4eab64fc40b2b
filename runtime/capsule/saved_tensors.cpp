#include "runtime/capsule/saved_tensors.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <triage/files.h>

#include <algorithm>
#include <limits>

#include "runtime/compat/readable_memory.h"
#include "runtime/files/disk.h"
#include "runtime/files/dtype.h"
#include "runtime/messages/printable.h"

namespace triage::capsule {
namespace {

using files::Malformed;

/// What a layout reaches of its memory: one more than the last element. Throws for a layout of no tensor.
int64_t reach(at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  if (sizes.size() != strides.size() || offset < 0) throw Malformed("a tensor in it has a damaged layout");
  int64_t last = offset, count = 1;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t step = 0;
    if (sizes[i] < 0 || strides[i] < 0 || __builtin_mul_overflow(std::max<int64_t>(sizes[i], 1), count, &count) ||
        __builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &step) ||
        __builtin_add_overflow(last, step, &last))
      throw Malformed("a tensor in it has a damaged layout");
    empty |= sizes[i] == 0;
  }
  return empty ? offset : last + 1;
}

/// Without history, and without bits that say how the memory is to be read.
at::Tensor plain(const at::Tensor& tensor) { return tensor.detach().resolve_conj().resolve_neg(); }

bool has_memory(const at::Tensor& tensor) {
  return compat::has_only(tensor, compat::captured_keys) && compat::is_readable(plain(tensor)) &&
         files::names_of(tensor.scalar_type());
}

std::vector<int64_t> integers(const Json& list, const char* what) {
  if (!list.is_array()) throw Malformed(fmt::format("the {} of a tensor in it are no list", what));
  std::vector<int64_t> numbers;
  for (const Json& item : list) numbers.push_back(integer(item, what));
  return numbers;
}

}  // namespace

const Json& member(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end()) throw Malformed(fmt::format("it lacks the field `{}`", name));
  return *found;
}

int64_t integer(const Json& value, const char* what) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()}))
    throw Malformed(fmt::format("its field `{}` is no integer", what));
  return value.get<int64_t>();
}

std::string text(const Json& value, const char* what) {
  if (!value.is_string()) throw Malformed(fmt::format("its field `{}` is no text", what));
  return value.get<std::string>();
}

size_t SavedTensors::add(const at::Tensor& given, bool masked) {
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (tensors_[i].is_same(given)) return i;
  if (!has_memory(given))
    throw Malformed(fmt::format("a tensor of dtype {} and layout {} cannot be kept", c10::toString(given.scalar_type()),
                                given.layout() == at::kStrided ? "strided" : "sparse"));
  const at::Tensor tensor = plain(given);
  const size_t memory = memory_of(tensor, masked);
  Json layout = {{"memory", memory},
                 {"dtype", dtype_name(tensor.scalar_type())},
                 {"sizes", tensor.sizes().vec()},
                 {"strides", tensor.strides().vec()},
                 {"offset", tensor.storage_offset()},
                 {"device", tensor.device().str()}};
  if (given.requires_grad()) layout["requires_grad"] = true;
  if (given.is_inference()) layout["inference"] = true;
  if (given.unsafeGetTensorImpl()->is_wrapped_number()) layout["number"] = true;
  layouts_.push_back(std::move(layout));
  tensors_.push_back(given);
  return tensors_.size() - 1;
}

size_t SavedTensors::memory_of(const at::Tensor& tensor, bool masked) {
  const int64_t first = tensor.storage_offset();
  const int64_t end = reach(tensor.sizes(), tensor.strides(), first);
  for (size_t i = 0; i < memories_.size(); ++i) {
    SavedMemory& known = memories_[i];
    if (known.dtype != tensor.scalar_type() || !known.owner.is_alias_of(tensor) || known.masked != masked) continue;
    const int64_t from = std::min(first, known.first), to = std::max(end, known.first + known.count);
    if (from != known.first || to != known.first + known.count) keep(known, from, to - from);
    return i;
  }
  memories_.push_back({tensor, tensor.scalar_type(), 0, 0, {}, masked});
  keep(memories_.back(), first, end - first);
  return memories_.size() - 1;
}

void SavedTensors::keep(SavedMemory& memory, int64_t first, int64_t count) {
  const c10::InferenceMode off(false);
  const at::NoGradGuard no_grad;
  bytes_ += static_cast<uint64_t>(count - memory.count) * memory.owner.element_size();
  memory.first = first, memory.count = count;
  const auto options = at::TensorOptions(memory.dtype).device(at::kCPU);
  if (memory.masked || memory.owner.device().is_meta())
    memory.values = at::zeros({count}, options);
  else
    memory.values = at::empty({count}, options).copy_(memory.owner.as_strided({count}, {1}, first));
}

void SavedTensors::leave_out(size_t number) {
  SavedMemory& memory = memories_[layouts_[number]["memory"].get<size_t>()];
  memory.masked = true;
  keep(memory, memory.first, memory.count);
}

bool SavedTensors::leaves_out() const noexcept {
  return std::any_of(memories_.begin(), memories_.end(), [](const SavedMemory& memory) { return memory.masked; });
}

std::vector<at::Tensor> SavedTensors::memories() const {
  std::vector<at::Tensor> values;
  for (const SavedMemory& memory : memories_) values.push_back(memory.values);
  return values;
}

namespace {

/// The first element that each memory keeps stands in the layouts of its tensors, as the least offset.
std::vector<int64_t> first_elements(const Json& layouts, size_t memories) {
  std::vector<int64_t> first(memories, std::numeric_limits<int64_t>::max());
  for (const Json& layout : layouts) {
    const int64_t memory = integer(member(layout, "memory"), "memory");
    if (memory < 0 || static_cast<size_t>(memory) >= memories) throw Malformed("a tensor in it has no memory");
    first[static_cast<size_t>(memory)] =
        std::min(first[static_cast<size_t>(memory)], integer(member(layout, "offset"), "offset"));
    if (layout["offset"] < 0) throw Malformed("a tensor in it has a damaged layout");
  }
  return first;
}

}  // namespace

RestoredTensors::RestoredTensors(const Json& layouts, const std::vector<at::Tensor>& memories) {
  if (!layouts.is_array()) throw Malformed("its tensors are no list");
  const c10::InferenceMode off(false);
  const std::vector<int64_t> first = first_elements(layouts, memories.size());
  for (const Json& layout : layouts) {
    Json shifted = layout;
    const auto memory = static_cast<size_t>(integer(layout["memory"], "memory"));
    shifted["offset"] = integer(layout["offset"], "offset") - first[memory];
    tensors_.push_back(restore(shifted, memories));
  }
}

at::Tensor RestoredTensors::restore(const Json& layout, const std::vector<at::Tensor>& memories) {
  const at::Tensor& memory = memories[static_cast<size_t>(layout["memory"].get<int64_t>())];
  const auto dtype = files::find_dtype(&files::DtypeNames::torch, text(member(layout, "dtype"), "dtype"));
  const auto sizes = integers(member(layout, "sizes"), "sizes"),
             strides = integers(member(layout, "strides"), "strides");
  const int64_t offset = layout["offset"].get<int64_t>();
  if (!dtype)
    throw Malformed(fmt::format("it has a tensor of dtype `{}`, which there is not",
                                messages::one_line(text(layout["dtype"], "dtype"))));
  if (memory.scalar_type() != *dtype || memory.dim() != 1 || offset < 0 ||
      reach(sizes, strides, offset) > memory.numel())
    throw Malformed("a tensor in it does not fit its memory");
  at::Tensor tensor = memory.as_strided(sizes, strides, offset);
  if (const std::string device = text(member(layout, "device"), "device"); device != "cpu") {
    try {
      tensor = tensor.to(c10::Device(device));
    } catch (const std::exception&) {
      notes_.push_back(fmt::format("a tensor that was on {} is on the CPU here", device));
    }
  }
  if (layout.value("number", false) && sizes.empty()) tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (layout.value("requires_grad", false)) tensor = tensor.detach().requires_grad_();
  return tensor;
}

const at::Tensor& RestoredTensors::at(int64_t number) const {
  if (number < 0 || static_cast<size_t>(number) >= tensors_.size())
    throw Malformed(fmt::format("it has no tensor {}", number));
  return tensors_[static_cast<size_t>(number)];
}

}  // namespace triage::capsule
