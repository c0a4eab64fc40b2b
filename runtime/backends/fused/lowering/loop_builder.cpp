// The values of loops as they are made, opcode by opcode, and what is left of them at the end.
#include <fmt/format.h>
#include <triage/error.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/backends/fused/loop_numbers.h"
#include "runtime/backends/fused/lowering/loop_builder.h"
#include "runtime/messages/assert.h"

namespace triage::fused {

using ValueKind = LoopValue::Kind;

Ref LoopBuilder::add_value(LoopValue made) {
  made.cut &= !is_real(made.type);
  made.line = line_;
  made.on_host = can_be_on_host(loops_.values, made);
  for (const Ref operand : made.operands)
    made.depth = std::max(made.depth, value(operand).depth + (value(operand).kind == ValueKind::reduce));
  loops_.values.push_back(std::move(made));
  return static_cast<Ref>(loops_.values.size() - 1);
}

/// The value that `spread` has put in all places.
Ref LoopBuilder::bare(Ref ref) const {
  const LoopValue& one = value(ref);
  return one.is(Opcode::copy) && value(one.operands[0]).place < one.place ? one.operands[0] : ref;
}

/// Puts what was spread in the place of operands. False where no operand is left then that tells the places.
bool LoopBuilder::takes_bare(std::vector<Ref>& operands) const {
  const auto place = [&](const std::vector<Ref>& refs) {
    Place most = Place::number;
    for (const Ref ref : refs) most = std::max(most, value(ref).place);
    return most;
  };
  std::vector<Ref> taken = operands;
  for (Ref& ref : taken) ref = bare(ref);
  const bool told = place(taken) == place(operands);
  if (!told || joint_extent(taken) == joint_extent(operands)) operands = std::move(taken);
  return told;
}

Ref LoopBuilder::apply(Opcode opcode, std::vector<Ref> operands, std::vector<int64_t> numbers,
                       std::optional<Type> asked) {
  const OpcodeRow& row = row_of(opcode);
  if (opcode != Opcode::copy) {
    TensorForm shape;  // of the result
    shape.extent = joint_extent(operands);
    if (shape.extent >= 0) shape.kind = TensorForm::Kind::element;
    if (!takes_bare(operands)) return spread(apply(opcode, std::move(operands), std::move(numbers), asked), shape);
  }
  std::vector<Type> types;
  LoopValue made;
  made.place = Place::number;
  made.opcode = opcode;
  made.expensive = row.slow;
  made.cut = opcode == Opcode::truncate;
  for (const Ref ref : operands) {
    const LoopValue& from = value(ref);
    types.push_back(from.type);
    made.place = std::max(made.place, from.place);
    made.slots = std::max(made.slots, from.slots);
    made.expensive |= from.inner && from.expensive;
    made.cut |= from.cut;
  }
  const auto type = result_type(opcode, types, asked);
  if (!type || numbers.size() != row.numbers)
    throw GraphError(fmt::format("fused: '{}' does not take these operands", row.name));
  made.type = *type;
  made.dtype = opcode == Opcode::to_half       ? at::kHalf
               : opcode == Opcode::to_bfloat16 ? at::kBFloat16
               : row.exact                     ? joint_dtype(row, operands)
                                               : dtype_of(*type);
  if (*type == Type::record)
    made.place = Place::row;
  else
    made.slots = 0, made.extent = joint_extent(operands);
  if (opcode == Opcode::record_empty) made.slots = static_cast<int32_t>(numbers[0]);
  made.operands = std::move(operands);
  made.numbers = std::move(numbers);
  return add_value(std::move(made));
}

/// Of a result that is one of its operands: the dtype that all of these have, or that it is computed in.
at::ScalarType LoopBuilder::joint_dtype(const OpcodeRow& row, const std::vector<Ref>& operands) const {
  std::set<at::ScalarType> dtypes;
  for (size_t i = 0; i < operands.size(); ++i)
    if (row.signature[i] == row.signature.back()) dtypes.insert(value(operands[i]).dtype);
  return dtypes.size() == 1 ? *dtypes.begin() : dtype_of(value(operands.back()).type);
}

/// Where there is a value of `operands`, each in its own place: that of the elements among them, or whose segments and
/// positions they are.
int32_t LoopBuilder::joint_extent(const std::vector<Ref>& operands) const {
  std::set<int32_t> used;
  for (const Ref ref : operands)
    if (value(ref).place == Place::element) used.insert(extents_.root(value(ref).extent));
  if (used.size() < 2) return used.empty() ? -1 : *used.begin();
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const RowExtent& whole = loops_.extents[i];
    const auto is_part = [&](int32_t extent) {
      return extent == static_cast<int32_t>(i) || extent == whole.segments || extent == whole.positions;
    };
    if (whole.segments >= 0 && whole.same < 0 && std::all_of(used.begin(), used.end(), is_part))
      return static_cast<int32_t>(i);
  }
  throw GraphError("fused: values of unlike positions in one operation");
}

