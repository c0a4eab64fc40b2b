// The operations on flags as plain ATen calls: detection, repair, selection and questions (records:
// composite_records.cpp). No call here names the batch size, and none reads a value. At the end they are boxed, and
// found by name.
#include "runtime/flags/composites/composite.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/flags/branches/element_masks.h"
#include "runtime/flags/checks.h"
#include "runtime/flags/composites/composite_slots.h"
#include "runtime/flags/composites/composite_table.h"
#include "runtime/flags/composites/known_rows.h"
#include "runtime/flags/operators.h"
#include "runtime/flags/records/slots.h"

namespace triage::flags::composite {

Tensor severity_of(const Tensor& slots) { return at::bitwise_and(slots, SEVERITY_MASK); }

namespace {

bool can_be_non_finite(const Tensor& z) {
  return at::isFloatingType(z.scalar_type()) || at::isComplexType(z.scalar_type());
}

// Data that ATen can compare: floats of one byte and complex numbers of halves are widened, which changes no NaN, no
// Inf and no order.
Tensor comparable(const Tensor& z) {
  const auto dtype = z.scalar_type();
  if (at::isComplexType(dtype) && c10::elementSize(dtype) == 4) return z.to(at::kComplexFloat);
  return at::isFloatingType(dtype) && c10::elementSize(dtype) == 1 ? z.to(at::kFloat) : z;
}

using Row = RowTable::Row;

int64_t lanes(const Tensor& flags, int64_t slot) {
  int64_t word = 0;
  for (int64_t i = 0; i < check::slots_per_word(flags.scalar_type()); ++i) word |= slot << (SLOT_BITS * i);
  return word;
}

Tensor has_bits(const Tensor& slots, int64_t mask) { return at::ne(at::bitwise_and(slots, mask), 0); }

Tensor live_with(const Tensor& slots, const Tensor& condition) {
  return at::any(at::logical_and(has_bits(slots, SEVERITY_MASK), condition), 1);
}

/// How many errors of the row are `wanted`.
template <class Wanted>
int64_t count_in(const Row& row, Wanted wanted) {
  int64_t count = 0;
  each_error_slot(row.data(), static_cast<int64_t>(row.size()), [&](int64_t, uint16_t slot) { count += wanted(slot); });
  return count;
}

bool is_any(uint16_t) { return true; }

/// Which records have errors that are `wanted`: a mask (N, 1) which is known, where they are; else what `general`
/// gives, (N,).
template <class Wanted, class General>
Tensor rows_with(const Tensor& flags, Wanted wanted, General general) {
  const auto table = KnownRows::of(flags);
  if (!table) return general();
  auto answers = table->changed([&](const Row& row) { return Row{count_in(row, wanted) != 0}; });
  auto mask = mask_of(answers, flags);
  return KnownRows::note(std::move(mask), std::move(answers));
}

/// What the caller gets: (N,), in memory of its own. A known mask may be one that others see, too.
Tensor answer(const Tensor& mask) {
  if (mask.dim() == 1) return mask;
  auto result = at::any(mask, 1);
  if (const auto table = KnownRows::of(mask)) return KnownRows::note(std::move(result), *table);
  return result;
}

Tensor rows_with_errors(const Tensor& flags) {
  return rows_with(flags, is_any, [&] { return at::any(has_bits(bits_of(flags), lanes(flags, SEVERITY_MASK)), 1); });
}

Tensor matching_rows(const Tensor& flags, int64_t codes, int64_t min_severity) {
  const int64_t least = std::max<int64_t>(min_severity, 1);
  if (codes == 0xFFFF && least == 1) return rows_with_errors(flags);
  const auto matches = [=](uint16_t slot) {
    return (codes >> ((slot & CODE_IN_SLOT) >> CODE_SHIFT) & 1) && (slot & SEVERITY_MASK) >= least;
  };
  return rows_with(flags, matches, [&] {
    auto slots = slots_of(flags);
    auto code = at::bitwise_and(at::bitwise_right_shift(slots, CODE_SHIFT), 0xF);
    auto wanted = has_bits(at::bitwise_right_shift(at::full_like(code, codes), code), 1);
    return at::any(at::logical_and(wanted, at::ge(severity_of(slots), least)), 1);
  });
}

// As a matrix: one row a sample.
Tensor in_rows(const Tensor& z) {
  return z.dim() == 1 ? at::unsqueeze(z, 1) : z.dim() == 2 ? z : at::flatten(z, 1, -1);
}

/// (N, 1), of a mask (N, elements) of data with `dim` dims.
Tensor any_in_row(const Tensor& mask, int64_t dim) { return dim == 1 ? mask : at::any(mask, 1, /*keepdim=*/true); }

struct FlagFinding {
  Code code;
  Severity severity;
  Tensor where;  // (N, 1)
};

/// Pushes what was found, one after the other, into the given flags or into new ones.
Tensor found(const MaybeTensor& given, ScalarType dtype, int64_t location, int64_t num_slots, int64_t policy,
             at::ArrayRef<FlagFinding> findings) {
  const auto push = [&](const FlagFinding& it) {
    return Push{to_int(it.code), location, to_int(it.severity), num_slots, policy};
  };
  std::optional<RowTable> rows;
  if (!given)
    rows = empty_rows(check::words_for(num_slots, dtype), dtype);
  else if (const auto known = KnownRows::of(*given))
    rows = *known;
  for (const FlagFinding& finding : findings)
    if (rows) rows = pushed_rows(*rows, RowTable::of_mask(finding.where), push(finding));
  if (rows) {
    auto records =
        given ? records_of(*rows, given->scalar_type(), *given) : records_of(*rows, dtype, findings[0].where);
    return KnownRows::note(std::move(records), std::move(*rows));
  }
  Tensor flags = *given;
  for (const FlagFinding& finding : findings) flags = recorded(flags, push(finding), RowTable::of_mask(finding.where));
  return flags;
}

Tensor detect(const char* op, const Tensor& z, const MaybeTensor& given, int64_t location, int64_t num_slots,
              int64_t policy, ScalarType dtype, bool nan, bool inf) {
  check::detection(op, z, given, location, num_slots, policy, dtype);
  if (!can_be_non_finite(z))
    return given ? at::clone(*given, at::MemoryFormat::Contiguous) : new_flags(z, num_slots, dtype);
  const auto values = in_rows(comparable(z));
  std::vector<FlagFinding> findings;
  const auto note = [&](Code code, const Tensor& mask) {
    findings.push_back({code, err::critical, any_in_row(mask, z.dim())});
  };
  if (nan) note(err::nan, at::isnan(values));
  if (inf) note(err::inf, at::isinf(values));
  return found(given, dtype, location, num_slots, policy, findings);
}

Tensor nowhere(const Tensor& z) { return at::zeros_like(z, z.options().dtype(at::kBool)); }

Tensor equal_to(const Tensor& z, int64_t value) {
  if (c10::isIntegralType(z.scalar_type(), /*includeBool=*/true)) return at::eq(z.to(at::kLong), value);
  return check::holds(z.scalar_type(), value) ? at::eq(z, value) : nowhere(z);
}

// ATen would compare integers with a number that has a fraction as float32, in which they are rounded.
Tensor equal_to(const Tensor& z, double value) {
  if (c10::isIntegralType(z.scalar_type(), /*includeBool=*/true)) {
    const bool whole = value == std::trunc(value) && value >= -0x1p63 && value < 0x1p63;
    return whole ? equal_to(z, static_cast<int64_t>(value)) : nowhere(z);
  }
  return check::holds(z.scalar_type(), value) ? at::eq(z, value) : nowhere(z);
}

}  // namespace

Tensor over_rows(const Tensor& mask, int64_t dim) {
  if (dim == mask.dim() || mask.dim() == 0) return mask;
  // What a known mask was made of is (N, 1).
  if (const auto table = KnownRows::of(mask); table && dim == 2 && !table->masks.empty()) return mask_of(*table, mask);
  if (dim <= 1) return mask.dim() == 2 ? at::squeeze(mask, 1) : mask;
  std::vector<int64_t> shape(static_cast<size_t>(dim), 1);
  shape[0] = -1;
  return at::reshape(mask, shape);
}

Tensor flag_nan(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detect("flag_nan", z, flags, location, num_slots, policy, dtype, true, false);
}

Tensor flag_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                ScalarType dtype) {
  return detect("flag_inf", z, flags, location, num_slots, policy, dtype, false, true);
}

