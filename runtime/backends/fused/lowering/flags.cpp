// Operations on flags: the record of a row is a value like any other.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <runtime/flags/checks.h>
#include <runtime/flags/forms.h>
#include <triage/layout.h>

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

/// Whether a record has room for so many slots, and they for the policy: capture saw to it, a graph that was read from text
/// may say anything.
bool fits(const TensorForm& form, int64_t num_slots, int64_t policy) {
  return num_slots >= (policy & TRACK_OVERFLOW ? 2 : 1) && num_slots <= slots_of(form);
}

bool record_result(Lowering& l, size_t index, const TensorForm& form, std::string code, std::vector<Ref> operands) {
  return l.result(index, form, l.map_record(slots_of(form), std::move(code), std::move(operands)));
}

/// The form of new records, and what makes an empty one.
std::pair<TensorForm, std::string> empty_record(Lowering& l, int64_t num_slots, at::ScalarType carrier) {
  const TensorForm form = l.record_form(flags::check::words_for(num_slots, carrier), carrier);
  flags::KnownForms::add(carrier, form.words);  // a graph that was read from a file is the first to name it
  return {form, fmt::format("Record<{}>::empty()", slots_of(form))};
}

/// A record that begins with `flags` where argument `argument` has them, else empty.
std::optional<Lowered> start(Lowering& l, size_t argument, int64_t num_slots, at::ScalarType carrier) {
  if (!l.is_none(argument)) return record(l, argument);
  const auto [form, code] = empty_record(l, num_slots, carrier);
  return Lowered{form, l.map_record(slots_of(form), code, {})};
}

bool fresh(Lowering& l) {  // new(like, num_slots, dtype)
  const auto like = l.lowered(0);
  const auto numbers = integers(l, 1, 2);
  if (!like || !numbers || like->form.kind == Kind::number) return false;
  const auto [form, code] = empty_record(l, (*numbers)[0], static_cast<at::ScalarType>((*numbers)[1]));
  return record_result(l, 0, form, code, {});
}

bool push_codes(Lowering& l) {  // flags, code, location, severity, num_slots, policy
  const auto f = record(l, 0);
  const auto codes = l.lowered(1);
  const auto n = integers(l, 2, 4);
  if (!f || !n || !fits(f->form, (*n)[2], (*n)[3]) || !codes || codes->form.kind != Kind::row ||
      codes->form.rank != 1 || !at::isIntegralType(codes->form.dtype, false))
    return false;
  const std::string code =
      fmt::format("{{0}}.pushed_if({{1}} != 0, {}, {{1}}, {}, {}, Recording({}))", (*n)[2], (*n)[0], (*n)[1], (*n)[3]);
  return record_result(l, 0, f->form, code, {f->value, codes->value});
}

bool push_where(Lowering& l) {  // flags, code, location, severity, where, num_slots, policy
  const auto f = record(l, 0);
  const auto n = integers(l, 1, 3), how = integers(l, 5, 2);
  const auto where = mask(l, 4);
  if (!f || !n || !how || !where || !fits(f->form, (*how)[0], (*how)[1])) return false;
  const std::string code = fmt::format("{{0}}.pushed_if({{1}}, {}, {}, {}, {}, Recording({}))", (*how)[0], (*n)[0],
                                       (*n)[1], (*n)[2], (*how)[1]);
  return record_result(l, 0, f->form, code, {f->value, *where});
}

bool push_scalar(Lowering& l) {  // flags, code, location, severity, num_slots, policy
  const auto f = record(l, 0);
  const auto n = integers(l, 1, 5);
  if (!f || !n || !fits(f->form, (*n)[3], (*n)[4])) return false;
  const std::string code =
      fmt::format("{{0}}.pushed({}, {}, {}, {}, Recording({}))", (*n)[3], (*n)[0], (*n)[1], (*n)[2], (*n)[4]);
  return record_result(l, 0, f->form, code, {f->value});
}

bool merge(Lowering& l) {  // flags, other, num_slots, policy
  const auto f = record(l, 0), other = record(l, 1);
  const auto n = integers(l, 2, 2);
  if (!f || !other || !n || !fits(f->form, (*n)[0], (*n)[1]) || f->form.words != other->form.words ||
      f->form.dtype != other->form.dtype)
    return false;
  return record_result(l, 0, f->form, fmt::format("{{0}}.merged({{1}}, {}, Recording({}))", (*n)[0], (*n)[1]),
                       {f->value, other->value});
}

bool clear(Lowering& l) {
  const auto f = record(l, 0);
  const auto code = l.integer(1);
  return f && code && record_result(l, 0, f->form, fmt::format("{{0}}.cleared({})", *code), {f->value});
}