Ref LoopBuilder::as_step(Ref ref) {
  loops_.values[static_cast<size_t>(ref)].inner = true;
  return ref;
}

/// The formula, each of its steps a value. Numbers take the type of what they meet; where only numbers meet, that of
/// the first operand that is no condition.
Ref LoopBuilder::steps(const Formula& formula, const std::vector<Ref>& operands) {
  using FormulaStep = Formula::FormulaStep;
  Type common = Type::boolean;
  for (const size_t operand : formula.operands())
    if (const Type type = value(operands.at(operand)).type; common == Type::boolean) common = type;
  std::vector<Ref> made(formula.steps.size(), -1);  // numbers: none, until they meet another value
  const auto number = [&](const FormulaStep& step, Type type) {
    return as_step(literal(type, is_real(type) ? bits_of_real(type, step.number) : static_cast<int64_t>(step.number)));
  };
  for (size_t i = 0; i < made.size(); ++i) {
    const FormulaStep& step = formula.steps[i];
    if (step.kind == FormulaStep::Kind::operand) made[i] = operands[step.operand];
    if (step.kind != FormulaStep::Kind::operation) continue;
    const std::string_view letters = row_of(step.opcode).signature;
    std::vector<Ref> taken;
    for (size_t k = 0; k < step.steps.size(); ++k) {
      Type type = common;
      for (size_t other = 0; other < step.steps.size(); ++other)
        if (letters[other] == letters[k] && made[step.steps[other]] >= 0) type = value(made[step.steps[other]]).type;
      const size_t from = step.steps[k];
      taken.push_back(made[from] >= 0 ? made[from] : number(formula.steps[from], type));
    }
    made[i] = as_step(apply(step.opcode, std::move(taken)));
  }
  return made.back() >= 0 ? made.back() : number(formula.steps.back(), common);
}

Ref LoopBuilder::map(at::ScalarType dtype, const Formula& formula, const std::vector<Ref>& operands) {
  const size_t before = loops_.values.size();
  const Ref made = in_dtype(steps(formula, operands), dtype);
  if (static_cast<size_t>(made) >= before) loops_.values[static_cast<size_t>(made)].inner = false;
  return made;
}

Ref LoopBuilder::reduce(Join join, Ref element, int32_t segments) {
  const LoopValue& one = value(element);
  TRIAGE_ASSERT(one.place == Place::element && (one.type == Type::boolean) == (join == Join::any));
  LoopValue made;
  made.kind = ValueKind::reduce;
  made.place = segments < 0 ? Place::row : Place::element;
  made.extent = segments;
  made.join = join;
  made.type = join == Join::any ? Type::u32 : one.type;  // as wide as floats: loops with both are vectorised
  made.dtype = dtype_of(made.type);
  made.operands = {element};
  made.cut = one.cut;
  return add_value(std::move(made));
}

Ref LoopBuilder::classify(Ref element, Ref largest) {
  LoopValue made;
  made.kind = ValueKind::classify;
  made.type = Type::non_finite;
  made.operands = {element, largest};
  return add_value(std::move(made));
}