Tensor flag_nan_and_inf(const Tensor& z, const MaybeTensor& flags, int64_t location, int64_t num_slots, int64_t policy,
                        ScalarType dtype) {
  return detect("flag_nan_and_inf", z, flags, location, num_slots, policy, dtype, true, true);
}

Tensor flag_oob_indices(const Tensor& ids, int64_t num_embeddings, const MaybeTensor& given, int64_t location,
                        int64_t num_slots, int64_t policy, ScalarType dtype) {
  check::indices(ids, num_embeddings);
  check::detection("flag_oob_indices", ids, given, location, num_slots, policy, dtype);
  const auto wide = in_rows(ids).to(at::kLong);
  const auto outside = at::logical_or(at::lt(wide, 0), at::ge(wide, num_embeddings));
  return found(given, dtype, location, num_slots, policy,
               FlagFinding{err::out_of_bounds, err::error, any_in_row(outside, ids.dim())});
}

namespace {

/// The flags after rows got a fallback.
Tensor noted_repair(const Tensor& flags, const Tensor& bad, int64_t location, int64_t num_slots, int64_t policy) {
  const Push push{to_int(err::fallback_value), location, to_int(err::warn), num_slots, policy};
  return recorded(flags, push, known_mask(bad));
}

}  // namespace

std::tuple<Tensor, Tensor> fix(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location,
                               int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fallback(z, fallback);
  const auto bad = matching_rows(flags, codes, min_severity);
  const auto dtype = at::result_type(z, fallback);
  auto value = fallback.to(fallback.dim() == 0 ? z.device() : fallback.device(), dtype);
  auto repaired = at::where(over_rows(bad, z.dim()), value, z.to(dtype));
  return {repaired, noted_repair(flags, bad, location, num_slots, policy)};
}

