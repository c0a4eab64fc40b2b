#include "runtime/operators/table/costs.h"

#include <c10/core/DefaultDtype.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cmath>

#include "runtime/operators/table/shapes_of.h"

namespace triage::operators::cost {

double elements(const at::Tensor& tensor) {
  const int64_t count = tensor.numel();
  return count > 0 ? static_cast<double>(count) : product(tensor.sizes());
}

double size_of(const at::Tensor& tensor, int64_t dim) {
  if (tensor.dim() == 0) return 1;
  return static_cast<double>(std::max<int64_t>(1, tensor.size(dim < 0 ? dim + tensor.dim() : dim)));
}

double given_elements(const OperatorCall& call) {
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

double broadcast_elements(const OperatorCall& call) {
  Sizes sizes;
  bool any = false;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    any = true;
    broadcast_with(sizes, tensor.sizes());
  });
  return any ? product(sizes) : 0;
}

double most_elements(const OperatorCall& call) { return std::max(given_elements(call), broadcast_elements(call)); }

double quotient_work(const OperatorCall& call) {
  return most_elements(call) / (call.value("rounding_mode").isNone() ? 5 : 1);  // true division does not round
}

double hashed_work(const OperatorCall& call) {
  double all = given_elements(call);
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    // NaN equals nothing, not even itself: each is compared with all before it.
    if (at::isFloatingType(tensor.scalar_type())) all += 0.02 * elements(tensor) * elements(tensor);
  });
  return all;
}

double product(c10::ArrayRef<int64_t> sizes) {
  double all = 1;
  for (const int64_t size : sizes) all *= static_cast<double>(std::max<int64_t>(size, 1));
  return all;
}

/// Bytes of an element of the dtype that is asked for, 0 where none is.
static double asked_width(const OperatorCall& call) {
  const c10::IValue& dtype = call.value("dtype");
  return dtype.isInt() ? static_cast<double>(c10::elementSize(dtype.toScalarType())) : 0;
}

double width(const OperatorCall& call, double least) {
  double widest = least;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    widest = std::max(widest, static_cast<double>(tensor.element_size()));
  });
  return std::max(widest, asked_width(call));
}

double computed_width(const OperatorCall& call, double least) {
  double widest = least;
  bool masks = false, others = false;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    const bool mask = tensor.scalar_type() == at::kBool;
    (mask ? masks : others) = true;
    if (mask) return;
    const bool whole = at::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
    widest = std::max(widest, whole ? 8 : static_cast<double>(tensor.element_size()));
  });
  if (masks && !others) widest = std::max(widest, 8.0);
  return std::max(widest, asked_width(call));
}

double given_bytes(const OperatorCall& call) {
  double bytes = 0;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    bytes += elements(tensor) * std::max(4.0, static_cast<double>(tensor.element_size()));
  });
  return bytes;
}

double nothing(const OperatorCall&) { return 0; }

/// Where dtypes differ, or a number or a function of reals makes them differ, all is converted to the common one first.
double broadcast(const OperatorCall& call) {
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
  const double copies = mixed || narrow ? tensors + 1 : complex ? 2 : whole ? 1 : 0;  // abs is complex first
  return broadcast_elements(call) * width(call, least) * (results + copies);
}

/// What two of the arguments broadcast to.
static double broadcast_elements(const OperatorCall& call, ArgumentName first, ArgumentName second) {
  Sizes sizes;
  for (const ArgumentName name : {first, second}) broadcast_with(sizes, call.tensor(name)->sizes());
  return product(sizes);
}

double cosine_loss(const OperatorCall& call) {
  return std::max(given<4>(call), 6 * broadcast_elements(call, "input1", "input2") * computed_width(call));
}

double masked_scatter_work(const OperatorCall& call) {
  return broadcast_elements(call, "self", "mask") + given_elements(call);
}
double masked_scatter(const OperatorCall& call) { return masked_scatter_work(call) * computed_width(call) * 2 + 64; }

double placed(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const c10::IValue& dim = call.value("dim");
  const double rows = dim.isInt() ? elements(*self) / size_of(*self, dim.toInt()) : 1;
  const double each = static_cast<double>(std::max<int64_t>(call.integer("k", 1), 1));
  return reduced(call) + rows * each * (computed_width(call) + 8);
}

