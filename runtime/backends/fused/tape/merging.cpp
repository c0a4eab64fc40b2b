// Finds steps that the table of merges has as one, and gives out the registers of loops.
#include "runtime/backends/fused/tape/merges.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/backends/fused/tape/steps.h"
#include "runtime/graph/visits.h"

namespace triage::fused {
namespace {

using Home = Steps::Slot::Home;
using How = Steps::Choice::How;

void drop(std::vector<Steps::Op>& ops, const std::vector<bool>& gone) {
  std::vector<Steps::Op> left;
  for (size_t i = 0; i < ops.size(); ++i)
    if (!gone[i]) left.push_back(std::move(ops[i]));
  ops = std::move(left);
}

class MergesOfLoop {
 public:
  MergesOfLoop(Steps& steps, Steps::Loop& loop) : steps_(steps), loop_(loop) {}

  void run() {
    look();
    for (size_t merge = 0; merge < merges.size(); ++merge)
      if (merges[merge].joined < 0) {
        for (size_t i = loop_.ops.size(); i-- > 0;)
          if (!removed_[i]) map(merge, i);
      } else if (steps_.width == 1) {
        for (Steps::Reduction& one : loop_.reductions) join(merge, one);
      }
    drop(loop_.ops, removed_);
  }

 private:
  static constexpr auto no_ops = [] {
    std::array<int, Merge::most_nodes> ops{};
    for (int& op : ops) op = -1;
    return ops;
  }();
  /// What the nodes and operands of a merge are in this loop.
  struct Found {
    Steps::Operands operands = Steps::none;
    std::array<int, Merge::most_nodes> ops = no_ops;
    std::optional<Type> type;
  };

  void look() {
    removed_.assign(loop_.ops.size(), false);
    for (size_t i = 0; i < loop_.ops.size(); ++i) {
      producers_[loop_.ops[i].out].insert(static_cast<int>(i));
      note_reads(loop_.ops[i].in, static_cast<int>(i));
    }
    for (size_t i = 0; i < loop_.reductions.size(); ++i) {
      const Steps::Reduction& one = loop_.reductions[i];
      if (!one.merged) readers_[one.operand].insert(reader_of(i));
      note_reads(one.in, reader_of(i));
    }
  }
  static int reader_of(size_t reduction) { return -1 - static_cast<int>(reduction); }
  void note_reads(const Steps::Operands& in, int reader) {
    graph::count_visits();
    for (const int32_t slot : in)
      if (slot >= 0) readers_[slot].insert(reader);
  }
  void forget_reads(const Steps::Operands& in, int reader) {
    for (const int32_t slot : in)
      if (slot >= 0) readers_[slot].erase(reader);
  }

  const Steps::Op& op(int i) const { return loop_.ops[static_cast<size_t>(i)]; }
  /// The one op that makes a value; -1 where there are none or several.
  int producer(int32_t slot) const {
    const auto found = producers_.find(slot);
    return found == producers_.end() || found->second.size() != 1 ? -1 : *found->second.begin();
  }

  bool node_is(const Merge& merge, int8_t node, int i, Found& found) const {
    graph::count_visits();
    const auto k = static_cast<size_t>(node);
    if (i < 0) return false;
    if (found.ops[k] >= 0) return found.ops[k] == i;
    const bool of_conditions = row_of(op(i).opcode).signature == "b:b";
    if (op(i).opcode != merge.nodes[k].opcode || op(i).choice >= 0 || !(of_conditions || is(found, op(i).type)))
      return false;
    found.ops[k] = i;
    for (size_t operand = 0; operand < row_of(op(i).opcode).arity(); ++operand)
      if (!operand_is(merge, merge.nodes[k].in[operand], op(i).in[operand], op(i).single >> operand & 1, found))
        return false;
    return true;
  }
  static bool is(Found& found, Type type) { return found.type.value_or(type) == type && (found.type = type, true); }

  bool operand_is(const Merge& merge, int8_t which, int32_t slot, bool single, Found& found) const {
    if (which < 0) return !single && node_is(merge, static_cast<int8_t>(-1 - which), producer(slot), found);
    const auto k = static_cast<size_t>(which);
    if ((merge.operands[k] == 's') != single || (found.operands[k] >= 0 && found.operands[k] != slot)) return false;
    found.operands[k] = slot;
    return true;
  }