/// An answer a row: `code` asks the record {0}; its numbers are the integers from argument 1 on.
bool ask(Lowering& l, at::ScalarType dtype, const char* method, size_t numbers = 0) {
  const auto f = record(l, 0);
  const auto n = integers(l, 1, numbers);
  if (!f || !n) return false;
  std::string code = fmt::format("{{0}}.{}(", method);
  for (size_t i = 0; i < n->size(); ++i) code += (i ? ", " : "") + std::to_string((*n)[i]);
  return l.result(0, l.row_form(dtype), l.map(dtype, code + ")", {f->value}));
}

/// flag_nan and its kind: z, flags, location, num_slots, policy, dtype
bool detect(Lowering& l, bool nan, bool inf) {
  const auto z = l.lowered(0);
  const auto n = integers(l, 2, 4);
  if (!z || !n || (z->form.kind != Kind::element && z->form.kind != Kind::row)) return false;
  const auto f = start(l, 1, (*n)[1], static_cast<at::ScalarType>((*n)[3]));
  if (!f || !fits(f->form, (*n)[1], (*n)[2])) return false;
  const auto at_location = [&](const char* where, int64_t code) {
    return fmt::format(".pushed_if({}, {}, {}, {}, 3, Recording({}))", where, (*n)[1], code, (*n)[0], (*n)[2]);
  };
  if (!at::isFloatingType(z->form.dtype)) return l.result(0, f->form, f->value);
  if (z->form.kind == Kind::row) {
    std::string code = "{0}";
    if (nan) code += at_location("is_nan({1})", 1);
    if (inf) code += at_location("is_inf({1})", 2);
    return record_result(l, 0, f->form, code, {f->value, z->value});
  }
  std::string code = "{0}";
  if (l.in_segments(z->value)) {  // such a row cannot be looked at again
    std::vector<Ref> found{f->value};
    const auto search = [&](const char* test, int64_t what) {
      code += at_location(fmt::format("{{{}}} != 0", found.size()).c_str(), what);
      found.push_back(l.reduce(at::kInt, "uint32_t", test, "|", "0", z->value));
    };
    if (nan) search("is_nan({0})", 1);
    if (inf) search("is_inf({0})", 2);
    return record_result(l, 0, f->form, code, std::move(found));
  }
  const bool wide = z->form.dtype == at::kDouble;
  const Ref largest = l.reduce(at::kLong, wide ? "int64_t" : "int32_t", "magnitude_bits({0})", "max", "0", z->value);
  const Ref found = l.classify(z->value, largest);
  if (nan) code += at_location("{1}.nan", 1);
  if (inf) code += at_location("{1}.inf", 2);
  return record_result(l, 0, f->form, code, {f->value, found});
}

/// flag_oob_indices: ids, num_embeddings, flags, location, num_slots, policy, dtype
bool detect_indices(Lowering& l) {
  const auto ids = l.lowered(0);
  const auto limit = l.integer(1);
  const auto n = integers(l, 3, 4);
  if (!ids || !limit || !n || !at::isIntegralType(ids->form.dtype, false)) return false;
  const auto f = start(l, 2, (*n)[1], static_cast<at::ScalarType>((*n)[3]));
  if (!f || !fits(f->form, (*n)[1], (*n)[2])) return false;
  const std::string outside = fmt::format("((int64_t){{0}} < 0) | ((int64_t){{0}} >= {})", *limit);
  Ref found = -1;
  if (ids->form.kind == Kind::element)
    found = l.reduce(at::kInt, "uint32_t", outside, "|", "0", ids->value);
  else if (ids->form.kind == Kind::row)
    found = l.map(at::kBool, outside, {ids->value});
  if (found < 0) return false;
  const std::string code =
      fmt::format("{{0}}.pushed_if({{1}} != 0, {}, 5, {}, 2, Recording({}))", (*n)[1], (*n)[0], (*n)[2]);
  return record_result(l, 0, f->form, code, {f->value, found});
}

/// The rows where `taken` holds get `value`, the others keep z.
bool replaced_rows(Lowering& l, size_t index, const Lowered& z, Ref taken, Ref value) {
  return l.result(index, z.form, l.map(z.form.dtype, row_selection, {taken, value, z.value}));
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
  const Ref bad = l.map(at::kBool, fmt::format("{{0}}.match({}, {})", (*n)[1], (*n)[2]), {f->value});
  const std::string code =
      fmt::format("{{0}}.pushed_if({{1}}, {}, 13, {}, 1, Recording({}))", (*n)[3], (*n)[0], (*n)[4]);
  return replaced_rows(l, 0, *z, bad, *fallback) && record_result(l, 1, f->form, code, {f->value, bad});
}

