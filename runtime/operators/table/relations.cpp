#include "runtime/operators/table/relations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/operators/division.h"
#include "runtime/operators/table/costs.h"
#include "runtime/operators/table/shapes_of.h"

namespace triage::operators::relation {
namespace {

constexpr double kMostElements = 1099511627776;
constexpr int64_t kMostPieces = 100'000;

Wrong too_many_elements(const char* what, double elements) {
  if (elements <= kMostElements) return std::nullopt;
  return fmt::format("{} would have {:.0f} elements; expected at most {:.0f}", what, elements, kMostElements);
}

/// The elements of a tensor that lie apart: what is expanded repeats them.
at::Tensor unexpanded(at::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  return tensor;
}

bool is_whole(const at::Tensor& tensor) { return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true); }

}  // namespace

Wrong pieces(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  if (!self || self->dim() == 0) return std::nullopt;
  int64_t dim = call.integer("dim", 0);
  if (dim < 0) dim += self->dim();
  const int64_t size = self->size(dim), step = std::max<int64_t>(1, call.integer("split_size", 1));
  const int64_t count = call.value("chunks").isNone() ? size / step : std::min(size, call.integer("chunks", 1));
  if (count <= kMostPieces) return std::nullopt;
  return fmt::format("argument 'self' would be cut into {} tensors; expected at most {}", count, kMostPieces);
}

Wrong broadcasts(const Call& call) { return too_many_elements("each result", cost::broadcast_elements(call)); }

Wrong meshes(const Call& call) {
  double elements = 1;
  for (const at::Tensor& tensor : call.tensors("tensors")) elements *= static_cast<double>(tensor.numel());
  return too_many_elements("each result", elements);
}

Wrong adds_to_self(const Call& call) {
  if (call.number("beta", 1) != 0) return std::nullopt;
  return "argument 'beta' is 0; expected another number (torch.bmm multiplies and adds nothing)";
}

Wrong indexes(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  int64_t taken = 0;
  for (const c10::IValue& item : call.value("indices").toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) {
      ++taken;
      continue;
    }
    const at::Tensor& index = item.toTensor();
    const bool mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    if (!mask && index.scalar_type() != at::kLong)
      return fmt::format("argument 'indices' holds a tensor of {}; expected Long or Bool",
                         c10::toString(index.scalar_type()));
    taken += mask ? index.dim() : 1;
  }
  if (self && taken > self->dim())
    return fmt::format("argument 'indices' is for {} dimensions; the tensor has {}", taken, self->dim());
  return std::nullopt;
}

Wrong vector_norm(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  if (!self || call.value("ord").isNone()) return std::nullopt;
  const std::vector<int64_t> dims = call.integers("dim");
  const int64_t count = call.value("dim").isNone() ? self->dim() : static_cast<int64_t>(dims.size());
  if (count < 2) return std::nullopt;
  return "argument 'ord' asks for a norm of matrices; expected None, or one dimension";
}

Wrong same_sizes(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  for (const Name name : {Name("target"), Name("weight")}) {
    const at::Tensor* other = call.tensor(name);
    if (self && other && other->sizes() != self->sizes())
      return fmt::format("argument '{}' is of shape [{}]; expected [{}], as argument 'self' is", name.text(),
                         fmt::join(other->sizes(), ", "), fmt::join(self->sizes(), ", "));
  }
  return std::nullopt;
}

Wrong groups(const Call& call) {
  const int64_t channels = call.tensor("input")->size(1), count = call.integer("num_groups", 1);
  if (count <= std::max<int64_t>(1, channels)) return std::nullopt;  // of no channels, any number would divide them
  return fmt::format("argument 'num_groups' is {}; expected at most {}, the channels", count,
                     std::max<int64_t>(1, channels));
}

Wrong batch_norm(const Call& call) {
  const at::Tensor* input = call.tensor("input");
  for (const Name name : {Name("weight"), Name("bias"), Name("running_mean"), Name("running_var")}) {
    const at::Tensor* given = call.tensor(name);
    if (input && given && given->numel() != input->size(1))
      return fmt::format("argument '{}' has {} elements; expected {}, one for each channel", name.text(),
                         given->numel(), input->size(1));
  }
  if (call.boolean("training", false) && (call.tensor("running_mean") || call.tensor("running_var")))
    return "argument 'training' is true, and the running statistics would be written to; expected none of them, or "
           "training = false";
  if (!call.boolean("training", false) && !(call.tensor("running_mean") && call.tensor("running_var")))
    return "argument 'running_mean' or 'running_var' is missing; expected both where training = false";
  return std::nullopt;
}