double normed_channels(const OperatorCall& call) {
  const at::Tensor* input = call.tensor("input");
  return given<3>(call) + 6 * size_of(*input, 0) * size_of(*input, 1) * computed_width(call);
}

double conversion(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  return (self ? elements(*self) + 1 : 1) * width(call, 4) * 2;
}

/// One dimension after the other: the result of each stays until the last is there.
double rolled_work(const OperatorCall& call) {
  return given_elements(call) * static_cast<double>(std::max<size_t>(1, call.integers("shifts").size()));
}
double rolled(const OperatorCall& call) { return (rolled_work(call) + 1) * width(call) * 2; }

namespace {

/// How many places an index names, times the elements that lie at each; and the positions that masks become.
struct Indexed {
  double elements = 1, positions = 0;
};

const at::Tensor* indexed_tensor(const OperatorCall& call) {
  return call.tensor(call.tensor("weight") ? ArgumentName("weight") : ArgumentName("self"));
}

Indexed indexed_elements(const OperatorCall& call) {
  const at::Tensor* self = indexed_tensor(call);
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
  } else if (const at::Tensor* index =
                 call.tensor(call.tensor("indices") ? ArgumentName("indices") : ArgumentName("index"))) {
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
  return {places * rest, 2 * masks};
}

}  // namespace

double indexed_work(const OperatorCall& call) {
  const Indexed found = indexed_elements(call);
  return found.elements + found.positions + given_elements(call);
}
double indexed(const OperatorCall& call) {
  const Indexed found = indexed_elements(call);
  const auto each = static_cast<double>(indexed_tensor(call)->element_size());
  return found.elements * each + 8 * found.positions + 2 * given_bytes(call) + 64;
}

double positions(const OperatorCall& call) {
  double rank = 1;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) { rank = static_cast<double>(tensor.dim()) + 1; });
  return (given_elements(call) + 8) * rank * 8;
}

