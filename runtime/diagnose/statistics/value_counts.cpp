// One read of each value. The bits of floats, seen as integers, are in the order of the numbers: the first loop over a
// block finds its smallest and largest ones and counts zeros. Only in a block with a value near the limit a second
// loop, in the cache, counts the rest.
#include "runtime/diagnose/statistics/value_counts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <triage/error.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <type_traits>

#include "runtime/compat/readable_values.h"
#include "runtime/diagnose/isolation/poison.h"
#include "runtime/flags/kernels/isa.h"

namespace triage::diagnose {
namespace {

using flags::cpu::on_this_machine;

constexpr int64_t device_numbers = 7;   // of count_on_device
constexpr int64_t block_values = 4096;  // of 2 bytes: 8 KiB, and no counter of 16 bits overflows

/// A format of floats, as masks of its bits.
template <class Bits>
struct FloatFormat {
  Bits infinity;  // exponent all ones
  Bits limit;     // the largest magnitude that is finite
  Bits near;      // limit / near_factor
};

/// A place in the order of floats, as a signed number: -0 comes before 0.
template <class Bits>
TRIAGE_INLINE std::make_signed_t<Bits> place_of(Bits bits) {
  using Place = std::make_signed_t<Bits>;
  const auto sign = static_cast<Place>(static_cast<Place>(bits) >> (8 * sizeof(Bits) - 1));
  return static_cast<Place>(static_cast<Place>(bits) ^ (sign & std::numeric_limits<Place>::max()));
}
template <class Bits>
Bits bits_at(std::make_signed_t<Bits> place) {
  using Place = std::make_signed_t<Bits>;
  return static_cast<Bits>(place < 0 ? place ^ std::numeric_limits<Place>::max() : place);
}
template <class Bits>
Bits magnitude_at(std::make_signed_t<Bits> place) {
  return bits_at<Bits>(place) & std::numeric_limits<std::make_signed_t<Bits>>::max();
}

template <class Bits>
struct ValueExtremes {
  using Place = std::make_signed_t<Bits>;
  Place least = std::numeric_limits<Place>::max(), most = std::numeric_limits<Place>::min();
  Bits zeros = 0;
};

template <class Bits>
struct FindEnds {
  template <int>
  TRIAGE_INLINE ValueExtremes<Bits> run(const Bits* data, int64_t count) const {
    using Place = typename ValueExtremes<Bits>::Place;
    constexpr auto magnitude = static_cast<Bits>(std::numeric_limits<Place>::max());
    ValueExtremes<Bits> ends;
    Place least = ends.least, most = ends.most;
    Bits zeros = 0;
#pragma omp simd reduction(min : least) reduction(max : most) reduction(+ : zeros)
    for (int64_t i = 0; i < count; ++i) {
      const Place place = place_of<Bits>(data[i]);
      least = place < least ? place : least;
      most = place > most ? place : most;
      zeros = static_cast<Bits>(zeros + ((data[i] & magnitude) == 0));
    }
    return {least, most, zeros};
  }
};

template <class Bits>
struct Far {
  ValueExtremes<Bits> finite;
  Bits near = 0, saturated = 0, nan = 0, inf = 0;
};

template <class Bits>
struct CountFar {
  FloatFormat<Bits> format;
  template <int>
  TRIAGE_INLINE Far<Bits> run(const Bits* data, int64_t count) const {
    using Place = typename ValueExtremes<Bits>::Place;
    constexpr auto magnitude = static_cast<Bits>(std::numeric_limits<Place>::max());
    Far<Bits> far;
    Place least = far.finite.least, most = far.finite.most;
    Bits near = 0, saturated = 0, nan = 0, inf = 0;
#pragma omp simd reduction(min : least) reduction(max : most) reduction(+ : near, saturated, nan, inf)
    for (int64_t i = 0; i < count; ++i) {
      const auto size = static_cast<Bits>(data[i] & magnitude);
      const Place place = place_of<Bits>(data[i]);
      const bool finite = size < format.infinity, number = size <= format.infinity;
      least = finite & (place < least) ? place : least;
      most = finite & (place > most) ? place : most;
      near = static_cast<Bits>(near + (number & (size >= format.near)));
      saturated = static_cast<Bits>(saturated + (number & (size >= format.limit)));
      nan = static_cast<Bits>(nan + !number);
      inf = static_cast<Bits>(inf + (size == format.infinity));
    }
    return {{least, most, 0}, near, saturated, nan, inf};
  }
};

double number_of(uint16_t bits, at::ScalarType dtype) {
  return dtype == at::kHalf ? static_cast<double>(static_cast<float>(c10::Half(bits, c10::Half::from_bits())))
                            : static_cast<double>(static_cast<float>(c10::BFloat16(bits, c10::BFloat16::from_bits())));
}
double number_of(uint32_t bits, at::ScalarType) { return static_cast<double>(std::bit_cast<float>(bits)); }
double number_of(uint64_t bits, at::ScalarType) { return std::bit_cast<double>(bits); }

template <class Bits>
ValueCounts count_range(const Bits* data, int64_t count, const FloatFormat<Bits>& format, at::ScalarType dtype) {
  ValueCounts counts;
  counts.values = static_cast<uint64_t>(count);
  ValueExtremes<Bits> all;
  for (int64_t first = 0; first < count; first += block_values) {
    const int64_t some = std::min(block_values, count - first);
    ValueExtremes<Bits> ends = on_this_machine(FindEnds<Bits>{}, data + first, some);
    counts.zeros += ends.zeros;
    if (std::max(magnitude_at<Bits>(ends.least), magnitude_at<Bits>(ends.most)) >= format.near) {
      const Far<Bits> far = on_this_machine(CountFar<Bits>{format}, data + first, some);
      counts.near_limit += far.near;
      counts.saturated += far.saturated;
      counts.nan += far.nan;
      counts.inf += far.inf;
      ends = far.finite;
    }
    all.least = std::min(all.least, ends.least);
    all.most = std::max(all.most, ends.most);
  }
  if (all.least <= all.most) {
    counts.least = number_of(bits_at<Bits>(all.least), dtype);
    counts.most = number_of(bits_at<Bits>(all.most), dtype);
  }
  return counts;
}

/// In parallel if there are enough values for several threads.
template <class Bits>
ValueCounts count_as(const at::Tensor& values, const FloatFormat<Bits>& format) {
  const auto* const data = static_cast<const Bits*>(values.data_ptr());
  ValueCounts counts;
  std::mutex mutex;
  at::parallel_for(0, values.numel(), 16 * block_values, [&](int64_t begin, int64_t end) {
    const ValueCounts part = count_range(data + begin, end - begin, format, values.scalar_type());
    std::lock_guard lock(mutex);
    counts.merge(part);
  });
  return counts;
}

template <class Bits>
FloatFormat<Bits> format_of(int mantissa_bits) {
  constexpr auto magnitude = static_cast<Bits>(std::numeric_limits<std::make_signed_t<Bits>>::max());
  const auto infinity = static_cast<Bits>(magnitude - ((Bits{1} << mantissa_bits) - 1));
  const auto limit = static_cast<Bits>(infinity - 1);
  return {infinity, limit, static_cast<Bits>(limit - (Bits{4} << mantissa_bits))};
}

/// Formats of fewer bits, counted as float32, to which they go without loss.
FloatFormat<uint32_t> format_within_float(double limit) {
  const auto bits = [](double number) { return std::bit_cast<uint32_t>(static_cast<float>(number)); };
  return {format_of<uint32_t>(23).infinity, bits(limit), bits(limit / near_factor)};
}

/// Only what stands in memory counts, in whatever order.
at::Tensor dense_values(const at::Tensor& tensor) {
  if (tensor.device().is_cpu() && compat::is_readable(tensor) && tensor.is_non_overlapping_and_dense()) return tensor;
  return compat::readable_values(tensor);
}

at::Tensor real_parts(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach();
  return values.is_complex() ? at::view_as_real(values.resolve_conj()) : values;
}

}  // namespace

void ValueCounts::merge(const ValueCounts& more) {
  least = std::min(least, more.least);
  most = std::max(most, more.most);
  values += more.values;
  zeros += more.zeros;
  near_limit += more.near_limit;
  saturated += more.saturated;
  nan += more.nan;
  inf += more.inf;
}

bool has_counted_values(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

at::ScalarType counted_dtype(const at::Tensor& tensor) { return c10::toRealValueType(tensor.scalar_type()); }

ValueCounts count_values(const at::Tensor& tensor) {
  const at::Tensor values = dense_values(real_parts(tensor));
  switch (values.scalar_type()) {
    case at::kHalf:
      return count_as<uint16_t>(values, format_of<uint16_t>(10));
    case at::kBFloat16:
      return count_as<uint16_t>(values, format_of<uint16_t>(7));
    case at::kFloat:
      return count_as<uint32_t>(values, format_of<uint32_t>(23));
    case at::kDouble:
      return count_as<uint64_t>(values, format_of<uint64_t>(52));
    default:
      return count_as<uint32_t>(values.to(at::kFloat).contiguous(),
                                format_within_float(largest_of(values.scalar_type())));
  }
}

at::Tensor count_on_device(const at::Tensor& tensor) {
  const double limit = largest_of(counted_dtype(tensor));
  at::Tensor values = real_parts(tensor);
  if (values.element_size() == 1) values = values.to(at::kFloat);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor size = values.abs(), finite = size < infinity;
  const at::Tensor none = at::scalar_tensor(infinity, values.options());
  const at::Tensor numbers[device_numbers] = {at::where(finite, values, none).min(),
                                              at::where(finite, values, -none).max(),
                                              (size == 0).sum(),
                                              (size >= limit / near_factor).sum(),
                                              (size >= limit).sum(),
                                              values.isnan().sum(),
                                              (size == infinity).sum()};
  std::vector<at::Tensor> parts;
  for (const at::Tensor& number : numbers) parts.push_back(number.to(at::kDouble));
  return at::stack(parts);
}

void merge_from_device(ValueCounts& counts, const std::vector<at::Tensor>& pending) {
  if (pending.empty()) return;
  const at::Tensor all = at::stack(pending).to(at::kCPU).contiguous();
  const auto* row = all.data_ptr<double>();
  for (size_t i = 0; i < pending.size(); ++i, row += device_numbers) {
    const auto count = [row](int at) { return static_cast<uint64_t>(row[at]); };
    counts.merge({row[0], row[1], 0, count(2), count(3), count(4), count(5), count(6)});
  }
}

}  // namespace triage::diagnose
