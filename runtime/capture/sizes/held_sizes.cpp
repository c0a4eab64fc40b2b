#include "runtime/capture/sizes/held_sizes.h"

#include "runtime/capture/recording/kind_reads.h"
#include "runtime/capture/rules/arguments.h"
#include "runtime/graph/argument_type.h"
#include "runtime/operators/semantics.h"

#include <algorithm>
#include <utility>

namespace triage::capture {

using operators::Semantics, operators::semantics_of;

namespace {

/// More conditions than these cost more than a graph of its own for each size.
constexpr size_t kMostConditions = 16;

Extent input_extent(const SizeCondition::InputDim& size) { return {Extent::From::input, 0, size.input, size.dim}; }

}  // namespace

HeldSizes::HeldSizes(const graph::Graph& graph, const TracedTensors& tensors, std::function<Source()> guard_line)
    : numbers([this](const graph::Value* value, int64_t dim) { return size_name(value, dim); },
              [this](const graph::Value* value) { return literal(value) != nullptr; }),
      graph_(graph),
      tensors_(tensors),
      guard_line_(std::move(guard_line)) {}

void HeldSizes::read_size(const at::Tensor& tensor, int64_t dim) {
  const int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  if (!tensors_.knows(tensor) || wrapped < 0 || wrapped >= tensor.dim()) return;
  hold_size(origins.extent(tensor, wrapped), tensor.size(wrapped));
}

void HeldSizes::hold_size(const Extent& extent, int64_t size) {
  if (extent.from == Extent::From::unknown) hold_all_sizes();
  if (extent.from != Extent::From::input) return;
  for (SizeGuard& known : held_.sizes) {  // a loop reads one size many times
    if (known.input != extent.input || known.dim != extent.dim) continue;
    if (known.where.file.empty()) known.where = guard_line_();
    return;
  }
  held_.sizes.push_back({extent.input, extent.dim, size, guard_line_()});
  origins.unite(extent, Extent::constant(size));
}

/// The rank of an input is always guarded; that of anything else may depend on sizes (squeeze).
void HeldSizes::read_rank(const at::Tensor& tensor) {
  KindReads::note_rank(tensor);
  if (tensors_.knows(tensor) && !origins.shape(tensor)) hold_all_sizes();
}

void HeldSizes::note_all_sizes() {
  if (!std::exchange(all_sizes_, true)) all_sizes_line_ = guard_line_();
}

/// What was read follows from the sizes of the inputs, one way or another; but not where a param or values decide a
/// shape too.
void HeldSizes::hold_all_sizes() {
  note_all_sizes();
  if (shaped_by_values_)
    capture::graph_break(
        Break::dynamic_shape, "the script reads a size that may depend on values",
        "Use a tensor operation (x:sum(0), err.count_errors), or read the size after the compiled code.");
  if (shaped_by_params_)
    capture::graph_break(Break::size_of_param, "the script reads a size that may depend on a param",
                         "Replace the param by a number in the script, or use the size in tensor operations only.");
}

/// How many tensors an operator returned may depend on sizes, which become guards, and on numbers that it was given: a
/// graph has as many results in every call.
void HeldSizes::hold_count(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const auto dim = parted_dim(op, arguments);
  if (!dim) note_all_sizes();
  bool by_param = false, by_value = shaped_by_values_;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& number = arguments[i].toTensor();
    if (number.dim() > 0 || tensors_.is_literal(number)) continue;
    const graph::Value* const value = tensors_.find(number);
    by_param |= tensors_.is_param(number);
    by_value |= !value || !numbers.is_of_sizes(value);
  }
  if (by_param)
    capture::graph_break(Break::size_of_param,
                         "the number of tensors that `" + base_name(op) + "` returns depends on a param",
                         "Replace the param by a number in the script, or take the parts with x:narrow or by index.");
  else if (by_value)
    capture::graph_break(Break::dynamic_shape,
                         "the number of tensors that `" + base_name(op) + "` returns may depend on values",
                         "Take the parts with x:narrow or by index.");
  else if (dim)
    read_size(arguments[0].toTensor(), *dim);
}

void HeldSizes::rely_on(const std::vector<SizeFact>& facts) {
  for (const SizeFact& fact : facts) {
    if (fact.dim < 0)
      read_rank(fact.tensor);
    else if (fact.other.defined())
      require_same_size(fact);
    else
      read_size(fact.tensor, fact.dim);
  }
}

