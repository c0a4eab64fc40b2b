#include "runtime/backends/fused/lowering/lowering.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "runtime/flags/checks.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/describe.h"

namespace triage::fused {
namespace {

using graph::Node;
using graph::Value;
using Kind = TensorForm::Kind;

/// Bool, integers, floats: in the order of promotion.
int category(at::ScalarType dtype) {
  if (dtype == at::kBool) return 0;
  return at::isIntegralType(dtype, false) ? 1 : 2;
}

at::ScalarType dtype_of(const c10::IValue& number) {
  if (number.isBool()) return at::kBool;
  return number.isInt() ? at::kLong : at::kDouble;
}

template <class T>
bool survives(double number) {
  return std::isnan(number) || static_cast<double>(static_cast<T>(number)) == number;
}

std::string rounded(at::ScalarType dtype, const std::string& code) {
  if (dtype == at::kHalf) return "as_half(" + code + ")";
  if (dtype == at::kBFloat16) return "as_bfloat16(" + code + ")";
  return code;
}

std::string real_literal(double number, bool single) {
  if (std::isnan(number)) return single ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(number)) return std::string(number < 0 ? "-" : "") + (single ? "__builtin_inff()" : "__builtin_inf()");
  return fmt::format("({:a}{})", number, single ? "f" : "");
}

/// Operators that take numbers by Scalar::to, which raises for those beyond the range of the dtype; the others wrap them around.
bool refuses_numbers(const Node& node) {
  static const std::set<std::string> names = {"clamp",
                                              "clamp_min",
                                              "clamp_max",
                                              "hardtanh",
                                              "threshold",
                                              "leaky_relu",
                                              "elu",
                                              "where",
                                              "softplus",
                                              "masked_fill",
                                              "full_like",
                                              "pow",
                                              "threshold_backward",
                                              "elu_backward",
                                              "hardtanh_backward",
                                              "leaky_relu_backward",
                                              "softplus_backward"};
  const std::string& name = node.op.operator_name().name;
  return name.rfind("aten::", 0) == 0 && names.count(name.substr(6));
}

/// Whether every number of dtype `from` is within the range of `to`.
bool is_within(at::ScalarType from, at::ScalarType to) {
  if (from == to || from == at::kBool) return true;
  if (at::isFloatingType(to)) return to == at::kDouble || from != at::kDouble;
  return to != at::kByte && c10::elementSize(from) < c10::elementSize(to);
}

/// Whether ATen computes values of dtype `from` in `to`, and C++ converts them as it does.
bool promotes(at::ScalarType from, at::ScalarType to) {
  return to != at::kHalf && to != at::kBFloat16 && at::promote_types(from, to) == to;
}

/// Equal computations become one, and what no output needs goes.
void share_equal_values(Loops& loops) {
  const auto old = std::move(loops.values);
  std::vector<bool> needed(old.size());
  for (const LoopOutput& output : loops.outputs) needed[static_cast<size_t>(output.value)] = true;
  for (size_t i = old.size(); i-- > 0;) {
    if (old[i].kind == LoopValue::Kind::input) needed[i] = true;  // the caller lays it out
    if (!needed[i]) continue;
    for (const Ref operand : old[i].operands) needed[static_cast<size_t>(operand)] = true;
  }
  loops.values.clear();
  std::vector<Ref> now(old.size(), -1);
  std::map<std::string, Ref> known;
  for (size_t i = 0; i < old.size(); ++i) {
    if (!needed[i]) continue;
    LoopValue value = old[i];
    for (Ref& operand : value.operands) operand = now[static_cast<size_t>(operand)];
    const std::string text =
        fmt::format("{} {} {} {} {} {} {} {} {} {}", static_cast<int>(value.kind), static_cast<int>(value.place),
                    static_cast<int>(value.dtype), value.extent, value.slot, value.type, value.code, value.join,
                    value.start, fmt::join(value.operands, ","));
    const auto [found, fresh] = known.emplace(text, static_cast<Ref>(loops.values.size()));
    now[i] = found->second;
    if (fresh)
      loops.values.push_back(std::move(value));
    else
      loops.values[static_cast<size_t>(now[i])].expensive |= value.expensive;
  }
  for (LoopOutput& output : loops.outputs) output.value = now[static_cast<size_t>(output.value)];
}

bool is_one(int64_t size) { return size == 1; }

std::vector<int64_t> without_ones(std::vector<int64_t> sizes) {
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(), is_one), sizes.end());
  return sizes;
}

}  // namespace