double creation_elements(const OperatorCall& call) {
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

double creation(const OperatorCall& call) {
  const std::string& name = call.schema.name();
  const c10::IValue& dtype = call.value("dtype");
  const bool whole =
      name == "aten::full" || name == "aten::arange" || name == "aten::randint" || name == "aten::randperm";
  const bool truth = name == "aten::full" && call.value("fill_value").isBool();
  double bytes = dtype.isInt()                  ? static_cast<double>(c10::elementSize(dtype.toScalarType()))
                 : truth                        ? 1
                 : whole || call.tensor("self") ? width(call, 8)
                                                : static_cast<double>(at::get_default_dtype().itemsize());
  if (name == "aten::randperm") bytes *= 2;
  return (creation_elements(call) + 1) * bytes;
}

// Bounds for operators whose results are not as large as what they are given.
namespace {

double sum_of(c10::ArrayRef<int64_t> sizes) {
  double sum = 0;
  for (const int64_t size : sizes) sum += std::abs(static_cast<double>(size));
  return sum;
}

/// The names of the two tensors of a product; a vector `self` of addmm is none of them.
struct Factors {
  enum class Kind : uint8_t { matrices, rows_of_both, all_pairs };
  ArgumentName first, second;
  Kind kind = Kind::matrices;
};
constexpr Factors all_factors[] = {
    {"mat1", "mat2"},   {"batch1", "batch2"}, {"mat", "vec"},
    {"self", "mat2"},   {"self", "vec"},      {"self", "vec2", Factors::Kind::all_pairs},
    {"self", "tensor"}, {"self", "other"},    {"input", "weight", Factors::Kind::rows_of_both}};

/// What the dimensions before the last two broadcast to.
double matrices(const at::Tensor& a, const at::Tensor& b) {
  double batch = 1;
  for (int64_t i = 3; i <= std::max(a.dim(), b.dim()); ++i)
    batch *= std::max(i <= a.dim() ? size_of(a, -i) : 1.0, i <= b.dim() ? size_of(b, -i) : 1.0);
  return batch;
}

/// Sizes of a product of matrices: batch, rows, inner, columns.
struct MatrixProductSizes {
  double batch = 1, rows = 1, inner = 1, columns = 1;
  bool expands_first = false, expands_second = false;  // to the batch; matrices alone are one with its rows
};

MatrixProductSizes product_of(const OperatorCall& call) {
  MatrixProductSizes sizes;
  const auto has_both = [&](const Factors& names) {
    return call.positions.of(names.first) >= 0 && call.positions.of(names.second) >= 0;
  };
  const auto names = std::find_if(std::begin(all_factors), std::end(all_factors), has_both);
  if (names == std::end(all_factors)) return sizes;
  const at::Tensor *a = call.tensor(names->first), *b = call.tensor(names->second);
  if (!a || !b) return sizes;
  const bool outer = names->kind == Factors::Kind::all_pairs;
  if (outer || names->kind == Factors::Kind::rows_of_both ||
      call.schema.name() == "aten::inner") {  // all but the last dimension
    sizes.inner = outer ? 1 : size_of(*a, -1);
    sizes.rows = outer ? elements(*a) : elements(*a) / sizes.inner;
    sizes.columns = outer ? elements(*b) : elements(*b) / sizes.inner;
    return sizes;
  }
  sizes.inner = size_of(*a, -1);
  if (a->dim() > 1) sizes.rows = size_of(*a, -2);
  if (b->dim() > 1) sizes.columns = size_of(*b, -1);
  sizes.batch = matrices(*a, *b);
  sizes.expands_first = a->dim() > 2 || b->dim() > 2;
  sizes.expands_second = b->dim() > 2;
  return sizes;
}

/// Of x1 and x2, each a batch of rows: how many pairs of rows, and how many elements both have once they are broadcast.
double pairs(const OperatorCall& call) {
  const at::Tensor *a = call.tensor("x1"), *b = call.tensor("x2");
  return matrices(*a, *b) * size_of(*a, -2) * size_of(*b, -2);
}
double rows_of_pairs(const OperatorCall& call) {
  const at::Tensor *a = call.tensor("x1"), *b = call.tensor("x2");
  return matrices(*a, *b) * (size_of(*a, -2) + size_of(*b, -2)) * (size_of(*a, -1) + 2);
}

/// Work that each piece of a batch is, however small it is: ATen sets out again for each product of matrices, for each
/// matrix that LAPACK takes apart, and for each group of channels that are convolved.
constexpr double each_product = 3000, each_matrix = 500, each_group = 8000, each_image = 500;
constexpr double small_product =
    400;  // multiplications up to which ATen computes a whole batch of products by one loop

double of_spatial(const at::Tensor& tensor, size_t spatial) {
  return product(tensor.sizes().slice(0, static_cast<size_t>(tensor.dim()) - spatial));
}

}  // namespace

double matrix_product(const OperatorCall& call) {
  const MatrixProductSizes p = product_of(call);
  const double operands =
      (p.expands_first ? p.batch * p.rows * p.inner : 0) + (p.expands_second ? p.batch * p.inner * p.columns : 0);
  const double results = call.schema.name() == "aten::addbmm" ? 1 : p.batch;
  return 2 * results * p.rows * p.columns * width(call, 2) + (operands + given_elements(call)) * width(call, 4);
}

double matrix_product_work(const OperatorCall& call) {
  const MatrixProductSizes p = product_of(call);
  const double own = p.rows * p.columns * p.inner < small_product ? 0 : each_product;
  return p.batch * (p.rows * p.columns * (p.inner + 1) + own) + 5 * given_elements(call);
}

double einsum(const OperatorCall& call) {
  const auto read = read_einsum(call);
  if (!read) return 0;
  const bool pair = call.tensors("tensors").size() < 3;
  return (2 * given_elements(call) + 2 * (pair ? read->result : read->all)) * computed_width(call);
}

double einsum_work(const OperatorCall& call) {
  const auto read = read_einsum(call);
  return read ? read->all + read->batch * each_product + given_elements(call) : 0;
}

double distances(const OperatorCall& call) { return (2 * pairs(call) + 3 * rows_of_pairs(call)) * width(call) + 4096; }
double distance_work(const OperatorCall& call) {
  const double products = matrices(*call.tensor("x1"), *call.tensor("x2"));
  return pairs(call) * (size_of(*call.tensor("x1"), -1) + 2) + rows_of_pairs(call) + products * each_product / 5;
}

double cubic_work(const OperatorCall& call) {
  const at::Tensor& self = *call.tensor(call.tensor("A") ? ArgumentName("A") : ArgumentName("self"));
  const double rows = size_of(self, -2), columns = size_of(self, -1);
  return elements(self) * 4 * std::max(rows, columns) + elements(self) / (rows * columns) * each_matrix;
}

/// Of A X = B, where both are broadcast: elements of X, and of A.
static std::pair<double, double> solved(const OperatorCall& call) {
  const at::Tensor &a = *call.tensor("A"), &b = *call.tensor("B");
  const double rows = size_of(a, -1);
  const bool vectors =
      b.dim() == 1 || (b.dim() + 1 == a.dim() && b.sizes() == a.sizes().slice(0, a.sizes().size() - 1));
  const double batch = vectors ? std::max(elements(a) / (rows * rows), elements(b) / rows) : matrices(a, b);
  const double columns = vectors ? 1 : call.boolean("left", true) ? size_of(b, -1) : size_of(b, -2);
  return {batch * rows * columns, batch * rows * rows};
}
double solutions(const OperatorCall& call) {
  const auto [result, matrix] = solved(call);
  return (result + matrix + given_elements(call) + 1) * width(call) * 2;
}
double solutions_work(const OperatorCall& call) {
  const auto [result, matrix] = solved(call);
  const double rows = size_of(*call.tensor("A"), -1);
  return 4 * (result + matrix) * rows + matrix / (rows * rows) * each_matrix;
}

/// Elements of a row by their order: ATen's way looks at all of a row for each of its elements, if these are put so.
double selection_work(const OperatorCall& call) {
  return elements(*call.tensor("self")) * size_of(*call.tensor("self"), call.integer("dim", -1));
}

double convolution(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight");
  const auto sizes = convolved(call);
  const double places = product(sizes), kernel = elements(*weight) / std::max(1.0, size_of(*weight, 0));
  const double batch = of_spatial(*input, sizes.size() + 1);
  const double columns = places * kernel * static_cast<double>(call.integer("groups", 1));
  const double result = batch * places * size_of(*weight, 0);
  const double channels = size_of(*weight, 1), block = std::ceil(channels / 16) * 16 / channels;  // of oneDNN
  return (2 * result + (1 + block) * given_elements(call) + (batch + 1) * columns + 1e5) * width(call, 4);
}

double convolution_work(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight");
  const auto sizes = convolved(call);
  const double batch = of_spatial(*input, sizes.size() + 1), groups = static_cast<double>(call.integer("groups", 1));
  const double pieces = groups * (batch * each_image + each_group);
  return batch * product(sizes) * elements(*weight) + given_elements(call) + pieces;
}

double transposed_convolution(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight");
  const size_t spatial = unconvolved(call).size();
  const double batch = of_spatial(*input, spatial + 1), groups = static_cast<double>(call.integer("groups", 1));
  const double places = product(input->sizes().slice(static_cast<size_t>(input->dim()) - spatial));
  const double columns = places * elements(*weight) / size_of(*weight, 0) * groups;
  const double result = batch * size_of(*weight, 1) * groups * product(unconvolved(call));
  return (5 * result + 2 * given_elements(call) + (batch + 1) * columns + 1e5) * width(call, 4);
}

double transposed_convolution_work(const OperatorCall& call) {
  const at::Tensor *input = call.tensor("input"), *weight = call.tensor("weight");
  const size_t spatial = unconvolved(call).size();
  const double batch = of_spatial(*input, spatial + 1), groups = static_cast<double>(call.integer("groups", 1));
  const double places = product(input->sizes().slice(static_cast<size_t>(input->dim()) - spatial));
  const double result = batch * size_of(*weight, 1) * groups * product(unconvolved(call));
  return batch * places * elements(*weight) + 4 * result + given_elements(call) +
         groups * (batch * each_image + each_group);
}

namespace {

struct Recurrent {
  double steps = 1, batch = 1, states = 1, weights = 0;  // states: of a step, in all layers and directions
};

Recurrent recurrent_sizes(const OperatorCall& call) {
  const at::Tensor& input = *call.tensor("input");
  Recurrent sizes;
  const bool batch_first = call.boolean("batch_first", false);
  sizes.steps = size_of(input, batch_first ? 1 : 0);
  sizes.batch = size_of(input, batch_first ? 0 : 1);
  for (const at::Tensor& weight : call.tensors("params")) {
    sizes.weights += elements(weight);
    sizes.states += size_of(weight, 0);  // of each gate
  }
  return sizes;
}

}  // namespace

double recurrent(const OperatorCall& call) {
  const Recurrent sizes = recurrent_sizes(call);
  const double given = given_elements(call);
  const double numbers = sizes.steps * sizes.batch * sizes.states * 5 + 2 * given + sizes.weights + 1e5;
  return numbers * width(call, 4) + sizes.steps * 8192;  // what tensors take beside their numbers
}

double recurrent_work(const OperatorCall& call) {
  const Recurrent sizes = recurrent_sizes(call);
  const double products = static_cast<double>(call.tensors("params").size()) * sizes.steps;
  return sizes.steps * sizes.batch * (sizes.weights + 50 * sizes.states) + products * 4 * each_product +
         4 * given_elements(call);
}

double recurrent_cell(const OperatorCall& call) {
  const double rows = size_of(*call.tensor("input"), 0), gates = size_of(*call.tensor("w_hh"), 0);
  return (4 * rows * gates + 2 * given_elements(call) + 1e4) * width(call, 4);
}

double recurrent_cell_work(const OperatorCall& call) {
  const at::Tensor &input = *call.tensor("input"), &ih = *call.tensor("w_ih"), &hh = *call.tensor("w_hh");
  return size_of(input, 0) * (elements(ih) + elements(hh) + 50 * size_of(hh, 0)) + 8 * each_product +
         given_elements(call);
}

/// `sizes`: of the windows. The largest of each comes with its position.
static double of_windows(const OperatorCall& call, c10::ArrayRef<int64_t> sizes) {
  const double results = of_spatial(*call.tensor("self"), sizes.size()) * product(sizes), each = width(call, 4);
  const double beside_each = call.schema.name().find("max_pool") != std::string::npos ? 8 : 2;
  return results * (each + beside_each) + (given_elements(call) + 1) * each;
}

double pooling(const OperatorCall& call) { return of_windows(call, pooled(call)); }

double pooling_work(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const auto sizes = pooled(call);
  double window = 1;
  const auto kernel = filled_up(call, "kernel_size", 1), padding = filled_up(call, "padding", 0);
  for (size_t i = 0; i < kernel.size(); ++i)
    window *=
        std::min(static_cast<double>(kernel[i]), size_of(*self, self->dim() - static_cast<int64_t>(kernel.size() - i)) +
                                                     2 * static_cast<double>(padding[i]));
  return of_spatial(*self, sizes.size()) * product(sizes) * window + given_elements(call);
}

double adaptive_pooling(const OperatorCall& call) { return of_windows(call, filled_up(call, "output_size", 1)); }

double adaptive_pooling_work(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const auto sizes = filled_up(call, "output_size", 1);
  double window = 1;
  for (size_t i = 0; i < sizes.size(); ++i)
    window *= size_of(*self, self->dim() - static_cast<int64_t>(sizes.size() - i)) /
                  static_cast<double>(std::max<int64_t>(1, sizes[i])) +
              2;
  return of_spatial(*self, sizes.size()) * product(sizes) * window;
}

double padding_work(const OperatorCall& call) { return product(padded(call)) + given_elements(call); }
double padding(const OperatorCall& call) { return (2 * padding_work(call) + 1) * width(call); }

double quantile_work(const OperatorCall& call) {
  const at::Tensor *self = call.tensor("self"), *q = call.tensor("q");
  const double count = q ? elements(*q) : 1;
  const bool all = call.value("dim").isNone();
  const double rows = all ? 1 : elements(*self) / size_of(*self, call.integer("dim", 0));
  return elements(*self) + 8 * count * rows;
}
double quantiles(const OperatorCall& call) { return (quantile_work(call) + 8) * computed_width(call) * 6; }

static double slots_of_record(const OperatorCall& call) {
  return static_cast<double>(std::clamp<int64_t>(call.integer("num_slots", 1), 1, 32768));
}
static double records(const OperatorCall& call) {
  double rows = 1;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) { rows = std::max(rows, size_of(tensor, 0)); });
  return rows;
}
/// Records go with the rows of data, conditions and codes, and results have the shape of an argument: nothing is
/// broadcast to more than was given.
double flags(const OperatorCall& call) {
  bool on_cpu = true, narrow = false;
  for_each_tensor(call.arguments, [&](const at::Tensor& tensor) {
    on_cpu &= tensor.is_cpu();
    narrow |= at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) && tensor.element_size() < 4;
  });
  // Where slots are compared by ATen, their fields lie side by side, each as an integer of 64 bits.
  constexpr double kept = 4, compared = 41;
  double slots = records(call) * slots_of_record(call), each = on_cpu ? kept : compared;
  const bool some_codes = call.integer("codes", 0xFFFF) != 0xFFFF || call.integer("min_severity", 1) > 1;
  if (const at::Tensor* flags = call.tensor("flags"); flags && some_codes) {
    slots = elements(*flags) * static_cast<double>(flags->element_size()) / 2;
    each = compared;
  }
  const double copies = on_cpu && !narrow ? moved<2>(call) : given<2>(call);
  return slots * each + copies * (on_cpu ? 1 : 2) + 4096;
}
double flags_work(const OperatorCall& call) {
  return std::max(given_elements(call), records(call) * slots_of_record(call) / 4);
}
double merging_work(const OperatorCall& call) {  // each error of one record is looked for in the other
  const double slots = slots_of_record(call);
  return records(call) * slots * (slots + 50);
}
double replacing_work(const OperatorCall& call) {  // each element is compared with each target
  const auto count = [](const c10::IValue& list) {
    return list.isList() ? static_cast<double>(list.toListRef().size()) : 0.0;
  };
  return given_elements(call) * (4 + count(call.value("values")) + count(call.value("integers")));
}

