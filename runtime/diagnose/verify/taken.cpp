#include "runtime/diagnose/verify/taken.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "runtime/diagnose/bits.h"
#include "runtime/operators/semantics.h"

namespace triage::diagnose {
namespace {

/// "aten::where" of "aten::where.self" and of forms in place.
std::string name_of(const RecordedStep& step) {
  std::string name = step.op.substr(0, step.op.find('.'));
  if (name.size() > 1 && name.back() == '_' && name[name.size() - 2] != '_') name.pop_back();
  return name;
}

std::string overload_of(const RecordedStep& step) {
  const size_t dot = step.op.find('.');
  return dot == std::string::npos ? "" : step.op.substr(dot + 1);
}

/// Each element of its result comes of one element of each operand.
bool is_elementwise(const RecordedStep& step) {
  const auto op = c10::Dispatcher::singleton().findSchema({step.op.substr(0, step.op.find('.')), overload_of(step)});
  if (!op) return false;
  const operators::ResultSizes sizes = operators::semantics_of(*op).sizes;
  return sizes == operators::ResultSizes::broadcast || sizes == operators::ResultSizes::either;
}

/// A condition with a row for each sample, for data with more dims.
at::Tensor for_rows(const at::Tensor& condition, at::IntArrayRef sizes) {
  at::Tensor wide = condition.to(at::kBool);
  while (wide.dim() > 0 && wide.dim() < static_cast<int64_t>(sizes.size())) wide = wide.unsqueeze(-1);
  return wide.expand(sizes);
}

/// Flags may be any NaN.
at::Tensor bits_of(const at::Tensor& flags) {
  if (!flags.is_floating_point()) return flags;
  const at::ScalarType bits = flags.element_size() == 8 ? at::kLong : flags.element_size() == 4 ? at::kInt : at::kShort;
  return flags.detach().contiguous().view(bits);
}

/// The rows that `triage::fix` repaired: their records got an entry. Of full records, that got none: what differs.
at::Tensor repaired(const Recording& recording, const RecordedStep& step, size_t result) {
  const at::Tensor &z = recording.values[step.reads[0]].tensor, &made = recording.values[result].tensor;
  at::Tensor rows = made.ne(z).logical_and(made.isnan().logical_and(z.isnan()).logical_not());
  const at::Tensor& before = recording.values[step.reads[1]].tensor;
  for (const size_t other : step.results) {
    const at::Tensor& after = recording.values[other].tensor;
    if (other != result && before.dim() == 2 && same_kind(before, after))
      rows = rows.logical_or(for_rows(bits_of(before).ne(bits_of(after)).any(1), rows.sizes()));
  }
  return rows;
}

/// Which elements of an operand of these sizes stand behind elements of what it was broadcast to.
at::Tensor reduced_to(const at::Tensor& mask, at::IntArrayRef sizes) {
  return mask.sizes() == sizes ? mask : mask.to(at::kInt).sum_to_size(sizes).ne(0);
}

at::Tensor all_of(const at::Tensor& tensor) { return at::ones(tensor.sizes(), tensor.options().dtype(at::kBool)); }

ValueElements part_of(const Recording& recording, const RecordedStep& step, size_t read, const at::Tensor& mask,
                      bool by_elements) {
  const at::Tensor& from = recording.values[read].tensor;
  if (by_elements && at::is_expandable_to(from.sizes(), mask.sizes())) return {read, reduced_to(mask, from.sizes())};
  if (step.is_view && from.numel() == mask.numel()) return {read, mask.reshape(from.sizes())};
  return {read, all_of(from)};
}

}  // namespace

std::optional<ElementChoice> choice_of(const Recording& recording, const RecordedStep& step, size_t result) {
  const std::string name = name_of(step);
  const std::vector<size_t>& reads = step.reads;
  const auto read = [&](size_t i) { return i < reads.size() ? std::optional(reads[i]) : std::nullopt; };
  const at::Tensor& made = recording.values[result].tensor;
  if (!made.defined() || reads.size() < 2) return std::nullopt;
  const auto condition = [&](size_t i) { return recording.values[reads[i]].tensor.to(at::kBool).expand(made.sizes()); };
  if (name == "aten::where") {
    if (reads.size() == 3) return ElementChoice{condition(0), reads[1], reads[2]};
    if (overload_of(step) == "ScalarSelf") return ElementChoice{condition(0), std::nullopt, reads[1]};
    return ElementChoice{condition(0), reads[1], std::nullopt};
  }
  if (name == "aten::masked_fill") return ElementChoice{condition(1), read(2), reads[0]};
  if (name == "triage::select" && reads.size() == 3)
    return ElementChoice{for_rows(recording.values[reads[0]].tensor, made.sizes()), reads[1], reads[2]};
  if (name == "triage::fix" && result == step.results.front() && !recording.values[result].is_flags)
    return ElementChoice{repaired(recording, step, result), read(2), reads[0]};
  return std::nullopt;
}

std::vector<ValueElements> parts_behind(const Recording& recording, const RecordedStep& step, size_t result,
                                        const at::Tensor& mask) {
  std::vector<ValueElements> parts;
  const auto add = [&](std::optional<size_t> read, const at::Tensor& behind, bool by_elements) {
    if (!read || !recording.values[*read].tensor.defined() || recording.values[*read].is_flags) return;
    ValueElements part = part_of(recording, step, *read, behind, by_elements);
    if (part.mask.any().item<bool>()) parts.push_back(std::move(part));
  };
  if (const auto choice = choice_of(recording, step, result)) {
    add(choice->when_true, mask.logical_and(choice->condition), true);
    add(choice->when_false, mask.logical_and(choice->condition.logical_not()), true);
    return parts;
  }
  if (name_of(step) == "aten::copy" && step.reads.size() == 2) {  // what it writes over is gone
    add(step.reads[1], mask, true);
    return parts;
  }
  const bool by_elements = is_elementwise(step);
  for (const size_t read : step.reads) add(read, mask, by_elements);
  return parts;
}

}  // namespace triage::diagnose
