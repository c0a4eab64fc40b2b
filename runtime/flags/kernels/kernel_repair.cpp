// CPU kernels that pass data through: contiguous rows are copied or replaced whole, in one pass. Other layouts, and
// results of another dtype than the data, go through ATen's `where` (the composite).
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <runtime/flags/branches/element_masks.h>
#include <runtime/flags/kernels/scan.h>
#include <runtime/flags/records/rows.h>

#include <cmath>

namespace triage::flags::cpu {
namespace {

// One element of any dtype up to complex double, ready to be repeated.
struct Element {
  alignas(16) unsigned char bytes[16];
  size_t size;
};

bool to_element(const Scalar& value, ScalarType dtype, Element& out) {
  out.size = c10::elementSize(dtype);
  switch (dtype) {
#define TRIAGE_ELEMENT(T, name)                  \
  case ScalarType::name: {                       \
    const T element = value.to<T>();             \
    std::memcpy(out.bytes, &element, sizeof(T)); \
    return true;                                 \
  }
    AT_FORALL_SCALAR_TYPES_AND3(Bool, Half, BFloat16, TRIAGE_ELEMENT)
#undef TRIAGE_ELEMENT
    default:
      return false;
  }
}

template <class T>
void fill_as(char* to, const Element& value, int64_t count) {
  T element;
  std::memcpy(&element, value.bytes, sizeof(T));
  std::fill_n(reinterpret_cast<T*>(to), count, element);
}

void fill(char* to, const Element& value, int64_t count) {
  switch (value.size) {
    case 1:
      return fill_as<uint8_t>(to, value, count);
    case 2:
      return fill_as<uint16_t>(to, value, count);
    case 4:
      return fill_as<uint32_t>(to, value, count);
    default:
      return fill_as<uint64_t>(to, value, count);
  }
}

// Contiguous data as rows of bytes.
struct Data {
  explicit Data(const Tensor& z)
      : bytes(static_cast<char*>(z.data_ptr())),
        rows(z.size(0)),
        row_elements(z.size(0) ? z.numel() / z.size(0) : 0),
        row_bytes(static_cast<size_t>(row_elements) * z.element_size()) {}
  char* operator[](int64_t row) const { return bytes + static_cast<size_t>(row) * row_bytes; }
  char* bytes;
  int64_t rows;
  int64_t row_elements;
  size_t row_bytes;
};

// Copies z, but calls other(to, row) instead for the rows with replaced(row). Runs of kept rows are copied at once.
template <class Replaced, class Other>
Tensor copy_rows(const Tensor& z, Replaced replaced, Other other) {
  auto result = at::empty(z.sizes(), z.options());
  const Data to(result);
  const Data from(z);
  in_parallel(to.rows, 2 * to.row_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      if (replaced(row)) {
        other(to[row], row);
        ++row;
        continue;
      }
      const int64_t first = row;
      while (row < end && !replaced(row)) ++row;
      const size_t bytes = static_cast<size_t>(row - first) * to.row_bytes;
      if (bytes) std::memcpy(to[first], from[first], bytes);
    }
  });
  return result;
}

Tensor filled_rows(const Tensor& z, const Tensor& mask, bool when, const Element& value) {
  const auto* chosen = static_cast<const bool*>(mask.data_ptr());
  const int64_t count = Data(z).row_elements;
  return copy_rows(
      z, [=](int64_t row) { return chosen[row] == when; }, [=](char* to, int64_t) { fill(to, value, count); });
}

// Whether a kernel can write `value` into rows of z as they are.
bool fills(const Tensor& z, const Scalar& value, Element& element) {
  return z.is_contiguous() && at::result_type(z, value) == z.scalar_type() &&
         to_element(value, z.scalar_type(), element);
}

// How the fallback's rows lie beside those of contiguous z: elements from one row to the next; nothing where it is
// neither z's form nor one row.
c10::optional<int64_t> fallback_step(const Tensor& z, const Tensor& fallback) {
  if (!z.is_contiguous() || fallback.scalar_type() != z.scalar_type() || !fallback.is_contiguous()) return c10::nullopt;
  const int64_t row = Data(z).row_elements;
  if (fallback.sizes() == z.sizes()) return row;
  const bool one_row = fallback.sizes() == z.sizes().slice(1) || (fallback.dim() == z.dim() && fallback.size(0) == 1 &&
                                                                  fallback.sizes().slice(1) == z.sizes().slice(1));
  return one_row ? c10::optional<int64_t>(0) : c10::nullopt;
}

template <class Bits, uint64_t exponent, class T>
void replace_stretch(const T* from, T* to, int64_t count, T value, bool nan, bool posinf, bool neginf,
                     at::ArrayRef<T> targets) {
  constexpr auto infinity = static_cast<Bits>(exponent);
  constexpr auto sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const auto* in = reinterpret_cast<const Bits*>(from);
  auto* out = reinterpret_cast<Bits*>(to);
  Bits fresh;
  std::memcpy(&fresh, &value, sizeof(T));
  const auto all = static_cast<Bits>(~Bits{0});
  const Bits want_nan = nan ? all : Bits{0};
  const Bits want_positive = posinf ? all : Bits{0};
  const Bits want_negative = neginf ? all : Bits{0};
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const Bits bits = in[i];
    const auto magnitude = static_cast<Bits>(bits & static_cast<Bits>(~sign));
    const auto hit =
        static_cast<Bits>((magnitude > infinity ? want_nan : Bits{0}) | (bits == infinity ? want_positive : Bits{0}) |
                          (bits == static_cast<Bits>(infinity | sign) ? want_negative : Bits{0}));
    out[i] = hit ? fresh : bits;
  }
  for (const T target : targets) {
    for (int64_t i = 0; i < count; ++i) {
      if (from[i] == target) to[i] = value;
    }
  }
}

