#include "tests/fuzz/operators/tensors.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace triage::fuzz {
namespace {

int64_t integer_value(Values kind, int64_t limit, Random& random) {
  using Limits = std::numeric_limits<int64_t>;
  switch (kind) {
    case Values::ordinary:
      return random.between(-5, 5);
    case Values::special:
      return random.pick<int64_t>({0, 1, -1, 2, 127, 128, -128, 255, 1 << 15, -(1 << 15), INT32_MAX, INT32_MIN,
                                   1LL << 33, 1LL << 62, Limits::max(), Limits::min(), 1LL << 53});
    case Values::index:
      return limit > 0 ? random.below(limit) : 0;
    case Values::stray_index:
      return random.pick<int64_t>({0, 0, limit - 1, limit, limit + 1, -1, -limit, -limit - 1, 1LL << 33, 1LL << 62,
                                   Limits::min(), Limits::max(), 77});
    case Values::positive:
      return random.between(1, 9);
    case Values::unit:
      return random.below(2);
    default:
      return random.below(4);
  }
}

double real_value(Values kind, int64_t limit, Random& random) {
  using Limits = std::numeric_limits<double>;
  switch (kind) {
    case Values::ordinary:
      return (random.unit() + random.unit() + random.unit() - 1.5) * 2;
    case Values::special:
      return random.pick<double>({Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), -0.0, 0.0, 1.0, -1.0,
                                  0.5, 1e-40, 5e-324, 1e38, -1e38, 3.4e38, 1e300, -4503599627370495.5, 65504.0, 9.2e18,
                                  77.0, -2.5});
    case Values::positive:
      return 0.1 + random.unit() * 2;
    case Values::unit:
      return random.unit();
    default:
      return static_cast<double>(integer_value(kind, limit, random));
  }
}

/// What fits of a number: C++ leaves conversions beyond a type's range undefined.
template <typename T>
T fitting(int64_t value) {
  return static_cast<T>(static_cast<uint64_t>(value));
}

template <typename T>
void fill(at::Tensor& tensor, const TensorPlan& plan, Random& random) {
  T* data = tensor.data_ptr<T>();
  int64_t last = random.between(-3, 3);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    if (plan.values == Values::sorted) last += random.below(3);
    const int64_t whole = plan.values == Values::sorted ? last : 0;
    if constexpr (std::is_same_v<T, bool>)
      data[i] = (random.next() & 1) != 0;
    else if constexpr (std::is_integral_v<T>)
      data[i] = fitting<T>(plan.values == Values::sorted ? whole : integer_value(plan.values, plan.limit, random));
    else if constexpr (c10::is_complex<T>::value)
      data[i] = T(static_cast<typename T::value_type>(real_value(plan.values, plan.limit, random)),
                  static_cast<typename T::value_type>(real_value(plan.values, plan.limit, random)));
    else if constexpr (std::is_same_v<T, double>)
      data[i] =
          plan.values == Values::sorted ? static_cast<double>(whole) : real_value(plan.values, plan.limit, random);
    else
      data[i] = static_cast<T>(static_cast<float>(
          plan.values == Values::sorted ? static_cast<double>(whole) : real_value(plan.values, plan.limit, random)));
  }
}

void fill_any(at::Tensor& tensor, const TensorPlan& plan, Random& random) {
  switch (tensor.scalar_type()) {
#define TRIAGE_FILL(type, name) \
  case at::ScalarType::name:    \
    return fill<type>(tensor, plan, random);
    TRIAGE_FILL(float, Float)
    TRIAGE_FILL(double, Double)
    TRIAGE_FILL(at::Half, Half)
    TRIAGE_FILL(at::BFloat16, BFloat16)
    TRIAGE_FILL(uint8_t, Byte)
    TRIAGE_FILL(int8_t, Char)
    TRIAGE_FILL(int16_t, Short)
    TRIAGE_FILL(int32_t, Int)
    TRIAGE_FILL(int64_t, Long)
    TRIAGE_FILL(bool, Bool)
    TRIAGE_FILL(c10::complex<float>, ComplexFloat)
    TRIAGE_FILL(c10::complex<double>, ComplexDouble)
#undef TRIAGE_FILL
    default:
      return;
  }
}

constexpr int64_t most_elements = 1 << 14, most_large_elements = 4 << 20;

at::Tensor filled(const TensorPlan& plan, const Sizes& sizes, Random& random) {
  constexpr int64_t piece = 4096;
  at::Tensor tensor = at::empty(sizes, plan.dtype);
  if (!plan.large || tensor.numel() <= piece) return fill_any(tensor, plan, random), tensor;
  at::Tensor values = at::empty({piece}, plan.dtype), flat = tensor.view({-1});
  fill_any(values, plan, random);
  for (int64_t i = 0; i < flat.numel(); i += piece)
    flat.slice(0, i, i + piece).copy_(values.slice(0, 0, flat.numel() - i));
  return tensor;
}

/// n on the diagonal, a little beside it.
at::Tensor definite(const TensorPlan& plan) {
  const int64_t n = plan.sizes.empty() ? 1 : plan.sizes.back();
  return (at::eye(n, at::TensorOptions(at::kDouble)) * static_cast<double>(n + 1) + 0.25)
      .to(plan.dtype)
      .expand(plan.sizes)
      .contiguous();
}

