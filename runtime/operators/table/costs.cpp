#include "runtime/operators/table/costs.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>

namespace triage::operators::cost {

double elements(const at::Tensor& tensor) {
  const int64_t count = tensor.numel();
  return count > 0 ? static_cast<double>(count) : product(tensor.sizes());
}

double size_of(const at::Tensor& tensor, int64_t dim) {
  if (tensor.dim() == 0) return 1;
  return static_cast<double>(std::max<int64_t>(1, tensor.size(dim < 0 ? dim + tensor.dim() : dim)));
}

double given_elements(const Call& call) {
  double sum = 0;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) { sum += elements(tensor); });
  return sum;
}

/// Sizes from the last dimension on; in place, for every call of an operator asks.
using Sizes = c10::SmallVector<int64_t, 16>;

/// Broadcasts `sizes` with those of another tensor.
static void broadcast_with(Sizes& sizes, c10::ArrayRef<int64_t> own) {
  if (own.size() > sizes.size()) sizes.resize(own.size(), 1);
  for (size_t i = 0; i < own.size(); ++i) sizes[i] = std::max(sizes[i], own[own.size() - 1 - i]);
}

double broadcast_elements(const Call& call) {
  Sizes sizes;
  bool any = false;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    any = true;
    broadcast_with(sizes, tensor.sizes());
  });
  return any ? product(sizes) : 0;
}

double product(c10::ArrayRef<int64_t> sizes) {
  double all = 1;
  for (const int64_t size : sizes) all *= static_cast<double>(std::max<int64_t>(size, 1));
  return all;
}

double width(const Call& call, double least) {
  double widest = least;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    widest = std::max(widest, static_cast<double>(tensor.element_size()));
  });
  const c10::IValue& dtype = call.value("dtype");
  if (dtype.isInt()) widest = std::max(widest, static_cast<double>(c10::elementSize(dtype.toScalarType())));
  return widest;
}

double nothing(const Call&) { return 0; }

/// Where dtypes differ, or a number or a function of reals makes them differ, all is converted to the common one first.
double broadcast(const Call& call) {
  double tensors = 0;
  bool mixed = false, narrow = false, whole = false, complex = false;
  std::optional<at::ScalarType> dtype;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    ++tensors;
    mixed |= dtype && *dtype != tensor.scalar_type();
    dtype = tensor.scalar_type();
    mixed |= *dtype == at::kHalf;  // widened first where there is no kernel
    whole |= *dtype == at::kLong;
    narrow |= *dtype != at::kLong && at::isIntegralType(*dtype, /*includeBool=*/true);
    complex |= at::isComplexType(*dtype);
  });
  const double least = mixed && complex ? 16 : narrow ? 8 : 4;
  const double results = std::max<double>(1, static_cast<double>(call.schema.returns().size()));
  const double copies = mixed || narrow ? tensors + 1 : whole || complex ? 1 : 0;  // abs is complex first
  return broadcast_elements(call) * width(call, least) * (results + copies);
}

double twice_given(const Call& call) { return (given_elements(call) + 1) * width(call, 8) * 2; }
double eightfold(const Call& call) { return (given_elements(call) + 1) * width(call, 8) * 8; }
double broadcast_eightfold(const Call& call) { return (broadcast_elements(call) + 1) * width(call, 8) * 8; }

double conversion(const Call& call) {
  const at::Tensor* self = call.tensor("self");
  return (self ? elements(*self) + 1 : 1) * width(call, 4) * 2;
}

/// One dimension after the other: the result of each stays until the last is there.
double rolled_work(const Call& call) {
  return given_elements(call) * static_cast<double>(std::max<size_t>(1, call.integers("shifts").size()));
}
double rolled(const Call& call) { return (rolled_work(call) + 1) * width(call, 8) * 2; }

/// How many places an index names, and how many elements lie at each.
double indexed_work(const Call& call) {
  const at::Tensor* self = call.tensor(call.tensor("weight") ? Name("weight") : Name("self"));
  double places = 1, rest = 1, masks = 0;
  if (const c10::IValue& indices = call.value("indices"); indices.isList()) {
    Sizes sizes;
    int64_t dim = 0;
    for (const c10::IValue& item : indices.toListRef()) {
      if (!item.isTensor() || !item.toTensor().defined()) {
        if (dim < self->dim()) rest *= size_of(*self, dim);
        ++dim;
        continue;
      }
      const at::Tensor& index = item.toTensor();
      const bool mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
      if (mask) {
        broadcast_with(sizes, {index.numel()});
        masks += elements(index) * static_cast<double>(index.dim() + 1);
        dim += index.dim();
      } else {
        broadcast_with(sizes, index.sizes());
        ++dim;
      }
    }
    for (; dim < self->dim(); ++dim) rest *= size_of(*self, dim);
    places = product(sizes);
  } else if (const at::Tensor* index = call.tensor(call.tensor("indices") ? Name("indices") : Name("index"))) {
    places = elements(*index);
    if (call.positions.of("weight") >= 0) rest = size_of(*self, 1);  // embedding
    const std::string& name = call.schema.name();
    const bool slices = name == "aten::index_select" || name == "aten::index_fill" || name == "aten::index_fill_";
    if (slices && self->dim() > 0) {
      const int64_t dim = call.integer("dim", 0);
      for (int64_t i = 0; i < self->dim(); ++i)
        if (i != (dim < 0 ? dim + self->dim() : dim)) rest *= size_of(*self, i);
    }
  }
  return places * rest + 2 * masks + given_elements(call);
}
double indexed(const Call& call) {
  const bool copies = call.positions.of("values") >= 0;  // index_put
  return (indexed_work(call) + 8) * width(call, 8) * (copies ? 4 : 2);
}

double positions(const Call& call) {
  double rank = 1;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) { rank = static_cast<double>(tensor.dim()) + 1; });
  return (given_elements(call) + 8) * rank * 8 * 3;
}

double creation_elements(const Call& call) {
  const std::string& name = call.schema.name();
  if (name == "aten::scalar_tensor") return 1;
  if (name == "aten::eye") {
    const double n = static_cast<double>(call.integer("n", 0));
    return n * static_cast<double>(call.integer("m", call.integer("n", 0)));
  }
  if (name == "aten::arange") {
    const double start = call.number("start", 0), end = call.number("end", 0), step = call.number("step", 1);
    if (step == 0) return 0;
    const double count = std::max(0.0, (end - start) / step) + 1;
    const bool cut = std::abs(step) >= 1;  // where integers are made, it may be taken as the integer below
    return cut ? std::max(count, (end - start) / std::trunc(step) + 2) : count;
  }
  if (name == "aten::linspace" || name == "aten::logspace") return static_cast<double>(call.integer("steps", 0));
  if (name == "aten::randperm") return static_cast<double>(call.integer("n", 0));
  return product(call.integers("size"));
}

double creation(const Call& call) {
  const std::string& name = call.schema.name();
  const c10::IValue& dtype = call.value("dtype");
  const bool whole =
      name == "aten::full" || name == "aten::arange" || name == "aten::randint" || name == "aten::randperm";
  double bytes = dtype.isInt()                  ? static_cast<double>(c10::elementSize(dtype.toScalarType()))
                 : whole || call.tensor("self") ? width(call, 8)
                                                : static_cast<double>(at::get_default_dtype().itemsize());
  if (name == "aten::randperm") bytes *= 2;
  return (creation_elements(call) + 1) * bytes;
}

}  // namespace triage::operators::cost