std::tuple<Tensor, Tensor> fix_scalar(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location,
                                      int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fill("fix", "fallback", fallback, z);
  const auto bad = matching_rows(flags, codes, min_severity);
  auto repaired = at::where(over_rows(bad, z.dim()), fallback, z);
  return {repaired, noted_repair(flags, bad, location, num_slots, policy)};
}

Tensor take_ok_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_ok_p", flags);
  check::data("take_ok_p", z, flags);
  check::fill("take_ok_p", "fill", fill, z);
  return at::where(over_rows(rows_with_errors(flags), z.dim()), fill, z);
}

Tensor take_err_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_err_p", flags);
  check::data("take_err_p", z, flags);
  check::fill("take_err_p", "fill", fill, z);
  return at::where(over_rows(rows_with_errors(flags), z.dim()), z, fill);
}

Tensor replaced(const Tensor& data, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
                at::IntArrayRef integers) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const auto z = comparable(data);
  Tensor hit;
  auto also = [&](const Tensor& more) { hit = hit.defined() ? at::logical_or(hit, more) : more; };
  if (nan) also(at::ne(z, z));  // `isnan` knows no Meta tensors in LibTorch 1.13
  if (posinf && neginf) also(at::isinf(z));
  if (posinf && !neginf) also(at::eq(z, inf));
  if (neginf && !posinf) also(at::eq(z, -inf));
  for (double wanted : values) also(equal_to(z, wanted));
  for (int64_t wanted : integers) also(equal_to(z, wanted));
  return hit;
}

Tensor replace(const Tensor& z, const Scalar& value, bool nan, bool posinf, bool neginf, at::ArrayRef<double> values,
               at::IntArrayRef integers) {
  check::fill("replace", "value", value, z);
  const auto hit = replaced(z, nan, posinf, neginf, values, integers);
  return hit.defined() ? at::where(hit, value, z) : at::clone(z);
}

Tensor select(const Tensor& cond, const Tensor& a, const Tensor& b) {
  const bool rows = check::select(cond, a, b);
  return at::where(rows ? over_rows(cond, a.dim()) : cond, a, b);
}