double one_hot_work(const OperatorCall& call) {
  return elements(*call.tensor("self")) * static_cast<double>(call.integer("num_classes", 1));
}
double one_hot(const OperatorCall& call) { return (one_hot_work(call) + 2 * given_elements(call) + 8) * 8 * 2; }

double multinomial_work(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const double rows = elements(*self) / size_of(*self, -1);
  return elements(*self) + rows * static_cast<double>(call.integer("num_samples", 1));
}
double multinomial(const OperatorCall& call) { return (multinomial_work(call) + 8) * width(call, 8) * 2; }

double diagonal_work(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("self");
  const double offset = std::abs(static_cast<double>(call.integer("diagonal", 0))) +
                        std::abs(static_cast<double>(call.integer("offset", 0)));
  const bool embed = call.schema.name() == "aten::diag_embed", flat = call.schema.name() == "aten::diagflat";
  if (!embed && !flat && self->dim() != 1) return elements(*self);
  const double last = embed ? size_of(*self, -1) : elements(*self);
  return elements(*self) / last * (last + offset) * (last + offset);
}
double diagonal_matrix(const OperatorCall& call) {
  return (2 * diagonal_work(call) + given_elements(call) + 8) * width(call);
}

/// The complete Q has as many columns as rows.
double orthogonal(const OperatorCall& call) {
  const at::Tensor* self = call.tensor("A");
  const auto rank = static_cast<size_t>(self->dim());
  if (call.value("mode").toStringRef() != "complete") return given<4>(call);
  const double rows = size_of(*self, -2);
  return given<4>(call) + 2 * product(self->sizes().slice(0, rank - 2)) * rows * rows * width(call, 4);
}