/// take_ok_p and take_err_p: flags, z, fill
bool take(Lowering& l, const char* replaced) {
  const auto f = record(l, 0), z = l.lowered(1);
  if (!f || !z || (z->form.kind != Kind::element && z->form.kind != Kind::row)) return false;
  const auto fill = l.operand(2, z->form.dtype, z->form);
  return fill && replaced_rows(l, 0, *z, l.map(at::kBool, replaced, {f->value}), *fill);
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
  std::vector<Ref> operands{z->value, *value};
  std::string hit = fmt::format("is_replaced({{0}}, {}, {}, {})", *nan, *positive, *negative);
  const auto add_target = [&](const auto& target) {
    if (!flags::check::holds(z->form.dtype, target)) return true;  // what no element can be
    const auto literal = l.number(c10::IValue(target), z->form.dtype);
    if (!literal) return false;
    hit += fmt::format(" | ({{0}} == {{{}}})", operands.size());
    operands.push_back(*literal);
    return true;
  };
  for (const double target : values->toDoubleVector())
    if (!add_target(target)) return false;
  for (const int64_t target : integers->toIntVector())
    if (!add_target(target)) return false;
  return l.result(0, z->form, l.map(z->form.dtype, "(" + hit + ") ? {1} : {0}", std::move(operands)));
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
  std::vector<Ref> operands{condition->value, a->value, b->value};
  if (a->form.kind == Kind::record) return record_result(l, 0, a->form, "{0} ? {1} : {2}", std::move(operands));
  return l.result(0, a->form, l.map(a->form.dtype, row_selection, std::move(operands)));
}

bool pass_on(Lowering& l) {
  const auto z = l.lowered(0);
  return z && z->form.kind != Kind::number && l.result(0, z->form, z->value);
}

}  // namespace

const LowerTable& flags_operators() {
  static const LowerTable table = {
      {"triage::new", fresh},
      {"triage::push", push_codes},
      {"triage::push.where", push_where},
      {"triage::push.scalar", push_scalar},
      {"triage::merge", merge},
      {"triage::clear", clear},
      {"triage::is_ok",
       [](Lowering& l) {
         const auto f = record(l, 0);
         return f && l.result(0, l.row_form(at::kBool), l.map(at::kBool, "!{0}.is_err()", {f->value}));
       }},
      {"triage::is_err", [](Lowering& l) { return ask(l, at::kBool, "is_err"); }},
      {"triage::has_critical", [](Lowering& l) { return ask(l, at::kBool, "has_critical"); }},
      {"triage::has_code", [](Lowering& l) { return ask(l, at::kBool, "has_code", 1); }},
      {"triage::has_domain", [](Lowering& l) { return ask(l, at::kBool, "has_domain", 1); }},
      {"triage::match", [](Lowering& l) { return ask(l, at::kBool, "match", 2); }},
      {"triage::count_errors", [](Lowering& l) { return ask(l, at::kInt, "count_errors"); }},
      {"triage::max_severity", [](Lowering& l) { return ask(l, at::kLong, "max_severity"); }},
      {"triage::get_first_code", [](Lowering& l) { return ask(l, at::kInt, "first_code"); }},
      {"triage::get_first_location", [](Lowering& l) { return ask(l, at::kInt, "first_location"); }},
      {"triage::get_first_severity", [](Lowering& l) { return ask(l, at::kInt, "first_severity"); }},
      {"triage::get_slot",
       [](Lowering& l) {
         const auto f = record(l, 0);
         const auto index = l.integer(1);
         return f && index && *index >= 0 && *index < slots_of(f->form) && ask(l, at::kLong, "slot", 1);
       }},
      {"triage::flag_nan", [](Lowering& l) { return detect(l, true, false); }},
      {"triage::flag_inf", [](Lowering& l) { return detect(l, false, true); }},
      {"triage::flag_nan_and_inf", [](Lowering& l) { return detect(l, true, true); }},
      {"triage::flag_oob_indices", detect_indices},
      {"triage::fix", fix},
      {"triage::fix.scalar", fix},
      {"triage::take_ok_p", [](Lowering& l) { return take(l, "{0}.is_err()"); }},
      {"triage::take_err_p", [](Lowering& l) { return take(l, "!{0}.is_err()"); }},
      {"triage::replace", replace},
      {"triage::select", select},
      {"triage::guard_grad", pass_on},
  };
  return table;
}

}  // namespace triage::fused
