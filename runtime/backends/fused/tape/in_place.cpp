// An output in the memory of an input: nobody may read a row of the input once the output has written there.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {
namespace {

using Home = Steps::Slot::Home;

/// The slots that may lie in memory of the caller: `whose`, and by selections those that are read, or written, in its place.
std::set<int32_t> slots_in(const Steps& steps, Home whose, size_t number) {
  std::multimap<int32_t, int32_t> also;  // where the first does, the second may
  for (const Steps::Choice& one : steps.choices)
    for (const size_t which : {0, 1}) {
      if (one.how[which] == Steps::Choice::How::forward) also.emplace(one.of[which], one.out);
      if (one.how[which] == Steps::Choice::How::through) also.emplace(one.out, one.of[which]);
    }
  std::vector<int32_t> left;
  for (size_t i = 0; i < steps.slots.size(); ++i)
    if (steps.slots[i].home == whose && steps.slots[i].number == static_cast<int32_t>(number))
      left.push_back(static_cast<int32_t>(i));
  std::set<int32_t> slots;
  while (!left.empty()) {
    const int32_t slot = left.back();
    left.pop_back();
    if (!slots.insert(slot).second) continue;
    const auto [begin, end] = also.equal_range(slot);
    for (auto next = begin; next != end; ++next) left.push_back(next->second);
  }
  return slots;
}

}  // namespace

bool can_be_in_place(const Steps& steps, const InPlace& where) {
  if (steps.width > 1) return true;  // tiles are read before, and written after
  const std::set<int32_t> inputs = slots_in(steps, Home::input, where.slot),
                          outputs = slots_in(steps, Home::output, where.output);
  const auto is_input = [&](int32_t slot) { return inputs.count(slot) > 0; };
  const auto is_output = [&](int32_t slot) { return outputs.count(slot) > 0; };
  bool written = false;
  for (const Steps::Level& level : steps.levels) {
    for (const Steps::Classified& one : level.classified)
      if (written && is_input(one.element)) return false;
    for (const Steps::Spread& one : level.spreads)
      if (written && is_input(one.in)) return false;
    for (const Steps::Loop& loop : level.loops) {
      bool here = written;
      for (const Steps::Op& op : loop.ops) {
        if (here && std::any_of(op.in.begin(), op.in.end(), is_input)) return false;
        here |= is_output(op.out);
      }
      const auto reads = [&](const Steps::Reduction& one) {
        return (!one.merged && is_input(one.operand)) || std::any_of(one.in.begin(), one.in.end(), is_input);
      };
      for (const Steps::Reduction& one : loop.reductions) {
        if (here && reads(one)) return false;
        // Each goes over all positions before the next one does, and a search may do so twice.
        for (const Steps::Reduction& other : loop.reductions)
          if (&other != &one && is_output(other.stored) && reads(one)) return false;
      }
      for (const Steps::Reduction& one : loop.reductions) here |= is_output(one.stored);
      written = here;
    }
    for (const Steps::SegmentReduction& one : level.segments)
      if (written && is_input(one.of.operand)) return false;
  }
  return true;
}

}  // namespace triage::fused
