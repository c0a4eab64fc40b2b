// Operations on flags: the record of a row is a value like any other.
#include <ATen/ATen.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/forms.h>
#include <triage/layout.h>

#include <cmath>

#include "runtime/backends/fused/lowering/known_bounds.h"
#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {
namespace {

using Kind = TensorForm::Kind;

int64_t slots_of(const TensorForm& form) { return form.words * static_cast<int64_t>(c10::elementSize(form.dtype)) / 2; }

std::optional<Lowered> record(Lowering& l, size_t argument) {
  const auto f = l.lowered(argument);
  return f && f->form.kind == Kind::record ? f : std::nullopt;
}

/// A mask over rows, (N).
std::optional<Ref> mask(Lowering& l, size_t argument) {
  const auto m = l.lowered(argument);
  if (!m || m->form.kind != Kind::row || m->form.rank != 1 || m->form.dtype != at::kBool) return std::nullopt;
  return m->value;
}

/// The integers of the arguments first, ..., first + count - 1.
std::optional<std::vector<int64_t>> integers(Lowering& l, size_t first, size_t count) {
  std::vector<int64_t> list;
  for (size_t i = 0; i < count; ++i) {
    const auto number = l.integer(first + i);
    if (!number) return std::nullopt;
    list.push_back(*number);
  }
  return list;
}

/// Whether a record has room for so many slots, and they for the policy: capture saw to it, a graph that was read from
/// text may say anything.
bool fits(const TensorForm& form, int64_t num_slots, int64_t policy) {
  return num_slots >= (policy & TRACK_OVERFLOW ? 2 : 1) && num_slots <= slots_of(form);
}

/// How a push marks rows: the integers that stand in the value.
struct PushArguments {
  int64_t location, severity, num_slots, policy;
};
Ref push(Lowering& l, Ref record, Ref where, Ref code, const PushArguments& mark) {
  return l.apply(Opcode::record_push, {record, where, code},
                 {mark.num_slots, mark.location, mark.severity, mark.policy});
}
Ref push_known(Lowering& l, Ref record, Ref where, int64_t code, const PushArguments& mark) {
  const bool is_short = code == whole_bits(Type::i32, code);
  return push(l, record, where, l.literal(is_short ? Type::i32 : Type::i64, code), mark);
}

Lowered empty_record(Lowering& l, int64_t num_slots, at::ScalarType carrier) {
  const TensorForm form = record_form(flags::check::words_for(num_slots, carrier), carrier);
  flags::KnownForms::add(carrier, form.words);  // a graph that was read from a file is the first to name it
  return {form, l.apply(Opcode::record_empty, {}, {slots_of(form)})};
}

/// A record that begins with `flags` where argument `argument` has them, else empty.
std::optional<Lowered> start(Lowering& l, size_t argument, int64_t num_slots, at::ScalarType carrier) {
  return l.is_none(argument) ? empty_record(l, num_slots, carrier) : record(l, argument);
}

bool fresh(Lowering& l) {  // new(like, num_slots, dtype)
  const auto like = l.lowered(0);
  const auto numbers = integers(l, 1, 2);
  if (!like || !numbers || like->form.kind == Kind::number) return false;
  const Lowered empty = empty_record(l, (*numbers)[0], static_cast<at::ScalarType>((*numbers)[1]));
  return l.result(0, empty.form, empty.value);
}

bool push_codes(Lowering& l) {  // flags, code, location, severity, num_slots, policy
  const auto f = record(l, 0);
  const auto codes = l.lowered(1);
  const auto n = integers(l, 2, 4);
  if (!f || !n || !fits(f->form, (*n)[2], (*n)[3]) || !codes || codes->form.kind != Kind::row ||
      codes->form.rank != 1 || !at::isIntegralType(codes->form.dtype, false))
    return false;
  const Ref where = l.step("a != 0", {codes->value});
  return l.result(0, f->form, push(l, f->value, where, codes->value, {(*n)[0], (*n)[1], (*n)[2], (*n)[3]}));
}

bool push_where(Lowering& l) {  // flags, code, location, severity, where, num_slots, policy
  const auto f = record(l, 0);
  const auto n = integers(l, 1, 3), how = integers(l, 5, 2);
  const auto where = mask(l, 4);
  if (!f || !n || !how || !where || !fits(f->form, (*how)[0], (*how)[1])) return false;
  return l.result(0, f->form, push_known(l, f->value, *where, (*n)[0], {(*n)[1], (*n)[2], (*how)[0], (*how)[1]}));
}

bool push_scalar(Lowering& l) {  // flags, code, location, severity, num_slots, policy
  const auto f = record(l, 0);
  const auto n = integers(l, 1, 5);
  if (!f || !n || !fits(f->form, (*n)[3], (*n)[4])) return false;
  const Ref everywhere = l.literal(Type::boolean, 1);
  return l.result(0, f->form, push_known(l, f->value, everywhere, (*n)[0], {(*n)[1], (*n)[2], (*n)[3], (*n)[4]}));
}

bool merge(Lowering& l) {  // flags, other, num_slots, policy
  const auto f = record(l, 0), other = record(l, 1);
  const auto n = integers(l, 2, 2);
  if (!f || !other || !n || !fits(f->form, (*n)[0], (*n)[1]) || f->form.words != other->form.words ||
      f->form.dtype != other->form.dtype)
    return false;
  return l.result(0, f->form, l.apply(Opcode::record_merge, {f->value, other->value}, *n));
}

bool clear(Lowering& l) {
  const auto f = record(l, 0);
  const auto code = integers(l, 1, 1);
  return f && code && l.result(0, f->form, l.apply(Opcode::record_clear, {f->value}, *code));
}

/// Whether a record that began empty has an entry, told by what was pushed; nothing where it is quicker to look.
std::optional<Ref> has_pushed(Lowering& l, Ref record, int most = 4) {
  const LoopValue push = l.value(record);
  if (!push.is(Opcode::record_push) || most == 0) return std::nullopt;
  const LoopValue& code = l.value(push.operands[2]);
  const bool adds = code.is(Opcode::literal) && (code.numbers[0] & CODE_MASK) != 0 && push.numbers[2] > 0;
  if (!adds) return std::nullopt;  // a code of 0 is not recorded
  if (l.value(push.operands[0]).is(Opcode::record_empty)) return push.operands[1];
  const auto before = has_pushed(l, push.operands[0], most - 1);
  return before ? std::optional(l.step("a | b", {*before, push.operands[1]})) : std::nullopt;
}

bool is_err(Lowering& l) {
  const auto f = record(l, 0);
  if (!f) return false;
  const auto pushed = has_pushed(l, f->value);
  Ref answer = pushed ? l.map(at::kBool, "a", {*pushed}) : l.apply(Opcode::record_is_err, {f->value});
  if (l.value(answer).place == Place::number) answer = l.spread(answer, row_form(at::kBool));
  return l.result(0, row_form(at::kBool), answer);
}

/// An answer a row, of the record in argument 0.
template <Opcode opcode>
bool ask(Lowering& l) {
  const auto f = record(l, 0);
  const auto numbers = integers(l, 1, row_of(opcode).numbers);
  if (!f || !numbers) return false;
  const Ref answer = l.apply(opcode, {f->value}, *numbers);
  return l.result(0, row_form(l.value(answer).dtype), answer);
}

/// Whether a record has an entry with one of these codes, a set of bits.
bool has(Lowering& l, int64_t codes, int64_t min_severity = 1) {
  const auto f = record(l, 0);
  return f && l.result(0, row_form(at::kBool), l.apply(Opcode::record_match, {f->value}, {codes, min_severity}));
}
/// `bits`, the lowest for 0, of code or domain `index`; none where there is no such.
int64_t codes_at(int64_t bits, int64_t width, int64_t index) {
  return index >= 0 && index < 16 / width ? bits << index * width : 0;
}

bool is_finite_number(Lowering& l, Ref value) {
  const LoopValue& number = l.value(value);
  return number.is(Opcode::literal) && is_real(number.type) &&
         std::isfinite(real_of_bits(number.type, number.numbers[0]));
}

/// The rows in which `test` holds of a value; `of_row` asks the same of what was found in a row of floats.
struct Detected {
  const char* test;
  Opcode of_row;
};
constexpr Detected nan_in_row{"is_nan(a)", Opcode::has_nan}, inf_in_row{"is_inf(a)", Opcode::has_inf};

Ref detected(Lowering& l, Ref z, const Detected& what) {
  if (l.value(z).place != Place::element) return l.step(what.test, {z});
  // Rows that a selection has left as they were have been looked at, or can be before it.
  if (const auto picked = l.picked_rows(z)) {
    const Ref kept = detected(l, picked->kept, what);
    if (is_finite_number(l, picked->value)) return l.step("!a & b", {picked->taken, kept});
    return l.step("(a & b) | (!a & c)", {picked->taken, l.step(what.test, {picked->value}), kept});
  }
  if (const KnownBounds known = known_bounds(l, z); known.are_finite() && known.nan_of != z)
    return what.of_row == Opcode::has_nan ? detected(l, known.nan_of, what)
                                          : l.spread(l.literal(Type::boolean, 0), row_form(at::kBool));
  if (l.in_segments(z))
    return l.step("a != 0", {l.reduce(Join::any, l.step(what.test, {z}))});  // cannot be looked at again
  const Type bits = l.value(z).type == Type::f64 ? Type::i64 : Type::i32;
  const Ref magnitude = l.as_step(l.apply(Opcode::magnitude_bits, {z}, {}, bits));
  return l.as_step(l.apply(what.of_row, {l.classify(z, l.reduce(Join::largest, magnitude))}));
}

}  // namespace