Ref LoopBuilder::spread(Ref one, const TensorForm& shape) {
  const Ref made = apply(Opcode::copy, {one});
  LoopValue& copy = loops_.values.back();
  copy.place = shape.kind == TensorForm::Kind::element ? Place::element : Place::row;
  copy.extent = shape.extent;
  copy.on_host = false;
  return made;
}

Ref LoopBuilder::count(Ref element, int32_t segments) {
  const int32_t extent = extents_.root(value(element).extent);
  return apply(Opcode::count, {}, {segments < 0 ? extent : extents_.at(extent).positions});
}

Ref LoopBuilder::position(Ref element, int32_t segments) {
  const Ref made = as_step(apply(Opcode::position, {}, {segments}));
  loops_.values.back().place = Place::element;
  loops_.values.back().extent = value(element).extent;
  return made;
}

Ref LoopBuilder::host_number(HostNumber made, at::ScalarType dtype, std::vector<Ref> operands) {
  TensorForm form;
  LoopValue value;
  value.kind = ValueKind::input;
  value.place = Place::number;
  value.dtype = form.dtype = dtype;
  value.type = computed_type(dtype).value();
  value.slot = static_cast<int32_t>(loops_.inputs.size());
  value.operands = std::move(operands);
  loops_.inputs.push_back({SIZE_MAX, form, false, std::make_shared<HostNumber>(std::move(made))});
  return add_value(std::move(value));
}

Ref LoopBuilder::size_number(int32_t extent, int32_t dim) {
  HostNumber size;
  size.extent = extent;
  size.dim = dim;
  size.text = extent < 0 ? "the number of rows" : "a size";
  return host_number(std::move(size), at::kLong, {});
}

bool LoopBuilder::in_segments(Ref ref) const {
  std::vector<bool> known(static_cast<size_t>(ref) + 1);  // operands come before what reads them
  for (Ref i = 0; i <= ref; ++i) {
    const LoopValue& one = value(i);
    if (one.place != Place::element || one.kind == ValueKind::input) continue;
    known[static_cast<size_t>(i)] =
        one.kind == ValueKind::reduce || std::any_of(one.operands.begin(), one.operands.end(), [&](Ref operand) {
          return value(operand).place == Place::element &&
                 (!extents_.are_same(value(operand).extent, one.extent) || known[static_cast<size_t>(operand)]);
        });
  }
  return known[static_cast<size_t>(ref)];
}

/// What was computed from such elements is computed once more: so only conditions, which no loop keeps.
std::optional<PickedRows> LoopBuilder::picked_rows(Ref element) {
  const auto found = picked_rows_.find(element);
  return found != picked_rows_.end() ? found->second : picked_rows_[element] = find_picked_rows(element);
}

std::optional<PickedRows> LoopBuilder::find_picked_rows(Ref element) {
  const LoopValue from = value(element);
  if (from.kind != ValueKind::map || from.place != Place::element) return std::nullopt;
  const auto is_of_rows = [&](Ref ref) { return value(ref).place != Place::element; };
  if (from.opcode == Opcode::pick) {
    const Refs& parts = from.operands;
    const LoopValue& kept = value(parts[2]);
    const bool picks_rows = value(parts[0]).place == Place::row && is_of_rows(parts[1]) &&
                            kept.place == Place::element && extents_.are_same(kept.extent, from.extent);
    return picks_rows ? std::optional(PickedRows{parts[0], parts[1], parts[2]}) : std::nullopt;
  }
  if (from.type != Type::boolean || from.opcode == Opcode::position) return std::nullopt;
  LoopValue kept = from, taken = from;
  taken.place = Place::number;
  taken.extent = -1;
  Ref rows = -1;
  std::vector<Ref> of_kept, of_taken;
  for (const Ref operand : from.operands) {
    const auto part = is_of_rows(operand) ? std::optional(PickedRows{rows, operand, operand}) : picked_rows(operand);
    if (!part || (rows >= 0 && part->taken != rows)) return std::nullopt;
    rows = part->taken;
    of_kept.push_back(part->kept);
    of_taken.push_back(part->value);
    taken.place = std::max(taken.place, value(part->value).place);
  }
  if (rows < 0) return std::nullopt;
  kept.operands = std::move(of_kept);
  taken.operands = std::move(of_taken);
  const Ref in_taken = add_value(std::move(taken));
  return PickedRows{rows, as_step(in_taken), as_step(add_value(std::move(kept)))};
}

