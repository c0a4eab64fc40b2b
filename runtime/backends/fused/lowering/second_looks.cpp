// One tensor whose rows are looked at as segments in two ways: for reductions over different dims. Each way is an
// extent of its own, with loops of its own over the row, which is in the cache after the first. What belongs to the
// positions is computed again there, where that takes no longer than to read it.
#include <algorithm>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {

using ValueKind = LoopValue::Kind;

/// Fewer steps than to read a value from memory takes.
constexpr size_t most_repeated = 8;

/// The value at the positions of `extent`, those of extent `first` looked at in another way; nothing where it takes
/// long.
std::optional<Ref> Lowering::value_again(Ref ref, int32_t first, int32_t extent, std::map<Ref, Ref>& known) {
  const LoopValue from = value(ref);
  if (from.place != Place::element) return ref;
  const RowExtent& here = extents_.at(extent);
  const int32_t own = extents_.root(from.extent);
  if (own != first) return own == here.segments || own == here.positions ? std::optional(ref) : std::nullopt;
  if (const auto found = known.find(ref); found != known.end()) return found->second;
  if (known.size() == most_repeated) return std::nullopt;
  if (from.kind == ValueKind::input) {
    const LoopInput input = loops_.inputs[static_cast<size_t>(from.slot)];
    if (extents_.at(input.form.extent).sizes != here.sizes) return std::nullopt;
    TensorForm form = input.form;
    form.extent = extent;
    const graph::Value* const tensor = arguments_[input.argument];
    if (const auto read = columns_.find({tensor, extent}); read != columns_.end()) return read->second;
    const Ref made = read(*tensor, form);
    loops_.inputs.back().viewed = input.viewed;
    return columns_[{tensor, extent}] = known[ref] = made;
  }
  if (from.kind != ValueKind::map || from.opcode == Opcode::position || row_of(from.opcode).slow) return std::nullopt;
  LoopValue made = from;
  made.extent = extent;
  for (Ref& operand : made.operands) {
    const auto again = value_again(operand, first, extent, known);
    if (!again) return std::nullopt;
    operand = *again;
  }
  return known[ref] = add_value(std::move(made));
}

std::optional<Lowered> Lowering::split_again(const Lowered& x, const std::vector<bool>& outside) {
  const int32_t first = x.form.extent;
  if (extents_.root(first) != first || extents_.at(first).segments < 0) return std::nullopt;
  const auto extent = extents_.again(first, outside);
  std::map<Ref, Ref> known;
  const auto value = extent ? value_again(x.value, first, *extent, known) : std::nullopt;
  if (!value || this->value(*value).extent != *extent) return std::nullopt;
  Lowered again{x.form, *value};
  again.form.extent = *extent;
  return again;
}

}  // namespace triage::fused