Ref nan_in_rows(Lowering& l, Ref z) { return detected(l, z, nan_in_row); }

namespace {

/// flag_nan and its kind: z, flags, location, num_slots, policy, dtype
bool detect(Lowering& l, bool nan, bool inf) {
  const auto z = l.lowered(0);
  const auto n = integers(l, 2, 4);
  if (!z || !n || (z->form.kind != Kind::element && z->form.kind != Kind::row)) return false;
  const auto f = start(l, 1, (*n)[1], static_cast<at::ScalarType>((*n)[3]));
  if (!f || !fits(f->form, (*n)[1], (*n)[2])) return false;
  if (!at::isFloatingType(z->form.dtype)) return l.result(0, f->form, f->value);
  const PushArguments mark{(*n)[0], 3, (*n)[1], (*n)[2]};
  Ref record = f->value;
  if (nan) record = push_known(l, record, detected(l, z->value, nan_in_row), 1, mark);
  if (nan && inf) l.as_step(record);
  if (inf) record = push_known(l, record, detected(l, z->value, inf_in_row), 2, mark);
  return l.result(0, f->form, record);
}

/// flag_oob_indices: ids, num_embeddings, flags, location, num_slots, policy, dtype
bool detect_indices(Lowering& l) {
  const auto ids = l.lowered(0);
  const auto limit = l.integer(1);
  const auto n = integers(l, 3, 4);
  if (!ids || !limit || !n || !at::isIntegralType(ids->form.dtype, false)) return false;
  const auto f = start(l, 2, (*n)[1], static_cast<at::ScalarType>((*n)[3]));
  if (!f || !fits(f->form, (*n)[1], (*n)[2])) return false;
  const Ref id = l.converted(ids->value, Type::i64);
  Ref found = l.step("(a < 0) | (a >= b)", {id, l.literal(Type::i64, *limit)});
  if (ids->form.kind == Kind::element)
    found = l.step("a != 0", {l.reduce(Join::any, found)});
  else if (ids->form.kind != Kind::row)
    return false;
  return l.result(0, f->form, push_known(l, f->value, found, 5, {(*n)[0], 2, (*n)[1], (*n)[2]}));
}

/// The rows where `taken` holds get `value`, the others keep z.
bool replaced_rows(Lowering& l, size_t index, const Lowered& z, Ref taken, Ref value) {
  return l.result(index, z.form, l.apply(Opcode::pick, {taken, value, z.value}));
}

/// fix: z, flags, fallback, location, codes, min_severity, num_slots, policy
bool fix(Lowering& l) {
  const auto z = l.lowered(0), f = record(l, 1);
  const auto n = integers(l, 3, 5);
  if (!z || !f || !n || !fits(f->form, (*n)[3], (*n)[4]) ||
      (z->form.kind != Kind::element && z->form.kind != Kind::row))
    return false;
  const auto fallback = l.operand(2, z->form.dtype, z->form);
  if (!fallback) return false;
  const Ref bad = l.apply(Opcode::record_match, {f->value}, {(*n)[1], (*n)[2]});
  return replaced_rows(l, 0, *z, bad, *fallback) &&
         l.result(1, f->form, push_known(l, f->value, bad, 13, {(*n)[0], 1, (*n)[3], (*n)[4]}));
}

/// take_ok_p and take_err_p: flags, z, fill
bool take(Lowering& l, bool err) {
  const auto f = record(l, 0), z = l.lowered(1);
  if (!f || !z || (z->form.kind != Kind::element && z->form.kind != Kind::row)) return false;
  const auto fill = l.operand(2, z->form.dtype, z->form);
  if (!fill) return false;
  const Ref is_err = l.apply(Opcode::record_is_err, {f->value});
  return replaced_rows(l, 0, *z, err ? l.map(at::kBool, "!a", {is_err}) : is_err, *fill);
}

/// replace: z, value, nan, posinf, neginf, values, integers
bool replace(Lowering& l) {
  const auto z = l.lowered(0);
  if (!z || (z->form.kind != Kind::element && z->form.kind != Kind::row) || !at::isFloatingType(z->form.dtype))
    return false;
  const auto value = l.operand(1, z->form.dtype, z->form);
  const auto nan = l.flag(2), positive = l.flag(3), negative = l.flag(4);
  const auto *values = l.constant(5), *integers = l.constant(6);
  if (!value || !nan || !positive || !negative || !values || !values->isDoubleList() || !integers ||
      !integers->isIntList())
    return false;
  std::optional<Ref> hit;
  const auto add_test = [&](const char* test, std::vector<Ref> operands) {
    const Ref one = l.step(test, operands);
    hit = hit ? l.step("a | b", {*hit, one}) : one;
  };
  if (*nan) add_test("is_nan(a)", {z->value});
  if (*positive && *negative) add_test("is_inf(a)", {z->value});
  if (*positive != *negative) add_test(*positive ? "a == inf" : "a == -inf", {z->value});
  const auto add_target = [&](const auto& target) {
    if (!flags::check::holds(z->form.dtype, target)) return true;  // what no element can be
    const auto literal = l.number(c10::IValue(target), z->form.dtype);
    if (literal) add_test("a == b", {z->value, *literal});
    return literal.has_value();
  };
  for (const double target : values->toDoubleVector())
    if (!add_target(target)) return false;
  for (const int64_t target : integers->toIntVector())
    if (!add_target(target)) return false;
  return l.result(0, z->form, hit ? l.apply(Opcode::select, {*hit, *value, z->value}) : z->value);
}

/// select: a condition of shape (N) or (), and two tensors of one form.
bool select(Lowering& l) {
  const auto condition = l.lowered(0), a = l.lowered(1), b = l.lowered(2);
  if (!condition || !a || !b || condition->form.dtype != at::kBool || a->form.kind == Kind::number) return false;
  const bool rows = condition->form.kind == Kind::row && condition->form.rank == 1;
  if (!rows && condition->form.kind != Kind::number) return false;
  const bool same = a->form.kind == b->form.kind && a->form.dtype == b->form.dtype && a->form.rank == b->form.rank &&
                    a->form.trailing == b->form.trailing && a->form.words == b->form.words;
  if (!same) return false;
  const Opcode opcode = a->form.kind == Kind::record ? Opcode::select : Opcode::pick;
  return l.result(0, a->form, l.apply(opcode, {condition->value, a->value, b->value}));
}

bool pass_on(Lowering& l) {
  const auto z = l.lowered(0);
  return z && z->form.kind != Kind::number && l.result(0, z->form, z->value);
}

/// The same of a tensor that needs no broadcasting.
bool pass_on_elements(Lowering& l) {
  const auto a = l.lowered(0), b = l.lowered(1);
  const bool same = a && b && a->form.kind == b->form.kind && a->form.rank == b->form.rank &&
                    a->form.trailing == b->form.trailing && a->form.extent == b->form.extent;
  return same && pass_on(l);
}

}  // namespace