Wrong convolution(const Call& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight"), *bias = call.tensor("bias");
  const int64_t spatial = weight->dim() - 2, groups = call.integer("groups", 1);
  const int64_t channels = input->size(input->dim() - spatial - 1);
  if (weight->size(1) > channels / groups || weight->size(1) * groups != channels || weight->size(0) % groups != 0)
    return fmt::format("argument 'weight' is of shape [{}]; it does not fit {} channels in {} groups",
                       fmt::join(weight->sizes(), ", "), channels, groups);
  if (bias && bias->size(0) != weight->size(0))
    return fmt::format("argument 'bias' has {} elements; expected {}", bias->size(0), weight->size(0));
  for (const int64_t size : convolved(call))
    if (size < 1) return "argument 'weight' is larger than the padded input";
  return std::nullopt;
}

Wrong pooling(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  const auto kernel = filled_up(call, "kernel_size", 1), padding = filled_up(call, "padding", 0);
  for (size_t i = 0; i < kernel.size(); ++i)
    if (padding[i] > kernel[i] / 2)
      return fmt::format("argument 'padding' is {}; expected at most half of the kernel, {}", padding[i],
                         kernel[i] / 2);
  for (const int64_t size : pooled(call))
    if (size < 1)
      return fmt::format("argument 'kernel_size' is larger than the padded input of shape [{}]",
                         fmt::join(self->sizes(), ", "));
  return std::nullopt;
}

Wrong constant_padding(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  const std::vector<int64_t> pad = call.integers("pad");
  if (pad.size() % 2 != 0 || static_cast<int64_t>(pad.size()) > 2 * self->dim())
    return fmt::format("argument 'pad' has {} elements; expected two for each of up to {} dimensions", pad.size(),
                       self->dim());
  for (const int64_t size : padded(call))
    if (size < 0) return "argument 'pad' takes away more than there is";
  return std::nullopt;
}

Wrong padding(const Call& call) {
  const c10::IValue& mode = call.value("mode");
  if (Wrong wrong = constant_padding(call)) return wrong;
  if (!mode.isString() || mode.toStringRef() == "constant") return std::nullopt;
  const at::Tensor* self = call.tensor("self");
  const std::vector<int64_t> pad = call.integers("pad");
  const auto count = static_cast<int64_t>(pad.size() / 2);
  if (count < 1 || count > 3 || self->dim() < count + 1 || self->dim() > count + 2 || self->numel() == 0)
    return fmt::format(
        "argument 'pad' has {} elements; the last one to three dimensions of a tensor with elements and one or two "
        "more dimensions can be padded so, got shape [{}]",
        pad.size(), fmt::join(self->sizes(), ", "));
  if (!at::isFloatingType(self->scalar_type())) return "argument 'self' is no tensor of floats";
  for (size_t i = 0; i < pad.size(); ++i) {
    const int64_t size = self->size(self->dim() - 1 - static_cast<int64_t>(i / 2));
    const int64_t most = mode.toStringRef() == "reflect" ? size - 1 : mode.toStringRef() == "circular" ? size : 1 << 30;
    if (pad[i] < 0 || pad[i] > most) return fmt::format("argument 'pad' holds {}; expected 0 to {}", pad[i], most);
  }
  return std::nullopt;
}

Wrong einsum(const Call& call) {
  if (read_einsum(call)) return std::nullopt;
  return fmt::format(
      "argument 'equation' is \"{}\"; expected letters for the dimensions of each tensor, as in \"ij,jk->ik\"",
      call.value("equation").toStringRef());
}

Wrong divides(const Call& call) {
  const c10::IValue &self = call.value("self"), &other = call.value("other"), &mode = call.value("rounding_mode");
  const bool quotient = call.schema.name().find("div") != std::string::npos;
  const bool as_floats = quotient && mode.isNone() && call.schema.overload_name().find("_mode") != std::string::npos;
  const auto whole = [](const c10::IValue& value) {
    return value.isTensor() ? value.toTensor().defined() && is_whole(value.toTensor()) : !value.isDouble();
  };
  if (as_floats || !whole(self) || !whole(other)) return std::nullopt;
  const at::ScalarType dtype = dtype_of_division(call.schema, self, other);
  if (dtype == at::kBool || dtype == at::kByte) return std::nullopt;
  const bool by_minus_one = other.isTensor() ? unexpanded(other.toTensor()).to(dtype).eq(-1).any().item<bool>()
                                             : is_minus_one(static_cast<int64_t>(number_of(other)), dtype);
  if (!by_minus_one) return std::nullopt;
  return "argument 'other' holds -1, by which ATen does not divide the least integer; divide by 1 and negate";
}

}  // namespace triage::operators::relation