std::string computed_type(at::ScalarType dtype) {
  switch (dtype) {
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
      return "float";
    case at::kDouble:
      return "double";
    case at::kLong:
      return "int64_t";
    case at::kInt:
      return "int32_t";
    case at::kShort:
      return "int16_t";
    case at::kChar:
      return "int8_t";
    case at::kByte:
      return "uint8_t";
    case at::kBool:
      return "bool";
    default:
      return "";
  }
}

Lower find_lowering(const std::string& op) {
  static const std::map<std::string, Lower> table = [] {
    std::map<std::string, Lower> all;
    for (const auto* part : {&elementwise_operators(), &activations(), &divisions(), &reductions(), &flags_operators()})
      all.insert(part->begin(), part->end());
    return all;
  }();
  const auto found = table.find(op);
  return found == table.end() ? nullptr : found->second;
}

bool Lowering::add(const Node& node) {
  const Lower lower = find_lowering(graph::op_name(node.op));
  if (!lower) return false;
  const auto values = loops_.values.size(), inputs = loops_.inputs.size(), arguments = arguments_.size(),
             bounds = loops_.bounds.size();
  auto extents = loops_.extents;
  const auto fixed_batch = loops_.fixed_batch;
  added_.clear();
  node_ = &node;
  refuses_numbers_ = refuses_numbers(node);
  if (lower(*this)) return true;
  loops_.values.resize(values);
  loops_.inputs.resize(inputs);
  loops_.bounds.resize(bounds);
  loops_.extents = std::move(extents);
  loops_.fixed_batch = fixed_batch;
  arguments_.resize(arguments);
  for (const auto& [known, value] : added_) known->erase(value);
  for (auto column = columns_.begin(); column != columns_.end();)
    column = static_cast<size_t>(column->second) >= values ? columns_.erase(column) : std::next(column);
  return false;
}

void Lowering::remember(Known& known, const Value* value, Lowered lowered) {
  if (known.insert_or_assign(value, std::move(lowered)).second) added_.emplace_back(&known, value);
}

Loops Lowering::finish(const std::vector<const Value*>& outputs) {
  for (const Value* output : outputs) {
    const Lowered& lowered = tensors_.at(output);
    loops_.outputs.push_back({lowered.value, lowered.form});
  }
  share_equal_values(loops_);
  return std::move(loops_);
}

// --- arguments -------------------------------------------------------------------------------------------------------

const Value* Lowering::tensor(size_t argument) const { return node_->operands.at(argument).value(); }
const c10::IValue* Lowering::constant(size_t argument) const { return node_->operands.at(argument).constant(); }

bool Lowering::is_none(size_t argument) const {
  const auto* fixed = constant(argument);
  return fixed && fixed->isNone();
}

std::optional<int64_t> Lowering::integer(size_t argument) const {
  const auto* fixed = constant(argument);
  if (!fixed || !fixed->isInt()) return std::nullopt;
  return fixed->toInt();
}

std::optional<bool> Lowering::flag(size_t argument) const {
  const auto* fixed = constant(argument);
  if (!fixed || !fixed->isBool()) return std::nullopt;
  return fixed->toBool();
}

TensorForm Lowering::row_form(at::ScalarType dtype, int64_t rank) const {
  TensorForm form;
  form.kind = Kind::row;
  form.dtype = dtype;
  form.rank = rank;
  return form;
}

TensorForm Lowering::record_form(int64_t words, at::ScalarType carrier) const {
  TensorForm form;
  form.kind = Kind::record;
  form.dtype = carrier;
  form.rank = 2;
  form.words = words;
  return form;
}

/// What a tensor from outside is, by what was seen of it at capture.
std::optional<TensorForm> Lowering::form_of(const Value& value) {
  if (!value.meta || !value.meta->device.is_cpu()) return std::nullopt;
  const auto& sizes = value.meta->sizes;
  const at::ScalarType dtype = value.meta->dtype;
  if (computed_type(dtype).empty()) return std::nullopt;
  TensorForm form;
  form.dtype = dtype;
  if (sizes.empty()) return form;  // a number
  if (!value.is_flags) return batch_form(sizes, dtype);
  const bool records = sizes[0] == batch_ && sizes.size() == 2 && sizes[1] > 0;
  return records ? std::optional(record_form(sizes[1], dtype)) : std::nullopt;
}

std::optional<TensorForm> Lowering::batch_form(const std::vector<int64_t>& sizes, at::ScalarType dtype) {
  if (sizes.empty() || sizes[0] != batch_) return std::nullopt;
  if (std::all_of(sizes.begin() + 1, sizes.end(), is_one)) return row_form(dtype, static_cast<int64_t>(sizes.size()));
  TensorForm form;
  form.kind = Kind::element;
  form.dtype = dtype;
  form.rank = static_cast<int64_t>(sizes.size());
  form.trailing.assign(sizes.begin() + 1, sizes.end());
  form.extent = extent_of(without_ones(form.trailing));
  return form;
}

