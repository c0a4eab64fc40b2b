// Memory of outputs that is used before they are written: by an input that the caller gives away, and by values that a
// row keeps from one level to a later one. Nobody may read those once the output has written there.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/backends/fused/tape/steps.h"
#include "runtime/backends/fused/tape/tape.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;

/// Which slots selections may read or write in the place of others.
class SlotAliases {
 public:
  explicit SlotAliases(const Steps& steps) : steps_(steps) {
    for (const Steps::OperandChoice& one : steps.choices)
      for (const size_t which : {0, 1}) {
        if (one.how[which] == Steps::OperandChoice::How::forward) also_.emplace(one.of[which], one.out);
        if (one.how[which] == Steps::OperandChoice::How::through) also_.emplace(one.out, one.of[which]);
      }
  }
  /// These slots, and those that may lie where they do.
  std::set<int32_t> with(std::vector<int32_t> left) const {
    std::set<int32_t> slots;
    while (!left.empty()) {
      const int32_t slot = left.back();
      left.pop_back();
      if (!slots.insert(slot).second) continue;
      const auto [begin, end] = also_.equal_range(slot);
      for (auto next = begin; next != end; ++next) left.push_back(next->second);
    }
    return slots;
  }
  /// The slots that may lie in this memory of the caller.
  std::set<int32_t> in(Home whose, size_t number) const {
    std::vector<int32_t> own;
    for (size_t i = 0; i < steps_.slots.size(); ++i)
      if (steps_.slots[i].home == whose && steps_.slots[i].number == static_cast<int32_t>(number))
        own.push_back(static_cast<int32_t>(i));
    return with(std::move(own));
  }

 private:
  const Steps& steps_;
  std::multimap<int32_t, int32_t> also_;  // where the first lies, the second may
};

/// When a slot, or one of several, is read and written. The ops of a loop come one after the other, then its
/// reductions.
struct SlotUse {
  using Time = std::pair<size_t, size_t>;  // level, step
  bool only_in_loops = true;
  size_t writes = 0;
  std::optional<Time> last_read, first_write;

  void add(const SlotUse& other) {
    only_in_loops &= other.only_in_loops;
    writes += other.writes;
    if (other.last_read) last_read = std::max(last_read.value_or(*other.last_read), *other.last_read);
    if (other.first_write) first_write = std::min(first_write.value_or(*other.first_write), *other.first_write);
  }
};

/// Of every slot.
class SlotUses {
 public:
  explicit SlotUses(const Steps& steps) : uses_(steps.slots.size()) {
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
  SlotUse of(const std::set<int32_t>& slots) const {
    SlotUse all;
    for (const int32_t slot : slots) all.add(uses_[static_cast<size_t>(slot)]);
    return all;
  }

 private:
  void add(int32_t slot, const SlotUse& use) {
    if (slot >= 0) uses_[static_cast<size_t>(slot)].add(use);
  }
  template <class Slots>
  void note_elsewhere(const Slots& slots) {
    for (const int32_t slot : slots) add(slot, {false, 0, {}, {}});
  }
  void note(const Steps::Loop& loop, size_t level) {
    const size_t end = loop.ops.size();
    const auto read = [&](int32_t slot, size_t step) { add(slot, {true, 0, SlotUse::Time{level, step}, {}}); };
    const auto write = [&](int32_t slot, size_t step) { add(slot, {true, 1, {}, SlotUse::Time{level, step}}); };
    for (size_t k = 0; k < end; ++k) {
      for (const int32_t slot : loop.ops[k].in) read(slot, k);
      write(loop.ops[k].out, k);
    }
    for (const Steps::Reduction& one : loop.reductions) {
      for (const int32_t slot : one.in) read(slot, end);
      if (!one.merged) read(one.operand, end);
      write(one.stored, end);
    }
  }
  std::vector<SlotUse> uses_;
};

/// Whether rows that are kept are no longer read when an output is written.
bool ends_before(const Steps& steps, const SlotUse& kept, const SlotUse& output) {
  if (!kept.only_in_loops || !output.only_in_loops || !output.first_write) return false;
  if (!kept.last_read || kept.writes != 1) return false;
  const auto [written, at_step] = *output.first_write;
  const auto [read, by_step] = *kept.last_read;
  if (kept.first_write->first >= written || read > written) return false;
  if (read < written) return true;
  const Steps::Level& level = steps.levels[read];  // where one op reads a place and writes there, or a later one
  return level.is_one_loop() && by_step <= at_step && by_step < level.loops[0].ops.size();
}

}  // namespace