Tensor guard_grad(const Tensor& z, const Tensor& taken) {
  check::guard_grad(z, taken);
  return at::alias(z);
}

Tensor guard_elements(const Tensor& a, const Tensor& b, const Tensor& taken) {
  return elements::broadcast(a, b, taken);
}

namespace {

/// Numbers of this dtype about each record.
template <class Answer, class General>
Tensor number(const Tensor& flags, ScalarType dtype, Answer answer, General general) {
  const auto table = KnownRows::of(flags);
  return table ? at::squeeze(numbers_of(*table, answer, flags), 1).to(dtype) : general();
}

Tensor first_slot_field(const Tensor& flags, int64_t shift, int64_t mask) {
  const auto of_row = [=](const Row& row) { return row[0] >> shift & mask; };
  return number(flags, at::kInt, of_row, [&] {
    auto word = at::select(bits_of(flags), 1, 0);
    return at::bitwise_and(shift ? at::bitwise_right_shift(word, shift) : word, mask).to(at::kInt);
  });
}

}  // namespace

Tensor is_err(const Tensor& flags) {
  check::flags("is_err", flags);
  return answer(rows_with_errors(flags));
}

Tensor is_ok(const Tensor& flags) {
  check::flags("is_ok", flags);
  const auto errors = rows_with_errors(flags);
  auto fine = at::logical_not(errors);
  if (errors.dim() == 2) fine = at::squeeze(fine, 1);
  if (const auto table = KnownRows::of(errors))
    return KnownRows::note(std::move(fine), table->changed([](const Row& row) { return Row{!row[0]}; }));
  return fine;
}

Tensor any_err(const Tensor& flags) {
  check::flags("any_err", flags);
  if (KnownRows::of(flags)) return at::any(rows_with_errors(flags));
  return at::any(has_bits(bits_of(flags), lanes(flags, SEVERITY_MASK)));
}

Tensor all_ok(const Tensor& flags) {
  check::flags("all_ok", flags);
  return at::logical_not(any_err(flags));
}

Tensor has_critical(const Tensor& flags) {
  check::flags("has_critical", flags);
  const auto is_critical = [](uint16_t slot) { return (slot & SEVERITY_MASK) == to_int(err::critical); };
  return answer(rows_with(flags, is_critical,
                          [&] { return at::any(at::eq(severity_of(slots_of(flags)), to_int(err::critical)), 1); }));
}

Tensor count_errors(const Tensor& flags) {
  check::flags("count_errors", flags);
  return number(
      flags, at::kInt, [](const Row& row) { return count_in(row, is_any); },
      [&] { return at::sum(has_bits(slots_of(flags), SEVERITY_MASK), {1}, /*keepdim=*/false, at::kInt); });
}

Tensor max_severity(const Tensor& flags) {
  check::flags("max_severity", flags);
  const auto of_row = [](const Row& row) {
    int64_t most = 0;
    for (const uint16_t slot : row) most = std::max<int64_t>(most, slot & SEVERITY_MASK);
    return most;
  };
  return number(flags, at::kLong, of_row, [&] { return at::amax(severity_of(slots_of(flags)), {1}).to(at::kLong); });
}

Tensor get_first_code(const Tensor& flags) {
  check::flags("get_first_code", flags);
  return first_slot_field(flags, CODE_SHIFT, 0xF);
}

Tensor get_first_location(const Tensor& flags) {
  check::flags("get_first_location", flags);
  return first_slot_field(flags, LOCATION_SHIFT, 0x3FF);
}

Tensor get_first_severity(const Tensor& flags) {
  check::flags("get_first_severity", flags);
  return first_slot_field(flags, 0, SEVERITY_MASK);
}

Tensor has_code(const Tensor& flags, int64_t code) {
  check::code("has_code", flags, code);
  const auto has_it = [code](uint16_t slot) { return (slot & CODE_IN_SLOT) == code << CODE_SHIFT; };
  return answer(rows_with(flags, has_it, [&] {
    auto slots = slots_of(flags);
    return live_with(slots, at::eq(at::bitwise_and(slots, CODE_IN_SLOT), code << CODE_SHIFT));
  }));
}