// What no element of T can be is no target.
template <class T>
std::vector<T> targets_as(ScalarType dtype, at::ArrayRef<double> values, at::IntArrayRef integers) {
  std::vector<T> targets;
  for (double value : values)
    if (check::holds(dtype, value)) targets.push_back(static_cast<T>(value));
  for (int64_t value : integers)
    if (check::holds(dtype, value)) targets.push_back(static_cast<T>(value));
  return targets;
}

template <class Bits, uint64_t exponent, class T>
Tensor replace_as(const Tensor& z, const Element& value, bool nan, bool posinf, bool neginf,
                  const std::vector<T>& targets) {
  auto result = at::empty(z.sizes(), z.options());
  const auto* from = static_cast<const T*>(z.data_ptr());
  auto* to = static_cast<T*>(result.data_ptr());
  T fresh;
  std::memcpy(&fresh, value.bytes, sizeof(T));
  constexpr int64_t stretch = 4096;
  at::parallel_for(0, z.numel(), 32 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += stretch) {
      replace_stretch<Bits, exponent, T>(from + first, to + first, std::min(stretch, end - first), fresh, nan, posinf,
                                         neginf, targets);
    }
  });
  return result;
}

}  // namespace

std::tuple<Tensor, Tensor> fix(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location,
                               int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fallback(z, fallback);
  const auto step = fallback_step(z, fallback);
  if (!step) return composite::fix(z, flags, fallback, location, codes, min_severity, num_slots, policy);
  const auto bad = match(flags, codes, min_severity);
  const auto* mask = static_cast<const bool*>(bad.data_ptr());
  const auto* source = static_cast<const char*>(fallback.data_ptr());
  const size_t bytes = Data(z).row_bytes;
  const size_t step_bytes = static_cast<size_t>(*step) * z.element_size();
  auto repaired = copy_rows(
      z, [=](int64_t row) { return mask[row]; },
      [=](char* to, int64_t row) {
        if (bytes) std::memcpy(to, source + static_cast<size_t>(row) * step_bytes, bytes);
      });
  return {repaired,
          push_where(flags, to_int(err::fallback_value), location, to_int(err::warn), bad, num_slots, policy)};
}

std::tuple<Tensor, Tensor> fix_scalar(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location,
                                      int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fill("fix", "fallback", fallback, z);
  Element value;
  if (!fills(z, fallback, value)) {
    return composite::fix_scalar(z, flags, fallback, location, codes, min_severity, num_slots, policy);
  }
  const auto bad = match(flags, codes, min_severity);
  return {filled_rows(z, bad, true, value),
          push_where(flags, to_int(err::fallback_value), location, to_int(err::warn), bad, num_slots, policy)};
}

Tensor take_ok_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_ok_p", flags);
  check::data("take_ok_p", z, flags);
  check::fill("take_ok_p", "fill", fill, z);
  Element value;
  return fills(z, fill, value) ? filled_rows(z, is_err(flags), true, value) : composite::take_ok_p(flags, z, fill);
}

Tensor take_err_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_err_p", flags);
  check::data("take_err_p", z, flags);
  check::fill("take_err_p", "fill", fill, z);
  Element value;
  return fills(z, fill, value) ? filled_rows(z, is_err(flags), false, value) : composite::take_err_p(flags, z, fill);
}

Tensor replace(const Tensor& z, const Scalar& value, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
               at::IntArrayRef integers) {
  check::fill("replace", "value", value, z);
  Element fresh;
  const bool any = nan || posinf || neginf || !values.empty() || !integers.empty();
  const auto dtype = z.scalar_type();
  if (any && fills(z, value, fresh)) {
    switch (dtype) {
      case ScalarType::Half:
        return replace_as<uint16_t, 0x7C00>(z, fresh, nan, posinf, neginf,
                                            targets_as<at::Half>(dtype, values, integers));
      case ScalarType::BFloat16:
        return replace_as<uint16_t, 0x7F80>(z, fresh, nan, posinf, neginf,
                                            targets_as<at::BFloat16>(dtype, values, integers));
      case ScalarType::Float:
        return replace_as<uint32_t, 0x7F800000>(z, fresh, nan, posinf, neginf,
                                                targets_as<float>(dtype, values, integers));
      case ScalarType::Double:
        return replace_as<uint64_t, 0x7FF0000000000000>(z, fresh, nan, posinf, neginf,
                                                        targets_as<double>(dtype, values, integers));
      default:
        break;
    }
  }
  return composite::replace(z, value, nan, posinf, neginf, values, integers);
}

Tensor select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  const bool rows = check::select(cond, a, b);
  if (!rows)
    return at::clone(*static_cast<const bool*>(cond.data_ptr()) ? a : b);  // which has the order of that branch
  if (!a.is_contiguous() || !b.is_contiguous()) return composite::select(cond, a, b);
  const auto* chosen = static_cast<const bool*>(cond.data_ptr());
  const int64_t step = cond.stride(0);
  const Data from(b);
  return copy_rows(
      a, [=](int64_t row) { return !chosen[row * step]; },
      [=](char* to, int64_t row) {
        if (from.row_bytes) std::memcpy(to, from[row], from.row_bytes);
      });
}

Tensor guard_grad(const Tensor& z, const Tensor& taken) {
  check::guard_grad(z, taken);
  return at::alias(z);
}

Tensor guard_elements(const Tensor& a, const Tensor& b, const Tensor& taken) {
  return elements::broadcast(a, b, taken);
}

}  // namespace triage::flags::cpu
