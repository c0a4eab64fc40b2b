// What a capture learns of sizes and goes by: each becomes a guard of the graph.
#include "runtime/capture/recording/recorder.h"

#include "runtime/capture/recording/kind_reads.h"
#include "runtime/capture/rules/rules.h"

#include <algorithm>
#include <utility>

namespace triage::capture {
namespace {

/// More conditions than these cost more than a graph of its own for each size.
constexpr size_t kMostConditions = 16;

Extent input_extent(const SizeCondition::Size& size) { return {Extent::From::input, 0, size.input, size.dim}; }

}  // namespace

void Recorder::read_size(const at::Tensor& tensor, int64_t dim) {
  const int64_t wrapped = dim < 0 ? dim + tensor.dim() : dim;
  if (!knows(tensor) || wrapped < 0 || wrapped >= tensor.dim()) return;
  hold_size(origins_.extent(tensor, wrapped), tensor.size(wrapped));
}

void Recorder::hold_size(const Extent& extent, int64_t size) {
  if (extent.from == Extent::From::unknown) hold_all_sizes();
  if (extent.from != Extent::From::input) return;
  for (SizeGuard& known : sizes_) {  // a loop reads one size many times
    if (known.input != extent.input || known.dim != extent.dim) continue;
    if (known.where.file.empty()) known.where = guard_line();
    return;
  }
  sizes_.push_back({extent.input, extent.dim, size, guard_line()});
  origins_.unite(extent, Extent::constant(size));
}

/// The rank of an input is always guarded; that of anything else may depend on sizes (squeeze).
void Recorder::read_rank(const at::Tensor& tensor) {
  KindReads::note_rank(tensor);
  if (knows(tensor) && !origins_.shape(tensor)) hold_all_sizes();
}

void Recorder::note_all_sizes() {
  if (!std::exchange(all_sizes_, true)) all_sizes_line_ = guard_line();
}

/// What was read follows from the sizes of the inputs, one way or another; but not where a param or values decide a shape too.
void Recorder::hold_all_sizes() {
  note_all_sizes();
  if (shaped_by_values_)
    capture::graph_break(
        Break::dynamic_shape, "the script reads a size that may depend on values",
        "Use a tensor operation (x:sum(0), err.count_errors), or read the size after the compiled code.");
  if (shaped_by_params_)
    capture::graph_break(Break::size_of_param, "the script reads a size that may depend on a param",
                         "Replace the param by a number in the script, or use the size in tensor operations only.");
}

/// How many tensors an operator returned may depend on sizes, which become guards, and on numbers that it was given: a graph has
/// as many results in every call.
void Recorder::hold_count(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  const auto dim = parted_dim(op, arguments);
  if (!dim) note_all_sizes();
  bool by_param = false, by_value = shaped_by_values_;
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const at::Tensor& number = arguments[i].toTensor();
    if (number.dim() > 0 || literals_.count(number.unsafeGetTensorImpl())) continue;
    const graph::Value* const value = find(number);
    by_param |= is_param(number);
    by_value |= !value || !numbers_.is_of_sizes(value);
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

void Recorder::rely_on(const std::vector<SizeFact>& facts) {
  for (const SizeFact& fact : facts) {
    if (fact.dim < 0)
      read_rank(fact.tensor);
    else if (fact.other.defined())
      require_same_size(fact);
    else
      read_size(fact.tensor, fact.dim);
  }
}

void Recorder::require_same_size(const SizeFact& fact) {
  const Extent a = origins_.extent(fact.tensor, fact.dim), b = origins_.extent(fact.other, fact.other_dim);
  if (a == b && a.from != Extent::From::unknown) return;
  if (a.from == Extent::From::input && b.from == Extent::From::input) return hold_same_size(a, b);
  read_size(fact.tensor, fact.dim);
  read_size(fact.other, fact.other_dim);
}

void Recorder::hold_same_size(const Extent& a, const Extent& b) {
  same_sizes_.push_back({a.input, a.dim, b.input, b.dim, guard_line()});
  origins_.unite(a, b);
}

std::optional<at::Tensor> Recorder::literal(const graph::Value* value) const {
  const at::Tensor* const constant = graph_.is_variable(value) ? nullptr : graph_.constant_of(value);
  return constant ? std::optional(*constant) : std::nullopt;
}

SizeCondition::Origin Recorder::size_origin(const graph::Value* number) const {
  if (const Numbers::Size* size = numbers_.find_size(number)) {
    const Extent extent = origins_.extent(size->tensor, size->dim);
    if (extent.from == Extent::From::input) return {SizeCondition::Size{extent.input, extent.dim}, std::nullopt};
    if (extent.from == Extent::From::constant) return {std::nullopt, extent.size};
    return {};
  }
  const auto number_in_script = literal(number);
  const bool whole = number_in_script && number_in_script->scalar_type() == at::kLong && number_in_script->numel() == 1;
  return {std::nullopt, whole ? std::optional(number_in_script->item<int64_t>()) : std::nullopt};
}

bool Recorder::hold_condition(const graph::Value* condition, bool truth) {
  if (numbers_.keep_items) return false;  // export: what is dynamic may not decide
  auto held = SizeCondition::of(condition, truth, [this](const graph::Value* value) { return size_origin(value); });
  if (!held) return false;
  if (const auto equality = held->equality()) {  // which tells of the shapes of other tensors too
    if (!equality->other) return false;
    hold_same_size(input_extent(equality->size), input_extent(*equality->other));
    return true;
  }
  if (std::find(conditions_.begin(), conditions_.end(), *held) != conditions_.end()) return true;
  if (conditions_.size() == kMostConditions) return false;
  conditions_.push_back(std::move(*held));
  condition_lines_.push_back(guard_line());
  numbers_.table.assume(condition, truth);
  return true;
}

}  // namespace triage::capture