Tensor has_domain(const Tensor& flags, int64_t domain) {
  check::domain("has_domain", flags, domain);
  constexpr int64_t mask = 0xC << CODE_SHIFT;
  const int64_t wanted = domain << (CODE_SHIFT + 2);
  const auto has_it = [wanted](uint16_t slot) { return (slot & mask) == wanted; };
  return answer(rows_with(flags, has_it, [&] {
    auto slots = slots_of(flags);
    return live_with(slots, at::eq(at::bitwise_and(slots, mask), wanted));
  }));
}

Tensor get_slot(const Tensor& flags, int64_t index) {
  check::slot("get_slot", flags, index);
  const auto of_row = [index](const Row& row) { return int64_t{row[static_cast<size_t>(index)]}; };
  return number(flags, at::kLong, of_row, [&] {
    const int64_t per = check::slots_per_word(flags.scalar_type());
    auto word = at::select(bits_of(flags), 1, index / per);
    return at::bitwise_and(at::bitwise_right_shift(word, index % per * SLOT_BITS), SLOT_MASK).to(at::kLong);
  });
}

Tensor match(const Tensor& flags, int64_t codes, int64_t min_severity) {
  check::codes("match", flags, codes, min_severity);
  return answer(matching_rows(flags, codes, min_severity));
}

}  // namespace triage::flags::composite

namespace triage::flags {
namespace {

template <class T>
struct FromIValue;
template <>
struct FromIValue<const Tensor&> {
  static Tensor get(const c10::IValue& v) { return v.toTensor(); }
};
template <>
struct FromIValue<const MaybeTensor&> {
  static MaybeTensor get(const c10::IValue& v) { return v.isNone() ? MaybeTensor() : MaybeTensor(v.toTensor()); }
};
template <>
struct FromIValue<const Scalar&> {
  static Scalar get(const c10::IValue& v) { return v.toScalar(); }
};
template <>
struct FromIValue<int64_t> {
  static int64_t get(const c10::IValue& v) { return v.toInt(); }
};
template <>
struct FromIValue<bool> {
  static bool get(const c10::IValue& v) { return v.toBool(); }
};
template <>
struct FromIValue<ScalarType> {
  static ScalarType get(const c10::IValue& v) { return v.toScalarType(); }
};
template <>
struct FromIValue<at::ArrayRef<double>> {
  static std::vector<double> get(const c10::IValue& v) { return v.toDoubleVector(); }
};
template <>
struct FromIValue<at::IntArrayRef> {
  static std::vector<int64_t> get(const c10::IValue& v) { return v.toIntVector(); }
};

void give(torch::jit::Stack& stack, Tensor result) { stack.emplace_back(std::move(result)); }
void give(torch::jit::Stack& stack, std::tuple<Tensor, Tensor> results) {
  stack.emplace_back(std::move(std::get<0>(results)));
  stack.emplace_back(std::move(std::get<1>(results)));
}

template <class Result, class... Args, size_t... i>
void call(Result (*function)(Args...), torch::jit::Stack& stack, std::index_sequence<i...>) {
  const size_t base = stack.size() - sizeof...(Args);
  auto result = function(FromIValue<Args>::get(stack[base + i])...);
  stack.resize(base);
  give(stack, std::move(result));
}

template <class Result, class... Args>
Composite boxed(const char* name, Result (*function)(Args...)) {
  return [name, function](torch::jit::Stack& stack) {
    TORCH_CHECK(stack.size() >= sizeof...(Args), "The composite of triage::", name, " takes ", sizeof...(Args),
                " arguments; the stack holds ", stack.size(), ".");
    call(function, stack, std::index_sequence_for<Args...>{});
  };
}

}  // namespace

const Composite* find_composite(const std::string& qualified_name_with_overload) {
  static const auto* table = new std::unordered_map<std::string, Composite>{
#define TRIAGE_BOXED(name, function, schema) {"triage::" name, boxed(name, &composite::function)},
      TRIAGE_FLAGS_OPERATORS(TRIAGE_BOXED)
#undef TRIAGE_BOXED
  };
  auto it = table->find(qualified_name_with_overload);
  return it == table->end() ? nullptr : &it->second;
}

}  // namespace triage::flags