// --- conversions -----------------------------------------------------------------------------------------------------

Ref LoopBuilder::convert(Ref from, Type type) {
  return apply(value(from).cut && is_real(type) ? Opcode::whole_as_real : Opcode::convert, {from}, {}, type);
}

Ref LoopBuilder::converted(Ref from, Type type) {
  return value(from).type == type ? from : as_step(convert(from, type));
}

/// The same value as a tensor of that dtype would hold it.
Ref LoopBuilder::in_dtype(Ref from, at::ScalarType dtype) {
  if (value(from).dtype == dtype) return from;
  if (dtype == at::kHalf) return apply(Opcode::to_half, {converted(from, Type::f32)});
  if (dtype == at::kBFloat16) return apply(Opcode::to_bfloat16, {converted(from, Type::f32)});
  return convert(from, computed_type(dtype).value());
}

// --- the end ---------------------------------------------------------------------------------------------------------

namespace {

/// All that makes two values one, as numbers.
std::vector<int64_t> key_of(const LoopValue& value) {
  std::vector<int64_t> key{static_cast<int64_t>(value.kind),
                           static_cast<int64_t>(value.place),
                           static_cast<int64_t>(value.opcode),
                           static_cast<int64_t>(value.join),
                           static_cast<int64_t>(value.type),
                           static_cast<int64_t>(value.dtype),
                           value.slots,
                           value.extent,
                           value.slot};
  key.insert(key.end(), value.numbers.begin(), value.numbers.end());
  for (const Ref operand : value.operands) key.push_back(operand);
  return key;
}

std::vector<bool> needed_values(const Loops& loops) {
  std::vector<bool> needed(loops.values.size());
  for (const LoopOutput& output : loops.outputs) needed[static_cast<size_t>(output.value)] = true;
  for (const NumberBound& bound : loops.bounds) needed[static_cast<size_t>(bound.value)] = true;
  for (const SizeCheck& check : loops.size_checks) needed[static_cast<size_t>(check.number)] = true;
  for (size_t i = needed.size(); i-- > 0;) {
    const LoopValue& value = loops.values[i];
    if (value.kind == ValueKind::input) needed[i] = true;  // the caller lays it out
    if (!needed[i]) continue;
    for (const Ref operand : value.operands) {
      TRIAGE_ASSERT(operand >= 0 && static_cast<size_t>(operand) < i);
      needed[static_cast<size_t>(operand)] = true;
    }
  }
  return needed;
}

}  // namespace

void share_equal_values(Loops& loops) {
  const std::vector<bool> needed = needed_values(loops);
  const auto old = std::move(loops.values);
  loops.values.clear();
  std::vector<Ref> now(old.size(), -1);
  std::map<std::vector<int64_t>, Ref> known;
  for (size_t i = 0; i < old.size(); ++i) {
    if (!needed[i]) continue;
    LoopValue value = old[i];
    for (Ref& operand : value.operands) operand = now[static_cast<size_t>(operand)];
    const auto [found, fresh] = known.emplace(key_of(value), static_cast<Ref>(loops.values.size()));
    now[i] = found->second;
    if (fresh) {
      loops.values.push_back(std::move(value));
    } else {
      LoopValue& first = loops.values[static_cast<size_t>(now[i])];
      first.expensive |= value.expensive;
      first.inner &= value.inner;
    }
  }
  for (LoopValue& value : loops.values) value.expensive &= !value.inner;  // the result it leads to is
  for (LoopOutput& output : loops.outputs) output.value = now[static_cast<size_t>(output.value)];
  for (NumberBound& bound : loops.bounds) bound.value = now[static_cast<size_t>(bound.value)];
  for (SizeCheck& check : loops.size_checks) check.number = now[static_cast<size_t>(check.number)];
}

}  // namespace triage::fused
