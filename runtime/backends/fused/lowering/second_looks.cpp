// One tensor whose rows are looked at as segments in two ways: for reductions over different dims. Each way is an extent of its own,
// with loops of its own over the row, which is in the cache after the first. What belongs to the positions is computed again there,
// where that takes no longer than to read it.
#include <algorithm>

#include "runtime/backends/fused/lowering/lowering.h"

namespace triage::fused {

using ValueKind = LoopValue::Kind;

/// Fewer steps than to read a value from memory takes.
constexpr size_t most_repeated = 8;

/// An extent of the same sizes, whose segments are numbered by the dims `outside`. Segments become positions, and the other way round,
/// where these are the same dims; then what belongs to one of them is there for both extents.
std::optional<int32_t> Lowering::extent_again(int32_t first, const std::vector<bool>& outside) {
  for (size_t i = 0; i < loops_.extents.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (loops_.extents[i].again == first && this->outside(index) == outside) return index;
  }
  const Extent whole = extent_at(first);
  std::vector<bool> turned = outside;
  turned.flip();
  const auto begin = std::find(outside.begin(), outside.end(), false), end = std::find(begin, outside.end(), true);
  if (std::find(end, outside.end(), false) != outside.end()) return std::nullopt;
  Extent made{whole.sizes};
  made.again = first;
  if (turned == this->outside(first) && (whole.inner < 0 || whole.inner == whole.segments)) {
    made.segments = whole.positions, made.positions = whole.segments;
    made.inner = end == outside.end() ? -1 : made.segments;
  } else {
    const auto fresh = [&](std::vector<int64_t> sizes) {
      loops_.extents.push_back({std::move(sizes)});
      return static_cast<int32_t>(loops_.extents.size() - 1);
    };
    const auto at = [&](auto place) { return whole.sizes.begin() + (place - outside.begin()); };
    std::vector<int64_t> around(whole.sizes.begin(), at(begin));
    around.insert(around.end(), at(end), whole.sizes.end());
    made.segments = fresh(around), made.positions = fresh({at(begin), at(end)});
    if (end != outside.end())
      made.inner = begin == outside.begin() ? made.segments : fresh({at(end), whole.sizes.end()});
  }
  loops_.extents.push_back(made);
  Reshape same{first, static_cast<int32_t>(loops_.extents.size() - 1), {}};
  for (size_t dim = 0; dim < made.sizes.size(); ++dim)
    same.sizes.push_back({Reshape::Size::From::dim, static_cast<int64_t>(dim)});
  loops_.reshapes.push_back(std::move(same));
  return loops_.reshapes.back().to;
}

/// The value at the positions of `extent`, those of extent `first` looked at in another way; nothing where it takes long.
std::optional<Ref> Lowering::value_again(Ref ref, int32_t first, int32_t extent, std::map<Ref, Ref>& known) {
  const LoopValue from = value(ref);
  if (from.place != Place::element) return ref;
  const Extent& here = loops_.extents[static_cast<size_t>(extent)];
  const int32_t own = root(from.extent);
  if (own != first) return own == here.segments || own == here.positions ? std::optional(ref) : std::nullopt;
  if (const auto found = known.find(ref); found != known.end()) return found->second;
  if (known.size() == most_repeated) return std::nullopt;
  if (from.kind == ValueKind::input) {
    const LoopInput input = loops_.inputs[static_cast<size_t>(from.slot)];
    if (extent_at(input.form.extent).sizes != here.sizes) return std::nullopt;
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
  if (root(first) != first || extent_at(first).segments < 0) return std::nullopt;
  const auto extent = extent_again(first, outside);
  std::map<Ref, Ref> known;
  const auto value = extent ? value_again(x.value, first, *extent, known) : std::nullopt;
  if (!value || this->value(*value).extent != *extent) return std::nullopt;
  Lowered again{x.form, *value};
  again.form.extent = *extent;
  return again;
}

}  // namespace triage::fused
