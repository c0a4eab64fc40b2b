#include "runtime/backends/fused/lowering/lowering.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "runtime/backends/fused/loop_numbers.h"
#include "runtime/flags/checks.h"
#include "runtime/graph/argument_type.h"
#include "runtime/graph/text/describe.h"
#include "runtime/messages/printable.h"
#include "runtime/operators/semantics.h"

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

bool is_one(int64_t size) { return size == 1; }

std::vector<int64_t> without_ones(std::vector<int64_t> sizes) {
  sizes.erase(std::remove_if(sizes.begin(), sizes.end(), is_one), sizes.end());
  return sizes;
}

/// What there is for an operator: its function, or formulas.
struct OperatorLowering {
  Lower function = nullptr;
  std::vector<const FormulaRow*> formulas;
};
const OperatorLowering* find_ways(const std::string& op) {
  static const auto& table = *new std::unordered_map<std::string, OperatorLowering>([] {
    std::unordered_map<std::string, OperatorLowering> all;
    for (const auto* part : {&elementwise_operators(), &host_numbers(), &reshapes(), &activations(), &divisions(),
                             &reductions(), &flags_operators()})
      for (const auto& [name, function] : *part) all[name].function = function;
    for (const FormulaRow& row : formula_operators()) all[row.op].formulas.push_back(&row);
    return all;
  }());
  const auto found = table.find(op);
  return found == table.end() ? nullptr : &found->second;
}

bool lower(Lowering& l, const OperatorLowering& ways) {
  if (ways.function) return ways.function(l);
  return std::any_of(ways.formulas.begin(), ways.formulas.end(),
                     [&](const FormulaRow* row) { return elementwise(l, row->dtypes, row->formula.c_str()); });
}

int32_t line_of(const Source& source, std::vector<std::string>& lines) {
  if (source.file.empty()) return -1;
  std::string line = fmt::format("{}:{}", messages::one_line(source.file), source.line);
  if (lines.empty() || lines.back() != line) lines.push_back(std::move(line));
  return static_cast<int32_t>(lines.size() - 1);
}

/// Each reduction that waits for others is one more pass over the row, which computes again what is cheap: what loops
/// take would grow with the square of their number.
bool is_too_deep(const std::vector<LoopValue>& values, size_t first) {
  constexpr int32_t most = 64;
  return std::any_of(values.begin() + static_cast<int64_t>(first), values.end(),
                     [](const LoopValue& value) { return value.depth > most; });
}

}  // namespace

bool can_lower(const std::string& op) { return find_ways(op) != nullptr; }

bool Lowering::add(const Node& node) {
  const OperatorLowering* const ways = find_ways(graph::op_name(node.op));
  const auto is_elsewhere = [&](const Value* result) { return result->meta && !is_there(*result->meta); };
  if (std::any_of(node.results.begin(), node.results.end(), is_elsewhere)) return false;
  node_ = &node;
  line_ = line_of(node.source, loops_.lines);
  refuses_numbers_ = operators::semantics_of(node.op).has(operators::Semantics::checks_numbers);
  const auto as_operator = [&] { return ways && lower(*this, *ways); };
  if (!is_host_call(node)) return attempt(as_operator);
  const auto on_host = [&] { return as_operator() && value(tensors_.at(node.results[0]).value).on_host; };
  return attempt(on_host) || attempt([&] { return host_call(); }) || attempt(as_operator);
}

/// Lowers the node so, or leaves everything as it was.
bool Lowering::attempt(c10::function_ref<bool()> lower) {
  const auto values = loops_.values.size(), arguments = arguments_.size(), bounds = loops_.bounds.size();
  auto extents = loops_.extents;
  const auto fixed_batch = loops_.fixed_batch;
  const auto inputs = loops_.inputs.size();
  std::vector<bool> viewed;
  for (const LoopInput& input : loops_.inputs) viewed.push_back(input.viewed);
  const auto asked = loops_.reshapes.size(), batch_inputs = loops_.batch_inputs.size(),
             checks = loops_.size_checks.size();
  added_.clear();
  if (lower() && !is_too_deep(loops_.values, values)) return true;
  loops_.values.resize(values);
  loops_.inputs.erase(loops_.inputs.begin() + static_cast<int64_t>(inputs), loops_.inputs.end());
  for (size_t i = 0; i < inputs; ++i) loops_.inputs[i].viewed = viewed[i];
  loops_.reshapes.resize(asked);
  loops_.batch_inputs.resize(batch_inputs);
  loops_.size_checks.erase(loops_.size_checks.begin() + static_cast<int64_t>(checks), loops_.size_checks.end());
  loops_.bounds.resize(bounds);
  loops_.extents = std::move(extents);
  loops_.fixed_batch = fixed_batch;
  arguments_.resize(arguments);
  for (const auto& [known, value] : added_) known->erase(value);
  const auto is_gone = [&](Ref value) { return static_cast<size_t>(value) >= values; };
  std::erase_if(picked_rows_, [&](const auto& known) {
    return is_gone(known.first) || (known.second && (is_gone(known.second->value) || is_gone(known.second->kept)));
  });
  for (auto column = columns_.begin(); column != columns_.end();)
    column = is_gone(column->second) ? columns_.erase(column) : std::next(column);
  return false;
}

