// The operations on flags as plain ATen calls: detection, repair, selection and records. A record becomes (N, slots) integers, one
// column a slot; an update is one `where` over the columns; then the columns are packed into words again. No call here names
// the batch size. At the end they are boxed, and found by name.
#include "runtime/flags/composite.h"

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "runtime/flags/checks.h"
#include "runtime/flags/composite_slots.h"
#include "runtime/flags/operators.h"

namespace triage::flags::composite {
namespace {

bool can_be_non_finite(const Tensor& z) {
  return at::isFloatingType(z.scalar_type()) || at::isComplexType(z.scalar_type());
}

// Data that ATen can compare: floats of one byte and complex numbers of halves are widened, which changes no NaN, no Inf and
// no order.
Tensor comparable(const Tensor& z) {
  const auto dtype = z.scalar_type();
  if (dtype == at::kComplexHalf) return z.to(at::kComplexFloat);
  return at::isFloatingType(dtype) && c10::elementSize(dtype) == 1 ? z.to(at::kFloat) : z;
}

Tensor any_in_row(const Tensor& mask) {
  return at::any(mask.dim() == 1 ? at::unsqueeze(mask, 1) : mask.dim() == 2 ? mask : at::flatten(mask, 1, -1), 1);
}

Tensor start(const Tensor& z, const MaybeTensor& flags, int64_t num_slots, ScalarType dtype) {
  return flags ? *flags : new_flags(z, num_slots, dtype);
}

Tensor detect(const char* op, const Tensor& z, const MaybeTensor& given, int64_t location, int64_t num_slots,
              int64_t policy, ScalarType dtype, bool nan, bool inf) {
  check::detection(op, z, given, location, num_slots, policy, dtype);
  auto flags = start(z, given, num_slots, dtype);
  if (!can_be_non_finite(z)) return given ? at::clone(flags, at::MemoryFormat::Contiguous) : flags;
  const auto values = comparable(z);
  if (nan) {
    flags = push_where(flags, to_int(err::nan), location, to_int(err::critical), any_in_row(at::isnan(values)),
                       num_slots, policy);
  }
  if (inf) {
    flags = push_where(flags, to_int(err::inf), location, to_int(err::critical), any_in_row(at::isinf(values)),
                       num_slots, policy);
  }
  return flags;
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
  if (dim <= 1 || mask.dim() == 0) return mask;
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
  auto flags = start(ids, given, num_slots, dtype);
  const auto wide = ids.to(at::kLong);
  auto outside = at::logical_or(at::lt(wide, 0), at::ge(wide, num_embeddings));
  return push_where(flags, to_int(err::out_of_bounds), location, to_int(err::error), any_in_row(outside), num_slots,
                    policy);
}

std::tuple<Tensor, Tensor> fix(const Tensor& z, const Tensor& flags, const Tensor& fallback, int64_t location,
                               int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fallback(z, fallback);
  auto bad = match(flags, codes, min_severity);
  const auto dtype = at::result_type(z, fallback);
  auto value = fallback.to(fallback.dim() == 0 ? z.device() : fallback.device(), dtype);
  auto repaired = at::where(over_rows(bad, z.dim()), value, z.to(dtype));
  return {repaired,
          push_where(flags, to_int(err::fallback_value), location, to_int(err::warn), bad, num_slots, policy)};
}

std::tuple<Tensor, Tensor> fix_scalar(const Tensor& z, const Tensor& flags, const Scalar& fallback, int64_t location,
                                      int64_t codes, int64_t min_severity, int64_t num_slots, int64_t policy) {
  check::fix(z, flags, location, codes, min_severity, num_slots, policy);
  check::fill("fix", "fallback", fallback, z);
  auto bad = match(flags, codes, min_severity);
  auto repaired = at::where(over_rows(bad, z.dim()), fallback, z);
  return {repaired,
          push_where(flags, to_int(err::fallback_value), location, to_int(err::warn), bad, num_slots, policy)};
}

Tensor take_ok_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_ok_p", flags);
  check::data("take_ok_p", z, flags);
  check::fill("take_ok_p", "fill", fill, z);
  return at::where(over_rows(is_ok(flags), z.dim()), z, fill);
}

Tensor take_err_p(const Tensor& flags, const Tensor& z, const Scalar& fill) {
  check::flags("take_err_p", flags);
  check::data("take_err_p", z, flags);
  check::fill("take_err_p", "fill", fill, z);
  return at::where(over_rows(is_err(flags), z.dim()), z, fill);
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

namespace {

constexpr int64_t DEDUPE_MASK[] = {0, CODE_IN_SLOT, LOCATION_IN_SLOT, CODE_IN_SLOT | LOCATION_IN_SLOT};

ScalarType bits_dtype(ScalarType carrier) { return check::slots_per_word(carrier) == 2 ? at::kInt : at::kLong; }

int64_t lanes(const Tensor& flags, int64_t slot) {
  int64_t word = 0;
  for (int64_t i = 0; i < check::slots_per_word(flags.scalar_type()); ++i) word |= slot << (SLOT_BITS * i);
  return word;
}

Tensor shifts(const Tensor& words) {
  const int64_t bits = words.scalar_type() == at::kInt ? 32 : 64;
  return at::arange(0, bits, SLOT_BITS, words.options());
}

// Slots (N, words * slots a word) back into words of the carrier.
Tensor pack(const Tensor& slots, ScalarType carrier) {
  const int64_t per = check::slots_per_word(carrier);
  auto shifted = at::bitwise_left_shift(at::reshape(slots, {-1, slots.size(1) / per, per}), shifts(slots));
  auto words = at::sum(shifted, {-1}, /*keepdim=*/false, slots.scalar_type());
  return words.scalar_type() == carrier ? words : words.view(carrier);
}

Tensor has_bits(const Tensor& slots, int64_t mask) { return at::ne(at::bitwise_and(slots, mask), 0); }

Tensor severity_of(const Tensor& slots) { return at::bitwise_and(slots, SEVERITY_MASK); }
Tensor location_of(const Tensor& slots) {
  return at::bitwise_and(at::bitwise_right_shift(slots, LOCATION_SHIFT), 0x3FF);
}

// Of each row's true columns, only the first.
Tensor first(const Tensor& columns) { return at::logical_and(columns, at::eq(at::cumsum(columns, 1), 1)); }

// Where in a full record ranked by severity or location the newcomer goes, if it ranks higher: at the first of the weakest.
Tensor outranked(const Tensor& slots, const Tensor& fresh, const AccumulationConfig& policy) {
  auto rank = [&](const Tensor& x) { return policy.priority == Priority::severity ? severity_of(x) : location_of(x); };
  const bool keep_highest = policy.order == Order::last;
  auto ranks = rank(slots);
  auto weakest = keep_highest ? at::amin(ranks, {1}, true) : at::amax(ranks, {1}, true);
  auto stronger = keep_highest ? at::gt(rank(fresh), weakest) : at::lt(rank(fresh), weakest);
  return at::logical_and(first(at::eq(ranks, weakest)), stronger);
}

struct Recorded {
  Tensor entries;
  Tensor
      dropped;  // (N, 1): the entry that found no room or lost it, else a slot of severity 0; only where it is asked for
};

// Records `fresh` (N, 1) among the entries `slots`. A fresh slot of code 0 or severity 0 is not recorded.
Recorded record_entry(const Tensor& slots, const Tensor& fresh, const AccumulationConfig& policy, bool track) {
  auto severity = severity_of(slots);
  auto live = at::ne(severity, 0);
  auto active = at::logical_and(has_bits(fresh, SEVERITY_MASK), has_bits(fresh, CODE_IN_SLOT));
  Tensor replaced;  // where a worse duplicate takes an entry's place
  if (policy.dedupe != Dedupe::none) {
    const int64_t mask = DEDUPE_MASK[static_cast<int>(policy.dedupe)];
    auto same = at::logical_and(live, at::eq(at::bitwise_and(slots, mask), at::bitwise_and(fresh, mask)));
    auto worse = at::gt(at::bitwise_and(fresh, SEVERITY_MASK), severity);
    replaced = at::logical_and(at::logical_and(first(same), worse), active);
    active = at::logical_and(active, at::logical_not(at::any(same, 1, /*keepdim=*/true)));
  }
  if (policy.priority == Priority::chrono && policy.order == Order::last) {
    auto kept = replaced.defined() ? at::where(replaced, fresh, slots) : slots;
    auto shifted = at::where(active, at::cat({fresh, at::slice(slots, 1, 0, slots.size(1) - 1)}, 1), kept);
    return {shifted, track ? at::mul(at::slice(slots, 1, slots.size(1) - 1), active) : Tensor()};
  }
  auto empty = at::logical_not(live);
  auto target = first(empty);
  Tensor dropped;
  if (track || policy.priority != Priority::chrono) {
    auto full = at::logical_not(at::any(empty, 1, /*keepdim=*/true));
    if (track) dropped = at::mul(fresh, at::logical_and(full, active));
    if (policy.priority != Priority::chrono) {
      auto weaker = at::logical_and(full, outranked(slots, fresh, policy));
      if (track) {
        auto lost = at::sum(at::mul(slots, weaker), {1}, /*keepdim=*/true, slots.scalar_type());
        dropped = at::where(at::logical_and(at::any(weaker, 1, /*keepdim=*/true), active), lost, dropped);
      }
      target = at::logical_or(target, weaker);
    }
  }
  target = at::logical_and(target, active);
  if (replaced.defined()) target = at::logical_or(target, replaced);
  return {at::where(target, fresh, slots), dropped};
}

Tensor is_unknown(const Tensor& slots) { return at::eq(at::bitwise_and(slots, CODE_IN_SLOT), CODE_IN_SLOT); }

// The overflow record `last` (N, 1) with `more` errors dropped, the worst of this severity; as it is where that is 0.
Tensor with_dropped(const Tensor& last, const Tensor& more, const Tensor& severity) {
  auto known = at::ne(severity_of(last), 0);
  auto before = at::mul(at::masked_fill(location_of(last), at::logical_not(is_unknown(last)), 1), known);
  auto number = at::clamp_max(at::add(before, more), MAX_DROPPED);
  auto record =
      at::bitwise_or(at::bitwise_left_shift(number, LOCATION_SHIFT), at::maximum(severity_of(last), severity));
  return at::where(at::ne(severity, 0), at::bitwise_or(record, CODE_IN_SLOT), last);
}

// Records `fresh` (N, 1) in `slots` (N, num_slots), whose last one is the overflow record where `policy` asks for it.
Tensor record_slot(const Tensor& slots, const Tensor& fresh, int64_t policy) {
  if (!(policy & TRACK_OVERFLOW)) return record_entry(slots, fresh, check::unpack(policy), false).entries;
  const int64_t last = slots.size(1) - 1;
  const auto [entries, dropped] = record_entry(at::slice(slots, 1, 0, last), fresh, check::unpack(policy), true);
  auto severity = severity_of(dropped);
  return at::cat({entries, with_dropped(at::slice(slots, 1, last), at::ones_like(severity), severity)}, 1);
}

// What merge makes of the last slot of the other record: dropped errors add up, another entry is one as any.
Tensor merge_overflow(const Tensor& slots, const Tensor& other, int64_t policy) {
  const int64_t last = slots.size(1) - 1;
  auto unknown = is_unknown(other);
  auto merged = record_slot(slots, at::mul(other, at::logical_not(unknown)), policy);
  auto dropped = at::mul(other, unknown);
  auto record = with_dropped(at::slice(merged, 1, last), location_of(dropped), severity_of(dropped));
  return at::cat({at::slice(merged, 1, 0, last), record}, 1);
}

// Runs `update` on the first `num_slots` columns; the unused ones of the last word stay as they are.
template <class Update>
Tensor update_slots(const Tensor& flags, int64_t num_slots, Update update) {
  auto all = slots_of(flags);
  const int64_t capacity = all.size(1);
  if (capacity == num_slots) return pack(update(all), flags.scalar_type());
  auto used = update(at::slice(all, 1, 0, num_slots));
  return pack(at::cat({used, at::slice(all, 1, num_slots, capacity)}, 1), flags.scalar_type());
}

Tensor push_fresh(const Tensor& flags, const Tensor& fresh, int64_t num_slots, int64_t policy) {
  return update_slots(flags, num_slots, [&](const Tensor& slots) { return record_slot(slots, fresh, policy); });
}

int64_t packed_slot(int64_t code, int64_t location, int64_t severity) {
  return severity | code << CODE_SHIFT | location << LOCATION_SHIFT;
}

Tensor first_slot_field(const Tensor& flags, int64_t shift, int64_t mask) {
  auto word = at::select(bits_of(flags), 1, 0);
  return at::bitwise_and(shift ? at::bitwise_right_shift(word, shift) : word, mask).to(at::kInt);
}

Tensor live_with(const Tensor& slots, const Tensor& condition) {
  return at::any(at::logical_and(has_bits(slots, SEVERITY_MASK), condition), 1);
}

}  // namespace

Tensor bits_of(const Tensor& flags) {
  const auto dtype = bits_dtype(flags.scalar_type());
  return dtype == flags.scalar_type() ? flags : flags.view(dtype);
}

Tensor slots_of(const Tensor& flags) {
  auto words = bits_of(flags);
  auto spread = at::bitwise_right_shift(at::unsqueeze(words, -1), shifts(words));
  return at::flatten(at::bitwise_and(spread, SLOT_MASK), 1, 2);
}

Tensor new_flags(const Tensor& like, int64_t num_slots, ScalarType dtype) {
  check::new_flags(like, num_slots, dtype);
  auto rows = at::slice(like.dim() == 1 ? at::unsqueeze(like, 1) : like, 1, 0, 0);
  if (rows.dim() > 2) rows = at::flatten(rows, 1, -1);
  return at::constant_pad_nd(
      at::zeros_like(rows, dtype, at::kStrided, like.device(), c10::nullopt, at::MemoryFormat::Contiguous),
      {0, check::words_for(num_slots, dtype)});
}

Tensor push(const Tensor& flags, const Tensor& code, int64_t location, int64_t severity, int64_t num_slots,
            int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  if (severity == 0) return at::clone(flags, at::MemoryFormat::Contiguous);
  auto wide = code.to(at::kLong);
  auto known = at::logical_and(at::ge(wide, 0), at::le(wide, 15));
  auto codes = at::where(known, wide, to_int(err::unknown));
  auto fresh = at::bitwise_or(at::bitwise_left_shift(codes, CODE_SHIFT), packed_slot(0, location, severity));
  return push_fresh(flags, at::unsqueeze(fresh.to(bits_dtype(flags.scalar_type())), 1), num_slots, policy);
}

Tensor push_where(const Tensor& flags, int64_t code, int64_t location, int64_t severity, const Tensor& where,
                  int64_t num_slots, int64_t policy) {
  check::push(flags, code, location, severity, where, num_slots, policy);
  if (code == 0 || severity == 0) return at::clone(flags, at::MemoryFormat::Contiguous);
  auto fresh = at::mul(where.to(bits_dtype(flags.scalar_type())), packed_slot(code, location, severity));
  return push_fresh(flags, at::unsqueeze(fresh, 1), num_slots, policy);
}

Tensor push_scalar(const Tensor& flags, int64_t code, int64_t location, int64_t severity, int64_t num_slots,
                   int64_t policy) {
  check::push(flags, code, location, severity, num_slots, policy);
  if (code == 0 || severity == 0) return at::clone(flags, at::MemoryFormat::Contiguous);
  auto fresh = at::full_like(at::slice(bits_of(flags), 1, 0, 1), packed_slot(code, location, severity));
  return push_fresh(flags, fresh, num_slots, policy);
}

Tensor merge(const Tensor& flags, const Tensor& other, int64_t num_slots, int64_t policy) {
  check::merge(flags, other, num_slots, policy);
  auto fresh = slots_of(other);
  return update_slots(flags, num_slots, [&](Tensor slots) {
    const int64_t entries = policy & TRACK_OVERFLOW ? num_slots - 1 : num_slots;
    for (int64_t i = 0; i < entries; ++i) slots = record_slot(slots, at::slice(fresh, 1, i, i + 1), policy);
    return entries < num_slots ? merge_overflow(slots, at::slice(fresh, 1, entries, num_slots), policy) : slots;
  });
}

Tensor clear(const Tensor& flags, int64_t code) {
  check::code("clear", flags, code);
  auto slots = slots_of(flags);
  auto which =
      at::logical_and(has_bits(slots, SEVERITY_MASK), at::eq(at::bitwise_and(slots, CODE_IN_SLOT), code << CODE_SHIFT));
  return pack(at::masked_fill(slots, which, 0), flags.scalar_type());
}

Tensor is_err(const Tensor& flags) {
  check::flags("is_err", flags);
  return at::any(has_bits(bits_of(flags), lanes(flags, SEVERITY_MASK)), 1);
}

Tensor is_ok(const Tensor& flags) {
  check::flags("is_ok", flags);
  return at::logical_not(is_err(flags));
}

Tensor any_err(const Tensor& flags) {
  check::flags("any_err", flags);
  return at::any(has_bits(bits_of(flags), lanes(flags, SEVERITY_MASK)));
}

Tensor all_ok(const Tensor& flags) {
  check::flags("all_ok", flags);
  return at::logical_not(any_err(flags));
}

Tensor has_critical(const Tensor& flags) {
  check::flags("has_critical", flags);
  return at::any(at::eq(at::bitwise_and(slots_of(flags), SEVERITY_MASK), to_int(err::critical)), 1);
}

Tensor count_errors(const Tensor& flags) {
  check::flags("count_errors", flags);
  return at::sum(has_bits(slots_of(flags), SEVERITY_MASK), {1}, /*keepdim=*/false, at::kInt);
}

Tensor max_severity(const Tensor& flags) {
  check::flags("max_severity", flags);
  return at::amax(at::bitwise_and(slots_of(flags), SEVERITY_MASK), {1}).to(at::kLong);
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
  auto slots = slots_of(flags);
  return live_with(slots, at::eq(at::bitwise_and(slots, CODE_IN_SLOT), code << CODE_SHIFT));
}

Tensor has_domain(const Tensor& flags, int64_t domain) {
  check::domain("has_domain", flags, domain);
  auto slots = slots_of(flags);
  return live_with(slots, at::eq(at::bitwise_and(slots, 0xC << CODE_SHIFT), domain << (CODE_SHIFT + 2)));
}

Tensor get_slot(const Tensor& flags, int64_t index) {
  check::slot("get_slot", flags, index);
  const int64_t per = check::slots_per_word(flags.scalar_type());
  auto word = at::select(bits_of(flags), 1, index / per);
  return at::bitwise_and(at::bitwise_right_shift(word, index % per * SLOT_BITS), SLOT_MASK).to(at::kLong);
}

Tensor match(const Tensor& flags, int64_t codes, int64_t min_severity) {
  check::codes("match", flags, codes, min_severity);
  if (codes == 0xFFFF && min_severity <= 1) return is_err(flags);
  auto slots = slots_of(flags);
  auto code = at::bitwise_and(at::bitwise_right_shift(slots, CODE_SHIFT), 0xF);
  auto wanted = has_bits(at::bitwise_right_shift(at::full_like(code, codes), code), 1);
  auto severe = at::ge(at::bitwise_and(slots, SEVERITY_MASK), std::max<int64_t>(min_severity, 1));
  return at::any(at::logical_and(wanted, severe), 1);
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