void HeldSizes::require_same_size(const SizeFact& fact) {
  const Extent a = origins.extent(fact.tensor, fact.dim), b = origins.extent(fact.other, fact.other_dim);
  if (a == b && a.from != Extent::From::unknown) return;
  if (a.from == Extent::From::input && b.from == Extent::From::input) return hold_same_size(a, b);
  read_size(fact.tensor, fact.dim);
  read_size(fact.other, fact.other_dim);
}

void HeldSizes::hold_same_size(const Extent& a, const Extent& b) {
  held_.same_sizes.push_back({a.input, a.dim, b.input, b.dim, guard_line_()});
  origins.unite(a, b);
}

SizeCondition::SizeOrigin HeldSizes::size_origin(const graph::Value* number) const {
  if (const CapturedNumbers::TensorSize* size = numbers.find_size(number)) {
    const Extent extent = origins.extent(size->tensor, size->dim);
    if (extent.from == Extent::From::input) return {SizeCondition::InputDim{extent.input, extent.dim}, std::nullopt};
    if (extent.from == Extent::From::constant) return {std::nullopt, extent.size};
    return {};
  }
  const at::Tensor* const number_in_script = literal(number);
  const bool whole = number_in_script && number_in_script->scalar_type() == at::kLong && number_in_script->numel() == 1;
  return {std::nullopt, whole ? std::optional(number_in_script->item<int64_t>()) : std::nullopt};
}

bool HeldSizes::hold_condition(const graph::Value* condition, bool truth) {
  if (numbers.keep_items) return false;  // export: what is dynamic may not decide
  auto held = SizeCondition::of(condition, truth, [this](const graph::Value* value) { return size_origin(value); });
  if (!held) return false;
  if (const auto equality = held->equality()) {  // which tells of the shapes of other tensors too
    if (!equality->other) return false;
    hold_same_size(input_extent(equality->size), input_extent(*equality->other));
    return true;
  }
  if (std::find(held_.conditions.begin(), held_.conditions.end(), *held) != held_.conditions.end()) return true;
  if (held_.conditions.size() == kMostConditions) return false;
  held_.conditions.push_back(std::move(*held));
  held_.condition_lines.push_back(guard_line_());
  numbers.table.assume(condition, truth);
  return true;
}

/// One name for sizes that are the same in every replay, by the input's dimension they come from.
std::string HeldSizes::size_name(const graph::Value* value, int64_t dim) const {
  const at::Tensor tensor = tensors_.tensor_of(value);
  const Extent extent = tensor.defined() ? origins.extent(tensor, dim) : Extent();
  if (extent.from == Extent::From::constant) return std::to_string(extent.size);
  if (extent.from == Extent::From::input) return "s" + std::to_string(extent.input) + "_" + std::to_string(extent.dim);
  return "?";
}

/// Is there a number among the arguments, lists included, that follows from more than sizes?
bool HeldSizes::varies(const std::vector<c10::IValue>& arguments) const {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      const graph::Value* value = tensors_.find(argument.toTensor());
      if (value && argument.toTensor().dim() == 0 && !numbers.is_of_sizes(value)) return true;
    } else if (argument.isList() && !argument.isIntList() && !argument.isDoubleList() && !argument.isBoolList()) {
      const auto items = argument.toListRef();
      if (varies(std::vector<c10::IValue>(items.begin(), items.end()))) return true;
    }
  }
  return false;
}

/// Is there one in the place of a number, which the operator may refuse: a dim out of range? Where it refuses those
/// that the dtype does not hold, sizes count, too.
bool HeldSizes::numbers_vary(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) const {
  const auto& declared = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (graph::type_of(declared[i]).kind == graph::Kind::tensor) continue;
    bool any = false;
    for_each_tensor(arguments[i], [&](const at::Tensor&) { any = true; });
    if (any && (semantics_of(op).has(Semantics::checks_numbers) || varies({arguments[i]}))) return true;
  }
  return false;
}

HeldSizes::SizeGuards HeldSizes::take() {
  if (!all_sizes_) return std::move(held_);
  SizeGuards all{{}, std::move(held_.same_sizes), {}, {}};  // conditions hold where all sizes are these
  const std::vector<at::Tensor>& inputs = tensors_.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    for (int64_t dim = 0; dim < inputs[i].dim(); ++dim)
      all.sizes.push_back({i, dim, inputs[i].size(dim), all_sizes_line_});
  return all;
}

}  // namespace triage::capture
