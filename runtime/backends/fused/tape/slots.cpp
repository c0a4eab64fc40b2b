// Where the values of loops lie: registers, and the lists of slots that a run goes through.
#include <algorithm>
#include <map>
#include <set>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;
using How = Steps::OperandChoice::How;

/// The registers of a loop: one is free again behind the last op that reads it.
class Registers {
 public:
  Registers(Steps& steps, Steps::Loop& loop) : steps_(steps), loop_(loop) {}

  void run() {
    find_last_uses();
    std::vector<std::vector<int32_t>> ends(loop_.ops.size());  // of slots, behind each op
    for (const auto& [slot, last] : last_uses_)
      if (last < ends.size() && steps_.slot(slot).home == Home::chunk) ends[last].push_back(slot);
    std::vector<int32_t> free;
    int32_t next = 0;
    for (size_t i = 0; i < loop_.ops.size(); ++i) {
      Steps::TapeSlot& out = steps_.slot(loop_.ops[i].out);
      if (out.home == Home::chunk) {
        out.number = free.empty() ? next++ : free.back();
        if (!free.empty()) free.pop_back();
      }
      for (const int32_t slot : ends[i]) free.push_back(steps_.slot(slot).number);
    }
    steps_.registers = std::max(steps_.registers, next);
  }

  /// The slots that lie elsewhere for each row.
  void find_moving() {
    std::set<int32_t> slots;
    for (const Steps::Op& op : loop_.ops) slots.insert(op.in.begin(), op.in.end()), slots.insert(op.out);
    for (const Steps::Reduction& one : loop_.reductions) {
      slots.insert(one.in.begin(), one.in.end());
      slots.insert({one.edges < 0 ? one.total : -1, one.stored});
      if (!one.merged) slots.insert(one.operand);
    }
    for (const Steps::EdgeReduction& one : loop_.edges) slots.insert(one.totals.begin(), one.totals.end());
    std::set<int32_t> chosen, conditions, seen;
    for (const int32_t choice : loop_.choices) {
      const Steps::OperandChoice& one = steps_.choices[static_cast<size_t>(choice)];
      chosen.insert({one.out, one.of[0], one.of[1]});
      conditions.insert(one.condition);
    }
    for (const Steps::Op& op : loop_.ops)
      for (const Steps::TapeGuard& guard : op.guards) conditions.insert(guard.condition);
    loop_.direct = steps_.width == 1 && !loop_.guarded && loop_.choices.empty();
    for (const int32_t slot : slots) {
      if (slot < 0) continue;
      loop_.direct &= steps_.slot(slot).choice < 0;
      note_conditions(slot, seen, conditions);
      const Home home = steps_.slot(slot).home;
      if (home == Home::cell || home == Home::row || home == Home::input || home == Home::output || chosen.count(slot))
        loop_.moving.push_back(slot);
      if (home == Home::chunk) loop_.registers.push_back(slot);
    }
    loop_.conditions.assign(conditions.begin(), conditions.end());
  }

 private:
  /// Of a slot that may stand for another one, which earlier levels chose: the conditions of these choices.
  void note_conditions(int32_t slot, std::set<int32_t>& seen, std::set<int32_t>& conditions) const {
    const int32_t number = steps_.slot(slot).choice;
    if (number < 0 || !seen.insert(slot).second) return;
    const Steps::OperandChoice& choice = steps_.choices[static_cast<size_t>(number)];
    conditions.insert(choice.condition);
    for (const int32_t other : choice.of) note_conditions(other, seen, conditions);
  }
  void find_last_uses() {
    for (size_t i = 0; i < loop_.ops.size(); ++i) {
      last_uses_[loop_.ops[i].out] = i;
      for (const int32_t in : loop_.ops[i].in)
        if (in >= 0) last_uses_[in] = i;
    }
    for (const Steps::Reduction& one : loop_.reductions) {
      last_uses_[one.operand] = loop_.ops.size();
      for (const int32_t in : one.in)
        if (in >= 0) last_uses_[in] = loop_.ops.size();
    }
    for (size_t i = loop_.choices.size(); i-- > 0;) {  // who reads the result may read the operand
      const Steps::OperandChoice& one = steps_.choices[static_cast<size_t>(loop_.choices[i])];
      for (const size_t which : {0, 1})
        if (one.how[which] == How::forward)
          last_uses_[one.of[which]] = std::max(last_uses_[one.of[which]], last_uses_[one.out]);
    }
  }

  Steps& steps_;
  Steps::Loop& loop_;
  std::map<int32_t, size_t> last_uses_;
};