double norm_work(const OperatorCall& call) {
  const double order = call.number(call.schema.argumentIndexWithName("p") ? ArgumentName("p") : ArgumentName("ord"), 2);
  return given_elements(call) * (order == 1 || order == 2 || std::isinf(order) ? 1 : 4);
}

double repeated_difference_work(const OperatorCall& call) {
  return given_elements(call) * static_cast<double>(std::max<int64_t>(call.integer("n", 1), 1));
}
double repeated_difference(const OperatorCall& call) { return (given_elements(call) + 8) * width(call) * 4; }

static double repeated_elements(const OperatorCall& call) {
  double times = 1;
  for (const ArgumentName name : {ArgumentName("repeats"), ArgumentName("dims")})
    for (const int64_t count : call.integers(name)) times *= static_cast<double>(std::max<int64_t>(count, 1));
  return elements(*call.tensor("self")) * times;
}
double repetition_work(const OperatorCall& call) {  // without elements there are still dimensions to go along
  return repeated_elements(call) + sum_of(call.tensor("self")->sizes());
}
double repetition(const OperatorCall& call) {
  const bool interleave = call.schema.name() == "aten::repeat_interleave";
  const bool places = interleave && call.value("dim").isNone();  // for each element where it comes from
  return (repeated_elements(call) + given_elements(call) + 8) * (places ? width(call, 8) + 8 : 2 * width(call));
}

}  // namespace triage::operators::cost