void Lowering::remember(LoweredValues& known, const Value* value, Lowered lowered) {
  if (known.insert_or_assign(value, std::move(lowered)).second) added_.emplace_back(&known, value);
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

TensorForm row_form(at::ScalarType dtype, int64_t rank) {
  TensorForm form;
  form.kind = Kind::row;
  form.dtype = dtype;
  form.rank = rank;
  return form;
}

TensorForm record_form(int64_t words, at::ScalarType carrier) {
  TensorForm form;
  form.kind = Kind::record;
  form.dtype = carrier;
  form.rank = 2;
  form.words = words;
  return form;
}

/// Where loops can read it.
bool Lowering::is_there(const graph::TensorMeta& meta) const {
  return is_on(meta.device, device_) || (meta.sizes.empty() && meta.device.is_cpu());
}

/// What a tensor from outside is, by what was seen of it at capture.
std::optional<TensorForm> Lowering::form_of(const Value& value) {
  if (!value.meta || !is_there(*value.meta)) return std::nullopt;
  const auto& sizes = value.meta->sizes;
  const at::ScalarType dtype = value.meta->dtype;
  if (!computed_type(dtype)) return std::nullopt;
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
  form.extent = extents_.of(without_ones(form.trailing));
  return form;
}

bool Lowering::fix_sizes(size_t argument, const std::vector<int64_t>& seen, const TensorForm& form) {
  const auto* asked = constant(argument);
  if (!asked || !asked->isIntList() || seen.empty() || seen[0] != batch_) return false;
  const auto sizes = asked->toIntVector();
  if (sizes.size() != seen.size()) return false;
  if (sizes[0] >= 0) loops_.fixed_batch = batch_;
  if (form.kind == Kind::element) extents_.at(form.extent).fixed = true;
  return true;
}

Ref Lowering::read(const Value& value, const TensorForm& form) {
  size_t argument = 0;
  while (argument < arguments_.size() && arguments_[argument] != &value) ++argument;
  if (argument == arguments_.size()) arguments_.push_back(&value);
  LoopValue input;
  input.kind = LoopValue::Kind::input;
  input.dtype = form.dtype;
  input.type = computed_type(form.dtype).value();
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
      input.type = Type::record;
      input.slots = static_cast<int32_t>(form.words * static_cast<int64_t>(c10::elementSize(form.dtype)) / 2);
      break;
    case Kind::row:
      break;
  }
  loops_.inputs.push_back({argument, form});
  const Ref made = add_value(std::move(input));
  if (value.meta && !value.meta->device.is_cpu()) loops_.values[static_cast<size_t>(made)].on_host = false;
  return made;
}

std::optional<Lowered> Lowering::lowered(size_t argument) {
  const Value* value = tensor(argument);
  return value ? lowered(*value) : std::nullopt;
}

std::optional<Lowered> Lowering::lowered(const Value& value) {
  if (const auto found = tensors_.find(&value); found != tensors_.end()) return found->second;
  if (const auto found = read_.find(&value); found != read_.end()) return found->second;
  const auto form = form_of(value);
  if (!form) return std::nullopt;
  const Lowered lowered{*form, batch_sizes_.count(&value) ? size_number(-1, 0) : read(value, *form)};
  remember(read_, &value, lowered);
  return lowered;
}

bool Lowering::has_data(const Value& value) {
  const auto is_data = [](const TensorForm& form) { return form.kind == Kind::row || form.kind == Kind::element; };
  if (const auto found = tensors_.find(&value); found != tensors_.end()) return is_data(found->second.form);
  if (const auto found = read_.find(&value); found != read_.end()) return is_data(found->second.form);
  const auto form = form_of(value);
  return form && is_data(*form);
}

void Lowering::read_data(const Value& value) {
  if (tensors_.count(&value) || read_.count(&value)) return;
  const auto form = form_of(value);
  read_[&value] = {*form, read(value, *form)};
}