/// Which slots steps name: a call finds the places of these alone.
class UsedSlots {
 public:
  explicit UsedSlots(const Steps& steps) : used_(steps.slots.size()) {
    for (const auto& [slot, extent] : steps.counts) add(slot);
    for (const int32_t slot : steps.zeros) add(slot);
    for (const std::vector<Steps::Transfer>* list : {&steps.numbers, &steps.reads, &steps.writes})
      for (const Steps::Transfer& one : *list) add(one.slot);
    for (const Steps::Op& op : steps.once) add(op);
    for (const Steps::Spread& one : steps.spread_once) add(one);
    for (const Steps::Positions& one : steps.positions) add(one.out);
    for (const Steps::OperandChoice& one : steps.choices) add(one.condition), add(one.out), add_all(one.of);
    for (const Steps::Fetch& one : {steps.fetched_input, steps.fetched_output}) add(one.slot);
    for (const Steps::Level& level : steps.levels) add(level);
  }
  bool operator[](int32_t slot) const { return used_[static_cast<size_t>(slot)]; }

 private:
  void add(int32_t slot) {
    if (slot >= 0) used_[static_cast<size_t>(slot)] = true;
  }
  template <class Slots>
  void add_all(const Slots& slots) {
    for (const int32_t slot : slots) add(slot);
  }
  void add(const Steps::Spread& one) { add(one.in), add(one.out); }
  void add(const Steps::Op& op) {
    add(op.out), add_all(op.in);
    for (const Steps::TapeGuard& guard : op.guards) add(guard.condition);
  }
  void add(const Steps::Reduction& one) {
    add(one.out), add(one.stored), add_all(one.in), add_all(one.bounds);
    if (one.edges < 0) add(one.total);
    if (!one.merged) add(one.operand);
  }
  void add(const Steps::Level& level) {
    for (const Steps::Op& op : level.cells) add(op);
    for (const Steps::Classified& one : level.classified) add(one.element), add(one.largest), add(one.out);
    for (const Steps::Op& op : level.after) add(op);
    for (const Steps::Spread& one : level.spreads) add(one);
    for (const Steps::SegmentReduction& one : level.segments) add(one.of);
    if (level.only) add(level.only->condition);
    for (const Steps::Loop& loop : level.loops) {
      for (const Steps::Op& op : loop.ops) add(op);
      for (const Steps::Reduction& one : loop.reductions) add(one);
      for (const Steps::EdgeReduction& one : loop.edges) add(one.values), add(one.stored), add_all(one.totals);
      add_all(loop.conditions);
      if (loop.only) add(loop.only->condition);
    }
  }
  std::vector<bool> used_;
};

}  // namespace

void allot_registers(Steps& steps) {
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) {
      Registers registers(steps, loop);
      registers.run();
      registers.find_moving();
      steps.most_ops = std::max(steps.most_ops, loop.ops.size());
    }
}

void find_read_again(Steps& steps) {
  for (size_t i = 1; i < steps.levels.size(); ++i) {
    const auto mark = [&](int32_t slot) {
      if (slot >= 0) steps.slot(slot).again = true;
    };
    for (const Steps::Spread& one : steps.levels[i].spreads) mark(one.in);
    for (const Steps::SegmentReduction& one : steps.levels[i].segments) mark(one.of.operand);
    for (const Steps::Loop& loop : steps.levels[i].loops) {
      for (const Steps::Op& op : loop.ops) {
        if (!op.guards.empty()) continue;  // rows that are different are few
        mark(op.out);
        for (const int32_t in : op.in) mark(in);
      }
      for (const Steps::Reduction& one : loop.reductions) {
        mark(one.operand), mark(one.stored);
        for (const int32_t in : one.in) mark(in);
      }
    }
  }
}

void sort_slots(Steps& steps) {
  const UsedSlots used(steps);
  for (int32_t i = 0; i < static_cast<int32_t>(steps.slots.size()); ++i)
    if (used[i]) steps.by_home.push_back(i);
  const auto home = [&](int32_t index) { return steps.slot(index).home; };
  std::stable_sort(steps.by_home.begin(), steps.by_home.end(),
                   [&](int32_t one, int32_t other) { return home(one) < home(other); });
  for (const int32_t index : steps.by_home) {
    const bool of_caller = home(index) == Home::input || home(index) == Home::output;
    if (of_caller) steps.of_caller.push_back(index);
    if (home(index) == Home::row || home(index) == Home::shared || (of_caller && steps.slot(index).again))
      steps.held.push_back(index);
  }
}

}  // namespace triage::fused
