// Whether a tape may write an output where an input lies.
#include <algorithm>

#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {
namespace {

using Home = Tape::Slot::Home;

}  // namespace

/// Tiles are read before anything is written. Else rows are read where they lie, chunk after chunk: nothing may read the input behind
/// the step that writes the output, which itself reads each value before it writes there.
bool Tape::can_overwrite(size_t input, size_t output) const {
  if (width_ > 1) return true;
  const auto is = [&](int32_t index, Home home, size_t number) {
    if (index < 0) return false;
    const Slot& slot = slots_[static_cast<size_t>(index)];
    return slot.home == home && slot.number == static_cast<int32_t>(number);
  };
  bool written = false, fits = true;
  const auto read = [&](int32_t slot) { fits &= !(written && is(slot, Home::input, input)); };
  for (const Level& level : levels_) {
    for (const Classified& one : level.classified) read(one.element);
    for (const Spread& one : level.spreads) read(one.in);
    for (const Loop& loop : level.loops) {
      for (const Op& op : loop.ops) {
        for (const int32_t slot : op.in) read(slot);
        written |= is(op.out, Home::output, output);
      }
      for (const Reduction& one : loop.reductions) read(one.operand);
    }
    for (const SegmentReduction& one : level.segments) read(one.of.operand);
  }
  return fits && written;
}

}  // namespace triage::fused