const LowerTable& flags_operators() {
  static const auto& table = *new LowerTable{
      {"triage::new", fresh},
      {"triage::push", push_codes},
      {"triage::push.where", push_where},
      {"triage::push.scalar", push_scalar},
      {"triage::merge", merge},
      {"triage::clear", clear},
      {"triage::is_ok",
       [](Lowering& l) {
         const auto f = record(l, 0);
         return f && l.result(0, row_form(at::kBool),
                              l.map(at::kBool, "!a", {l.as_step(l.apply(Opcode::record_is_err, {f->value}))}));
       }},
      {"triage::is_err", is_err},
      {"triage::has_critical", [](Lowering& l) { return has(l, 0xFFFF, 3); }},
      {"triage::has_code",
       [](Lowering& l) {
         const auto code = l.integer(1);
         return code && has(l, codes_at(1, 1, *code));
       }},
      {"triage::has_domain",
       [](Lowering& l) {
         const auto domain = l.integer(1);
         return domain && has(l, codes_at(0xF, 4, *domain));
       }},
      {"triage::match", ask<Opcode::record_match>},
      {"triage::count_errors", ask<Opcode::record_count_errors>},
      {"triage::max_severity", ask<Opcode::record_max_severity>},
      {"triage::get_first_code", ask<Opcode::record_first_code>},
      {"triage::get_first_location", ask<Opcode::record_first_location>},
      {"triage::get_first_severity", ask<Opcode::record_first_severity>},
      {"triage::get_slot",
       [](Lowering& l) {
         const auto f = record(l, 0);
         const auto index = l.integer(1);
         return f && index && *index >= 0 && *index < slots_of(f->form) && ask<Opcode::record_slot>(l);
       }},
      {"triage::flag_nan", [](Lowering& l) { return detect(l, true, false); }},
      {"triage::flag_inf", [](Lowering& l) { return detect(l, false, true); }},
      {"triage::flag_nan_and_inf", [](Lowering& l) { return detect(l, true, true); }},
      {"triage::flag_oob_indices", detect_indices},
      {"triage::fix", fix},
      {"triage::fix.scalar", fix},
      {"triage::take_ok_p", [](Lowering& l) { return take(l, /*err=*/false); }},
      {"triage::take_err_p", [](Lowering& l) { return take(l, /*err=*/true); }},
      {"triage::replace", replace},
      {"triage::select", select},
      {"triage::guard_grad", pass_on},
      {"triage::guard_grad.elements", pass_on_elements},
  };
  return table;
}

}  // namespace triage::fused