/// The dimension to play with.
int64_t any_dim(const Sizes& sizes, Random& random) { return random.below(static_cast<int64_t>(sizes.size())); }

at::Tensor transposed(const TensorPlan& plan, Random& random) {
  Sizes sizes = plan.sizes;
  const int64_t a = any_dim(sizes, random), b = any_dim(sizes, random);
  std::swap(sizes[static_cast<size_t>(a)], sizes[static_cast<size_t>(b)]);
  return filled(plan, sizes, random).transpose(a, b);
}

at::Tensor sliced(const TensorPlan& plan, Random& random) {
  Sizes sizes = plan.sizes;
  const int64_t dim = any_dim(sizes, random);
  const int64_t size = sizes[static_cast<size_t>(dim)];
  sizes[static_cast<size_t>(dim)] = 2 * size + 1;
  return filled(plan, sizes, random).slice(dim, 1, 2 * size + 1, 2);
}

at::Tensor expanded(const TensorPlan& plan, Random& random) {
  Sizes sizes = plan.sizes;
  for (int64_t& size : sizes)
    if (random.percent(50)) size = 1;
  return filled(plan, sizes, random).expand(plan.sizes);
}

/// Rows that overlap: what `unfold` of one dimension gives.
at::Tensor overlapping(const TensorPlan& plan, Random& random) {
  int64_t last = 1;
  Sizes strides;
  for (const int64_t size : plan.sizes) last += std::max<int64_t>(0, size - 1), strides.push_back(1);
  return filled(plan, {last}, random).as_strided(plan.sizes, strides);
}

at::Tensor with_offset(const TensorPlan& plan, Random& random) {
  int64_t count = 1;
  for (const int64_t size : plan.sizes) count *= size;
  return filled(plan, {count + 3}, random).slice(0, 3).view(plan.sizes);
}

}  // namespace

at::Tensor make_tensor(const TensorPlan& plan, Random& random) {
  double count = 1;
  for (const int64_t size : plan.sizes) count *= static_cast<double>(std::max<int64_t>(1, size));
  if (count > static_cast<double>(plan.large ? most_large_elements : most_elements))
    return filled(plan, Sizes(plan.sizes.size(), 1), random).expand(plan.sizes);
  if (plan.values == Values::definite) return definite(plan);
  const int64_t layout = plan.plain || plan.sizes.empty() ? 0 : random.below(100);
  if (layout >= 98) return overlapping(plan, random);
  if (layout >= 92) return with_offset(plan, random);
  if (layout >= 82) return expanded(plan, random);
  if (layout >= 72) return sliced(plan, random);
  if (layout >= 60) return transposed(plan, random);
  at::Tensor tensor = filled(plan, plan.sizes, random);
  if (layout >= 50 && tensor.dim() == 4) return tensor.contiguous(at::MemoryFormat::ChannelsLast);
  if (layout >= 40 && tensor.is_complex()) return tensor.conj();
  return tensor;
}

at::Tensor make_alias(const at::Tensor& tensor, Random& random) {
  if (tensor.dim() == 0 || tensor.is_sparse()) return tensor;
  const int64_t dim = random.below(tensor.dim()), size = tensor.size(dim);
  switch (random.below(5)) {
    case 0:
      return size > 1 ? tensor.slice(dim, 1, size) : tensor;
    case 1:
      return size > 1 ? tensor.slice(dim, 0, size - 1) : tensor;
    case 2:
      return tensor.transpose(0, -1);
    case 3:
      return size > 0 ? tensor.select(dim, random.below(size)) : tensor;
    default:
      return tensor;
  }
}

at::ScalarType any_dtype(Random& random) {
  static const std::vector<at::ScalarType> common = {at::kFloat, at::kFloat, at::kFloat, at::kDouble, at::kLong};
  static const std::vector<at::ScalarType> all = {at::kFloat, at::kDouble, at::kHalf,         at::kBFloat16,
                                                  at::kByte,  at::kChar,   at::kShort,        at::kInt,
                                                  at::kLong,  at::kBool,   at::kComplexFloat, at::kComplexDouble};
  return random.pick(random.percent(55) ? common : all);
}

int64_t any_size(Random& random, Reach reach) {
  if (reach == Reach::vast) return random.pick<int64_t>({0, 0, 1, 1, 2, 3, 17, 3000, 20000});
  if (is_large(reach)) return random.pick<int64_t>({16, 31, 64, 128, 257, 1000, 4096});
  if (random.percent(2)) return random.pick<int64_t>({64, 100, 257, 1025});
  return random.percent(5) ? 0 : random.pick<int64_t>({1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 16, 17, 32, 33});
}

Sizes any_sizes(Random& random, Reach reach) {
  if (is_large(reach))
    return random.pick({Sizes{1 << 20}, Sizes{512, 3000}, Sizes{64, 65, 257}, Sizes{33, 3, 64, 128}});
  Sizes sizes(static_cast<size_t>(random.pick<int64_t>({0, 1, 1, 2, 2, 2, 3, 3, 4})));
  int64_t count = 1;
  for (int64_t& size : sizes) {
    size = any_size(random, reach);
    if (reach == Reach::ordinary && count * size > 4096) size = random.between(1, 2);
    count *= size;
  }
  return sizes;
}

}  // namespace triage::fuzz