bool Lowering::fix_sizes(size_t argument, const std::vector<int64_t>& seen, const TensorForm& form) {
  const auto* asked = constant(argument);
  if (!asked || !asked->isIntList() || seen.empty() || seen[0] != batch_) return false;
  const auto sizes = asked->toIntVector();
  if (sizes.size() != seen.size()) return false;
  if (sizes[0] >= 0) loops_.fixed_batch = batch_;
  if (form.kind == Kind::element) fix_extent(form.extent);
  return true;
}

Ref Lowering::read(const Value& value, const TensorForm& form) {
  size_t argument = 0;
  while (argument < arguments_.size() && arguments_[argument] != &value) ++argument;
  if (argument == arguments_.size()) arguments_.push_back(&value);
  LoopValue input;
  input.kind = LoopValue::Kind::input;
  input.dtype = form.dtype;
  input.type = computed_type(form.dtype);
  input.slot = static_cast<int32_t>(loops_.inputs.size());
  switch (form.kind) {
    case Kind::number:
      input.place = Place::number;
      break;
    case Kind::element:
    case Kind::column:
      input.place = Place::element;
      input.extent = form.extent;
      break;
    case Kind::record:
      input.type = fmt::format("Record<{}>", form.words * static_cast<int64_t>(c10::elementSize(form.dtype)) / 2);
      break;
    case Kind::row:
      break;
  }
  loops_.inputs.push_back({argument, form});
  loops_.values.push_back(std::move(input));
  return static_cast<Ref>(loops_.values.size() - 1);
}

std::optional<Lowered> Lowering::lowered(size_t argument) {
  const Value* value = tensor(argument);
  if (!value) return std::nullopt;
  if (const auto found = tensors_.find(value); found != tensors_.end()) return found->second;
  if (const auto found = read_.find(value); found != read_.end()) return found->second;
  const auto form = form_of(*value);
  if (!form) return std::nullopt;
  const Lowered lowered{*form, read(*value, *form)};
  remember(read_, value, lowered);
  return lowered;
}

/// A tensor from outside that is the same for all rows, beside data of form `shape`.
std::optional<Ref> Lowering::as_column(const Value& value, const TensorForm& shape) {
  if (tensors_.count(&value) || !value.meta || !value.meta->device.is_cpu() || value.is_flags ||
      computed_type(value.meta->dtype).empty() || shape.kind == Kind::number || shape.kind == Kind::record)
    return std::nullopt;
  std::vector<int64_t> sizes = value.meta->sizes;
  TensorForm form;
  form.kind = Kind::column;
  form.dtype = value.meta->dtype;
  form.rank = static_cast<int64_t>(sizes.size());
  form.trailing = sizes;
  if (form.rank == shape.rank) {
    if (sizes[0] != 1 || batch_ == 1) return std::nullopt;  // data of the batch
    sizes.erase(sizes.begin());
  }
  const std::vector<int64_t> ones(static_cast<size_t>(shape.rank - 1), 1);
  const auto found = dims_of_own(sizes, shape.kind == Kind::row ? ones : shape.trailing);
  if (!found) return std::nullopt;
  if (all_are(*found, false)) {
    form.kind = Kind::number;
  } else if (const auto part = part_of(shape.extent, *found)) {
    form.extent = *part;
  } else {
    return std::nullopt;
  }
  const auto [known, fresh] = columns_.emplace(std::make_pair(&value, form.extent), -1);
  if (fresh) known->second = read(value, form);
  return known->second;
}

std::optional<TensorForm> Lowering::broadcast(std::initializer_list<size_t> list) {
  const auto& seen = node_->results[0]->meta;
  if (!seen) return std::nullopt;
  for (const size_t argument : list) {
    const Value* value = tensor(argument);
    // Sizes are matched from the last on: the first one of a tensor of fewer dimensions is not the batch, even if it is as large.
    if (!value || !value->meta || value->meta->sizes.size() != seen->sizes.size()) continue;
    const auto one = lowered(argument);
    if (one && (one->form.kind == Kind::row || one->form.kind == Kind::element))
      return batch_form(seen->sizes, one->form.dtype);
  }
  return std::nullopt;
}