void keep_in_outputs(Steps& steps, const std::optional<InPlace>& in_place) {
  if (steps.width > 1) return;
  std::vector<int32_t> kept, outputs;
  for (size_t i = 0; i < steps.slots.size(); ++i) {
    const Steps::TapeSlot& slot = steps.slots[i];
    if (slot.home == Home::row && slot.choice < 0) kept.push_back(static_cast<int32_t>(i));
    if (slot.home == Home::output && !(in_place && slot.number == static_cast<int32_t>(in_place->output)))
      outputs.push_back(static_cast<int32_t>(i));
  }
  if (kept.empty() || outputs.empty()) return;
  const SlotAliases chosen(steps);
  const SlotUses uses(steps);
  std::map<int32_t, SlotUse> free;  // by the number of the output
  for (const int32_t output : outputs) {
    const int32_t number = steps.slot(output).number;
    if (!free.count(number)) free[number] = uses.of(chosen.in(Home::output, static_cast<size_t>(number)));
  }
  for (const int32_t row : kept) {
    const SlotUse use = uses.of(chosen.with({row}));
    for (const int32_t output : outputs) {
      const Steps::TapeSlot there = steps.slot(output);
      const auto found = free.find(there.number);
      if (found == free.end() || steps.slot(row).size != there.size || steps.slot(row).extent != there.extent ||
          !ends_before(steps, use, found->second))
        continue;
      steps.slot(row) = there;
      free.erase(found);
      break;
    }
  }
}

std::vector<InPlace> in_place_choices(const Loops& loops) {
  constexpr size_t most = 64;                        // each is a tape of its own once a call asks for it
  std::map<size_t, int> slots;                       // how many slots an argument has
  std::vector<Ref> inputs(loops.inputs.size(), -1);  // by their slots
  for (const LoopInput& input : loops.inputs) ++slots[input.argument];
  for (size_t i = 0; i < loops.values.size(); ++i)
    if (loops.values[i].kind == LoopValue::Kind::input)
      inputs[static_cast<size_t>(loops.values[i].slot)] = static_cast<Ref>(i);
  const auto is_alike = [&](const InPlace& choice) {
    const TensorForm &out = loops.outputs[choice.output].form, &in = loops.inputs[choice.slot].form;
    return out.kind == TensorForm::Kind::element && in.kind == out.kind && in.dtype == out.dtype &&
           in.extent == out.extent && in.rank == out.rank && in.trailing == out.trailing &&
           slots[loops.inputs[choice.slot].argument] == 1;
  };
  const auto is_selection = [&](const InPlace& choice) {
    const LoopValue& value = loops.values[static_cast<size_t>(loops.outputs[choice.output].value)];
    const Ref input = inputs[choice.slot];
    return value.is(Opcode::pick) && loops.values[static_cast<size_t>(value.operands[0])].place == Place::row &&
           (value.operands[1] == input || value.operands[2] == input);
  };
  std::vector<InPlace> choices;
  for (size_t output = 0; output < loops.outputs.size(); ++output)
    for (size_t slot = 0; slot < loops.inputs.size(); ++slot)
      if (is_alike({output, slot})) choices.push_back({output, slot});
  std::stable_partition(choices.begin(), choices.end(), is_selection);
  if (choices.size() > most) choices.resize(most);
  return choices;
}

bool can_be_in_place(const Steps& steps, const InPlace& where) {
  if (steps.width > 1) return true;  // tiles are read before, and written after
  const SlotAliases chosen(steps);
  const std::set<int32_t> inputs = chosen.in(Home::input, where.slot), outputs = chosen.in(Home::output, where.output);
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