  using Gone = std::array<bool, Merge::most_nodes>;
  /// The nodes that nobody else reads, so that the merge leaves nothing of them. Nothing where it does not pay: what others read
  /// too is computed twice, which must be cheap, and some step must be saved. `reduction`: that the merge becomes a part of, or -1.
  std::optional<Gone> leaves(const Merge& merge, const Found& found, int reduction) const {
    Gone gone{};
    const auto root = static_cast<size_t>(reduction >= 0 ? merge.joined : merge.stored);
    int saved = reduction >= 0;
    for (size_t k = merge.count; k-- > 0;) {
      const bool stored = static_cast<int8_t>(k) == merge.stored;
      const bool others = is_read_by_others(merge, found, gone, k, reduction);
      const bool in_memory = steps_.slot(op(found.ops[k]).out).home != Home::chunk;
      gone[k] = stored || (!others && !in_memory);
      if (reduction >= 0 && (stored || k == root) && others) return std::nullopt;  // it comes after all ops
      if (!gone[k] && (k == root || row_of(op(found.ops[k]).opcode).slow)) return std::nullopt;
      saved += gone[k] && k != root;
    }
    return saved > 0 ? std::optional(gone) : std::nullopt;
  }
  bool is_read_by_others(const Merge& merge, const Found& found, const Gone& gone, size_t k, int reduction) const {
    const int32_t out = op(found.ops[k]).out;
    if (std::count(found.operands.begin(), found.operands.end(), out)) return true;  // t + t, where t is a * b
    const auto read = readers_.find(out);
    if (read == readers_.end()) return false;
    return std::any_of(read->second.begin(), read->second.end(), [&](int reader) {
      if (reader < 0) return reduction < 0 || reader != reader_of(static_cast<size_t>(reduction));
      for (size_t node = 0; node < merge.count; ++node)
        if (found.ops[node] == reader) return !gone[node];
      return true;
    });
  }

  void map(size_t number, size_t i) {
    const Merge& merge = merges[number];
    Found found;
    if (!node_is(merge, merge.stored, static_cast<int>(i), found)) return;
    const auto gone = leaves(merge, found, -1);
    if (!gone) return;
    Steps::Op& last = loop_.ops[i];
    for (size_t k = 0; k < merge.count; ++k)
      if (!(op(found.ops[k]).guards == last.guards)) return;
    const MapStep step = primitives().merged(number, *found.type);
    if (!step) return;
    forget_reads(last.in, static_cast<int>(i));
    last.step = step, last.in = found.operands, last.numbers.clear();
    last.opcode = Opcode::literal, last.single = 0;
    note_reads(last.in, static_cast<int>(i));
    remove(merge, found, *gone, static_cast<int>(i));
  }

  void join(size_t number, Steps::Reduction& one) {
    const Merge& merge = merges[number];
    const int reduction = static_cast<int>(&one - loop_.reductions.data());
    if (one.merged || one.join != merge.join) return;
    Found found;
    if (!node_is(merge, merge.joined, producer(one.operand), found)) return;
    if (merge.stored >= 0 && merge.stored != merge.joined && !find_stored(merge, found)) return;
    const auto gone = leaves(merge, found, reduction);
    if (!gone) return;
    for (size_t k = 0; k < merge.count; ++k)
      if (!op(found.ops[k]).guards.empty()) return;
    const MergedJoin merged = primitives().merged_join(number, *found.type);
    if (!merged) return;
    const int32_t stored = merge.stored < 0 ? -1 : op(found.ops[static_cast<size_t>(merge.stored)]).out;
    if (stored >= 0 && steps_.slot(stored).home == Home::chunk) return;  // another merge stores nothing
    readers_[one.operand].erase(reader_of(static_cast<size_t>(reduction)));
    one.merged = merged, one.in = found.operands, one.stored = stored;
    note_reads(one.in, reader_of(static_cast<size_t>(reduction)));
    remove(merge, found, *gone, -1);
  }

  /// Adds the op whose result the merge stores: it reads an operand, or a node that is found already.
  bool find_stored(const Merge& merge, Found& found) const {
    const int8_t read = merge.nodes[static_cast<size_t>(merge.stored)].in[0];
    const auto readers = readers_.find(read >= 0 ? found.operands[static_cast<size_t>(read)]
                                                 : op(found.ops[static_cast<size_t>(-1 - read)]).out);
    if (readers == readers_.end()) return false;
    for (const int reader : readers->second) {
      Found with = found;
      if (node_is(merge, merge.stored, reader, with)) {
        found = with;
        return true;
      }
    }
    return false;
  }

  /// Removes what is gone, but for the op that the merge took the place of.
  void remove(const Merge& merge, const Found& found, const Gone& gone, int but) {
    for (size_t k = 0; k < merge.count; ++k) {
      const int i = found.ops[k];
      if (!gone[k] || i == but) continue;
      removed_[static_cast<size_t>(i)] = true;
      producers_[op(i).out].erase(i);
      forget_reads(op(i).in, i);
    }
  }