std::optional<at::ScalarType> Lowering::common_dtype(std::initializer_list<size_t> list) {
  std::optional<at::ScalarType> dtype;
  for (const size_t argument : list) {
    const Value* value = tensor(argument);
    if (!value || !value->meta || value->meta->sizes.empty()) continue;
    dtype = dtype ? at::promote_types(*dtype, value->meta->dtype) : value->meta->dtype;
  }
  return dtype;
}

std::optional<Ref> Lowering::number(const c10::IValue& value, at::ScalarType dtype) {
  if (!value.isBool() && !value.isInt() && !value.isDouble()) return std::nullopt;
  if (category(dtype_of(value)) > category(dtype)) return std::nullopt;
  if (refuses_numbers_ && !flags::check::holds(dtype, value.toScalar())) return std::nullopt;
  LoopValue literal;
  literal.place = Place::number;
  literal.dtype = dtype;
  literal.type = computed_type(dtype);
  if (category(dtype) == 2) {
    const double real = value.isDouble() ? value.toDouble()
                        : value.isInt()  ? static_cast<double>(value.toInt())
                                         : value.toBool();
    // LibTorch versions differ in whether such a number is rounded before or after: only where it makes no difference
    if (dtype == at::kHalf && !survives<at::Half>(real)) return std::nullopt;
    if (dtype == at::kBFloat16 && !survives<at::BFloat16>(real)) return std::nullopt;
    literal.code =
        dtype == at::kDouble
            ? real_literal(real, false)
            : real_literal(value.isInt() ? static_cast<float>(value.toInt()) : static_cast<float>(real), true);
  } else if (dtype == at::kBool) {
    literal.code = value.toBool() ? "true" : "false";
  } else {
    const int64_t whole = value.isBool() ? value.toBool() : value.toInt();
    literal.code = whole == INT64_MIN ? "INT64_MIN" : fmt::format("({})({}LL)", literal.type, whole);
  }
  loops_.values.push_back(std::move(literal));
  return static_cast<Ref>(loops_.values.size() - 1);
}

std::optional<Ref> Lowering::operand(size_t argument, at::ScalarType dtype, const TensorForm& shape) {
  if (const auto* fixed = constant(argument)) return number(*fixed, dtype);
  const Value* value = tensor(argument);
  if (!value || !value->meta) return std::nullopt;
  if (value->meta->sizes.empty()) {  // as a number: it takes part in promotion by its category only
    if (category(value->meta->dtype) > category(dtype)) return std::nullopt;
    if (dtype != value->meta->dtype && (dtype == at::kHalf || dtype == at::kBFloat16)) return std::nullopt;
    const auto one = lowered(argument);
    if (!one || one->form.kind != Kind::number) return std::nullopt;
    if (!fits(argument, *one, dtype)) return std::nullopt;
    return converted(one->value, one->form.dtype, dtype);
  }
  const at::ScalarType from = value->meta->dtype;
  if (from != dtype && !promotes(from, dtype)) return std::nullopt;
  if (const auto column = as_column(*value, shape)) return converted(*column, from, dtype);
  const auto one = lowered(argument);
  if (!one || one->form.kind == Kind::record) return std::nullopt;
  return covers(one->form, shape) ? std::optional(converted(one->value, from, dtype)) : std::nullopt;
}

/// Whether ATen takes the number that argument `argument` is. One from outside is looked at in every call.
bool Lowering::fits(size_t argument, const Lowered& number, at::ScalarType dtype) {
  const bool is_number = graph::type_of(node_->op.schema().arguments()[argument]).kind != graph::Kind::tensor;
  if (!refuses_numbers_ || !is_number || is_within(number.form.dtype, dtype)) return true;
  const LoopValue& from = value(number.value);
  if (from.kind != LoopValue::Kind::input) return false;
  loops_.bounds.push_back({static_cast<size_t>(from.slot), dtype});
  return true;
}

Ref Lowering::converted(Ref from_value, at::ScalarType from, at::ScalarType to) {
  if (from == to) return from_value;
  const bool comes_back = at::isFloatingType(to) && value(from_value).cut;
  const std::string type = computed_type(to);
  return map(to, comes_back ? "whole_as_real<" + type + ">({0})" : "(" + type + "){0}", {from_value});
}

std::optional<Ref> Lowering::cast(Ref value, at::ScalarType from, at::ScalarType to) {
  if (from == to) return value;
  const std::string type = computed_type(to);
  if (type.empty()) return std::nullopt;
  if (to == at::kBool) return map(to, "{0} != 0", {value});
  if (!at::isFloatingType(from) || at::isFloatingType(to)) return converted(value, from, to);
#if defined(__x86_64__)
  return map(to, "truncated<" + type + ">({0})", {value});
#else
  return std::nullopt;  // what ATen makes of numbers beyond the range, and of NaN, is the processor's
#endif
}