/// A tensor from outside that is the same for all rows, beside data of form `shape`.
std::optional<Ref> Lowering::as_column(const Value& value, const TensorForm& shape) {
  if (tensors_.count(&value) || batch_sizes_.count(&value) || !value.meta || !is_there(*value.meta) || value.is_flags ||
      !computed_type(value.meta->dtype) || shape.kind == Kind::number || shape.kind == Kind::record)
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
  } else if (const auto part = extents_.part_of(shape.extent, *found)) {
    form.extent = *part;
  } else {
    return std::nullopt;
  }
  const auto [known, fresh] = columns_.emplace(std::make_pair(&value, form.extent), -1);
  if (fresh) known->second = read(value, form);
  return known->second;
}

std::optional<TensorForm> Lowering::broadcast(const std::vector<size_t>& list) {
  const auto& seen = node_->results[0]->meta;
  if (!seen) return std::nullopt;
  for (const size_t argument : list) {
    const Value* value = tensor(argument);
    // Sizes are matched from the last on: the first one of a tensor of fewer dimensions is not the batch, even if it is
    // as large.
    if (!value || !value->meta || value->meta->sizes.size() != seen->sizes.size()) continue;
    const auto one = lowered(argument);
    if (one && (one->form.kind == Kind::row || one->form.kind == Kind::element))
      return batch_form(seen->sizes, one->form.dtype);
  }
  return std::nullopt;
}

std::optional<at::ScalarType> Lowering::common_dtype(const std::vector<size_t>& list) {
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
  const Type type = computed_type(dtype).value();
  int64_t bits = 0;
  if (is_real(type)) {
    const double real = value.isDouble() ? value.toDouble()
                        : value.isInt()  ? static_cast<double>(value.toInt())
                                         : value.toBool();
    // LibTorch versions differ in whether such a number is rounded before or after: only where it makes no difference
    if (dtype == at::kHalf && !survives<at::Half>(real)) return std::nullopt;
    if (dtype == at::kBFloat16 && !survives<at::BFloat16>(real)) return std::nullopt;
    const bool whole_to_single = value.isInt() && type == Type::f32;  // not by way of double
    bits = bits_of_real(type, whole_to_single ? static_cast<float>(value.toInt()) : real);
  } else {
    bits = whole_bits(type, value.isBool() ? value.toBool() : value.toInt());
  }
  const Ref made = literal(type, bits);
  loops_.values.back().dtype = dtype;
  return made;
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
    return in_dtype(one->value, dtype);
  }
  const at::ScalarType from = value->meta->dtype;
  if (from != dtype && !promotes(from, dtype)) return std::nullopt;
  if (const auto column = as_column(*value, shape)) return in_dtype(*column, dtype);
  const auto one = lowered(argument);
  if (!one || one->form.kind == Kind::record) return std::nullopt;
  return extents_.covers(one->form, shape) ? std::optional(in_dtype(one->value, dtype)) : std::nullopt;
}

/// Whether ATen takes the number that argument `argument` is. One from outside, or of sizes, is looked at in every
/// call.
bool Lowering::fits(size_t argument, const Lowered& number, at::ScalarType dtype) {
  const bool is_number = graph::type_of(node_->op.schema().arguments()[argument]).kind != graph::Kind::tensor;
  if (!refuses_numbers_ || !is_number || is_within(number.form.dtype, dtype)) return true;
  if (!value(number.value).on_host) return false;
  loops_.bounds.push_back({number.value, dtype});
  return true;
}

std::optional<Ref> Lowering::cast(Ref value, at::ScalarType from, at::ScalarType to) {
  if (from == to) return value;
  const auto type = computed_type(to);
  if (!type) return std::nullopt;
  if (to == at::kBool) return map(to, "a != 0", {value});
  if (!at::isFloatingType(from) || at::isFloatingType(to)) return in_dtype(value, to);
  if (!device_.is_cpu()) return std::nullopt;  // beyond the range, and of NaN, a GPU gives other numbers
#if defined(__x86_64__) || defined(__aarch64__)
  return apply(Opcode::truncate, {value}, {}, type);
#else
  return std::nullopt;  // what ATen makes of numbers beyond the range, and of NaN, is the processor's
#endif
}

bool Lowering::result(size_t index, TensorForm form, Ref computed) {
  if (form.kind != Kind::record) computed = in_dtype(computed, form.dtype);
  remember(tensors_, node_->results.at(index), {std::move(form), computed});
  return true;
}

// --- the end ---------------------------------------------------------------------------------------------------------

Loops Lowering::finish(const std::vector<const graph::Value*>& outputs) {
  for (const graph::Value* output : outputs) {
    const auto made = tensors_.find(output);
    const Lowered& lowered = made != tensors_.end() ? made->second : read_.at(output);
    loops_.outputs.push_back({lowered.value, lowered.form});
  }
  for (LoopValue& value : loops_.values) value.extent = extents_.root(value.extent);
  share_equal_values(loops_);
  loops_.last_asked = last_asked(loops_);
  return std::move(loops_);
}

}  // namespace triage::fused