  Steps& steps_;
  Steps::Loop& loop_;
  std::vector<bool> removed_;
  std::map<int32_t, std::set<int>> producers_, readers_;  // ops; reductions: reader_of
};

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
      Steps::Slot& out = steps_.slot(loop_.ops[i].out);
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
      slots.insert({one.total, one.stored});
      if (!one.merged) slots.insert(one.operand);
    }
    std::set<int32_t> chosen, conditions, seen;
    for (const int32_t choice : loop_.choices) {
      const Steps::Choice& one = steps_.choices[static_cast<size_t>(choice)];
      chosen.insert({one.out, one.of[0], one.of[1]});
      conditions.insert(one.condition);
    }
    for (const Steps::Op& op : loop_.ops)
      for (const Steps::Guard& guard : op.guards) conditions.insert(guard.condition);
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
    const Steps::Choice& choice = steps_.choices[static_cast<size_t>(number)];
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
      const Steps::Choice& one = steps_.choices[static_cast<size_t>(loop_.choices[i])];
      for (const size_t which : {0, 1})
        if (one.how[which] == How::forward)
          last_uses_[one.of[which]] = std::max(last_uses_[one.of[which]], last_uses_[one.out]);
    }
  }

  Steps& steps_;
  Steps::Loop& loop_;
  std::map<int32_t, size_t> last_uses_;
};

}  // namespace

void drop_unread(Steps& steps) {
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) {
      std::set<int32_t> read;
      std::vector<bool> unread(loop.ops.size());
      for (const Steps::Reduction& one : loop.reductions) read.insert(one.operand);
      for (size_t i = loop.ops.size(); i-- > 0;) {
        const Steps::Op& op = loop.ops[i];
        unread[i] = steps.slot(op.out).home == Home::chunk && !read.count(op.out);
        if (!unread[i]) read.insert(op.in.begin(), op.in.end());
      }
      drop(loop.ops, unread);
    }
}

void merge_steps(Steps& steps) {
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) MergesOfLoop(steps, loop).run();
}

namespace {

/// The last of the levels from `begin` to `end` that computes long enough to fetch memory meanwhile: of those with a loop that is
/// slow, else of those with a merge that joins.
Steps::Fetch fetched_in(const Steps& steps, size_t begin, size_t end, int32_t slot) {
  Steps::Fetch last{-1, slot};
  for (size_t i = begin; i < end; ++i)
    for (const Steps::Loop& loop : steps.levels[i].loops) {
      const bool merges = std::any_of(loop.reductions.begin(), loop.reductions.end(),
                                      [](const Steps::Reduction& one) { return one.merged != nullptr; });
      if (loop.slow || (merges && !last.slow)) last.level = static_cast<int32_t>(i);
      last.slow |= loop.slow;
    }
  return last;
}

/// The first level that writes to the output.
size_t level_that_writes(const Steps& steps, int32_t output) {
  const auto is_there = [&](int32_t slot) {
    return slot >= 0 && steps.slot(slot).home == Home::output && steps.slot(slot).number == output;
  };
  for (size_t i = 0; i < steps.levels.size(); ++i)
    for (const Steps::Loop& loop : steps.levels[i].loops)
      if (std::any_of(loop.ops.begin(), loop.ops.end(), [&](const Steps::Op& op) { return is_there(op.out); }) ||
          std::any_of(loop.reductions.begin(), loop.reductions.end(),
                      [&](const Steps::Reduction& one) { return is_there(one.stored); }))
        return i;
  return 0;
}

/// Before it is written; else, where one row is written, the next one.
Steps::Fetch fetch_of_output(const Steps& steps, int32_t slot) {
  const size_t written = level_that_writes(steps, steps.slot(slot).number);
  Steps::Fetch fetch = fetched_in(steps, 1, written, slot);
  if (fetch.level >= 0 || written == 0) return fetch;
  fetch = fetched_in(steps, written, written + 1, slot);
  fetch.rows_ahead = 1;
  return fetch;
}

}  // namespace

void choose_fetching(Steps& steps) {
  if (steps.width > 1) return;
  int32_t input = -1, output = -1;
  for (size_t i = 0; i < steps.slots.size(); ++i) {
    if (steps.slots[i].size != 4) continue;
    if (steps.slots[i].home == Home::input) input = static_cast<int32_t>(i);
    if (steps.slots[i].home == Home::output) output = static_cast<int32_t>(i);
  }
  if (input >= 0) steps.fetched_input = fetched_in(steps, 1, steps.levels.size(), input);
  if (output >= 0) steps.fetched_output = fetch_of_output(steps, output);
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
  for (size_t i = 0; i < steps.slots.size(); ++i) steps.by_home.push_back(static_cast<int32_t>(i));
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

void allot_registers(Steps& steps) {
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) {
      Registers registers(steps, loop);
      registers.run();
      registers.find_moving();
      steps.most_ops = std::max(steps.most_ops, loop.ops.size());
    }
}

}  // namespace triage::fused