// --- values ----------------------------------------------------------------------------------------------------------

Ref Lowering::map(at::ScalarType dtype, std::string code, std::vector<Ref> operands, bool expensive) {
  LoopValue made;
  made.place = Place::number;
  for (const Ref ref : operands) {
    const LoopValue& from = value(ref);
    if (from.place > made.place) made.place = from.place;
  }
  made.extent = joint_extent(operands);
  made.dtype = dtype;
  made.type = computed_type(dtype);
  made.code = rounded(dtype, code);
  made.operands = std::move(operands);
  made.expensive = expensive;
  made.cut = code.rfind("truncated<", 0) == 0;
  for (const Ref ref : made.operands) made.cut |= value(ref).cut;
  made.cut &= !at::isFloatingType(dtype);
  loops_.values.push_back(std::move(made));
  return static_cast<Ref>(loops_.values.size() - 1);
}

/// Where there is a value of `operands`, each in its own place: that of the elements among them, or whose segments and positions
/// they are.
int32_t Lowering::joint_extent(const std::vector<Ref>& operands) const {
  std::set<int32_t> used;
  for (const Ref ref : operands)
    if (value(ref).place == Place::element) used.insert(value(ref).extent);
  if (used.size() < 2) return used.empty() ? -1 : *used.begin();
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const Extent& whole = loops_.extents[i];
    const auto is_part = [&](int32_t extent) {
      return extent == static_cast<int32_t>(i) || extent == whole.segments || extent == whole.positions;
    };
    if (whole.segments >= 0 && std::all_of(used.begin(), used.end(), is_part)) return static_cast<int32_t>(i);
  }
  throw GraphError("fused: values of unlike positions in one operation");
}

Ref Lowering::map_record(int64_t words, std::string code, std::vector<Ref> operands) {
  const Ref made = map(at::kLong, std::move(code), std::move(operands));
  LoopValue& value = loops_.values.back();
  value.place = Place::row;
  value.extent = -1;
  value.type = fmt::format("Record<{}>", words);
  return made;
}

Ref Lowering::reduce(at::ScalarType dtype, std::string type, std::string code, std::string join, std::string start,
                     Ref element, int32_t segments) {
  LoopValue made;
  made.kind = LoopValue::Kind::reduce;
  made.place = segments < 0 ? Place::row : Place::element;
  made.extent = segments;
  made.dtype = dtype;
  made.type = std::move(type);
  made.code = std::move(code);
  made.join = std::move(join);
  made.start = std::move(start);
  made.operands = {element};
  made.cut = value(element).cut && !at::isFloatingType(dtype);
  loops_.values.push_back(std::move(made));
  return static_cast<Ref>(loops_.values.size() - 1);
}

Ref Lowering::classify(Ref element, Ref largest) {
  LoopValue made;
  made.kind = LoopValue::Kind::classify;
  made.type = "NonFinite";
  made.operands = {element, largest};
  loops_.values.push_back(std::move(made));
  return static_cast<Ref>(loops_.values.size() - 1);
}

bool Lowering::is_zero(Ref ref) const {
  const LoopValue& number = value(ref);
  return number.kind == LoopValue::Kind::map && number.place == Place::number && number.operands.empty() &&
         (number.code == real_literal(0.0, true) || number.code == real_literal(0.0, false));
}

Ref Lowering::spread(Ref one, const TensorForm& shape) {
  const Ref made = map(value(one).dtype, "{0}", {one});
  loops_.values.back().place = Place::element;
  loops_.values.back().extent = shape.extent;
  return made;
}

bool Lowering::in_segments(Ref ref) const {
  const LoopValue& one = value(ref);
  if (one.place != Place::element || one.kind == LoopValue::Kind::input) return false;
  return one.kind == LoopValue::Kind::reduce || std::any_of(one.operands.begin(), one.operands.end(), [&](Ref operand) {
           return value(operand).place == Place::element &&
                  (value(operand).extent != one.extent || in_segments(operand));
         });
}

std::string Lowering::count(Ref element, int32_t segments) const {
  const int32_t extent = value(element).extent;
  return fmt::format("d{}", segments < 0 ? extent : loops_.extents[static_cast<size_t>(extent)].positions);
}

bool Lowering::result(size_t index, TensorForm form, Ref computed) {
  if (form.kind != Kind::record && value(computed).dtype != form.dtype) computed = map(form.dtype, "{0}", {computed});
  remember(tensors_, node_->results.at(index), {std::move(form), computed});
  return true;
}

}  // namespace triage::fused
