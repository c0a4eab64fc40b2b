// Memory of outputs that is used before they are written: by an input that the caller gives away, and by values that a row keeps
// from one level to a later one. Nobody may read those once the output has written there.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {
namespace {

using Home = Steps::Slot::Home;

/// With these, the slots that selections may read or write in their place.
std::set<int32_t> with_chosen(const Steps& steps, std::vector<int32_t> left) {
  std::multimap<int32_t, int32_t> also;  // where the first lies, the second may
  for (const Steps::Choice& one : steps.choices)
    for (const size_t which : {0, 1}) {
      if (one.how[which] == Steps::Choice::How::forward) also.emplace(one.of[which], one.out);
      if (one.how[which] == Steps::Choice::How::through) also.emplace(one.out, one.of[which]);
    }
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

/// The slots that may lie in this memory of the caller.
std::set<int32_t> slots_in(const Steps& steps, Home whose, size_t number) {
  std::vector<int32_t> own;
  for (size_t i = 0; i < steps.slots.size(); ++i)
    if (steps.slots[i].home == whose && steps.slots[i].number == static_cast<int32_t>(number))
      own.push_back(static_cast<int32_t>(i));
  return with_chosen(steps, std::move(own));
}

/// Where a slot is read and written, as (level, step): the ops of a loop come one after the other, then its reductions.
class SlotUses {
 public:
  using Time = std::pair<size_t, size_t>;
  SlotUses(const Steps& steps, const std::set<int32_t>& slots) : slots_(slots) {
    for (size_t i = 0; i < steps.levels.size(); ++i) {
      const Steps::Level& level = steps.levels[i];
      for (const Steps::Op& op : level.cells) note_elsewhere(op.in);
      for (const Steps::Op& op : level.after) note_elsewhere(op.in);
      for (const Steps::Classified& one : level.classified) note_elsewhere(std::array{one.element});
      for (const Steps::Spread& one : level.spreads) note_elsewhere(std::array{one.in, one.out});
      for (const Steps::SegmentReduction& one : level.segments) note_elsewhere(std::array{one.of.operand, one.of.out});
      for (const Steps::Loop& loop : level.loops) note(loop, i);
    }
    for (const Steps::Transfer& one : steps.writes) note_elsewhere(std::array{one.slot});
  }
  bool only_in_loops = true;
  std::vector<Time> reads, writes;

 private:
  template <class Slots>
  bool any_of(const Slots& slots) const {
    return std::any_of(slots.begin(), slots.end(), [&](int32_t slot) { return slots_.count(slot) > 0; });
  }
  template <class Slots>
  void note_elsewhere(const Slots& slots) {
    only_in_loops &= !any_of(slots);
  }
  void note(const Steps::Loop& loop, size_t level) {
    const size_t end = loop.ops.size();
    for (size_t k = 0; k < end; ++k) {
      if (any_of(loop.ops[k].in)) reads.emplace_back(level, k);
      if (slots_.count(loop.ops[k].out)) writes.emplace_back(level, k);
    }
    for (const Steps::Reduction& one : loop.reductions) {
      if (any_of(one.in) || (!one.merged && slots_.count(one.operand))) reads.emplace_back(level, end);
      if (slots_.count(one.stored)) writes.emplace_back(level, end);
    }
  }
  const std::set<int32_t>& slots_;
};

/// Whether rows of the slot are no longer read when the output is written, and both lie alike.
bool can_lie_in(const Steps& steps, int32_t kept, int32_t output) {
  const Steps::Slot &row = steps.slot(kept), &out = steps.slot(output);
  if (row.size != out.size || row.extent != out.extent || row.choice >= 0) return false;
  const std::set<int32_t> rows = with_chosen(steps, {kept}),
                          outputs = slots_in(steps, Home::output, static_cast<size_t>(out.number));
  const SlotUses of_row(steps, rows), of_output(steps, outputs);
  if (!of_row.only_in_loops || !of_output.only_in_loops || of_output.writes.empty()) return false;
  if (of_row.reads.empty() || of_row.writes.size() != 1) return false;
  const auto written = *std::min_element(of_output.writes.begin(), of_output.writes.end());
  const auto read = *std::max_element(of_row.reads.begin(), of_row.reads.end());
  const bool same_loop = written.first == read.first;
  return read.first <= written.first && of_row.writes[0].first < written.first &&
         (!same_loop || (read.second <= written.second && steps.levels[read.first].is_one_loop() &&
                         read.second < steps.levels[read.first].loops[0].ops.size()));
}

}  // namespace

void keep_in_outputs(Steps& steps, const std::optional<InPlace>& in_place) {
  if (steps.width > 1) return;
  std::set<int32_t> taken;
  if (in_place) taken.insert(static_cast<int32_t>(in_place->output));
  for (size_t i = 0; i < steps.slots.size(); ++i)
    for (size_t k = 0; k < steps.slots.size() && steps.slots[i].home == Home::row; ++k) {
      const auto kept = static_cast<int32_t>(i), output = static_cast<int32_t>(k);
      if (steps.slots[k].home != Home::output || taken.count(steps.slots[k].number)) continue;
      if (!can_lie_in(steps, kept, output)) continue;
      taken.insert(steps.slots[k].number);
      steps.slots[i] = steps.slots[k];
    }
}

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
