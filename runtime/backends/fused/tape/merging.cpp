// Finds steps that the table of merges has as one.
#include "runtime/backends/fused/tape/merges.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/backends/fused/tape/steps.h"
#include "runtime/graph/visits.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;

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
  struct MergeMatch {
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

  bool node_is(const Merge& merge, int8_t node, int i, MergeMatch& found) const {
    graph::count_visits();
    const auto k = static_cast<size_t>(node);
    if (i < 0) return false;
    if (found.ops[k] >= 0) return found.ops[k] == i;
    const bool of_conditions =
        row_of(op(i).opcode).signature == "b:b" || (op(i).opcode == Opcode::bit_and && op(i).type == Type::boolean);
    if (op(i).opcode != merge.nodes[k].opcode || op(i).choice >= 0 || !(of_conditions || is(found, op(i).type)))
      return false;
    found.ops[k] = i;
    for (size_t operand = 0; operand < row_of(op(i).opcode).arity(); ++operand)
      if (!operand_is(merge, merge.nodes[k].in[operand], op(i).in[operand], op(i).single >> operand & 1, found))
        return false;
    return true;
  }
  static bool is(MergeMatch& found, Type type) {
    return found.type.value_or(type) == type && (found.type = type, true);
  }

  bool operand_is(const Merge& merge, int8_t which, int32_t slot, bool single, MergeMatch& found) const {
    if (which < 0) return !single && node_is(merge, static_cast<int8_t>(-1 - which), producer(slot), found);
    const auto k = static_cast<size_t>(which);
    if ((merge.operands[k] == 's') != single || (found.operands[k] >= 0 && found.operands[k] != slot)) return false;
    found.operands[k] = slot;
    return true;
  }

  using Gone = std::array<bool, Merge::most_nodes>;
  /// The nodes that nobody else reads, so that the merge leaves nothing of them. Nothing where it does not pay: what
  /// others read too is computed twice, which must be cheap, and some step must be saved. `reduction`: that the merge
  /// becomes a part of, or -1.
  std::optional<Gone> leaves(const Merge& merge, const MergeMatch& found, int reduction) const {
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
  bool is_read_by_others(const Merge& merge, const MergeMatch& found, const Gone& gone, size_t k, int reduction) const {
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
    MergeMatch found;
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
    MergeMatch found;
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
    one.merged = merged, one.merge = static_cast<int32_t>(number), one.in = found.operands, one.stored = stored;
    note_reads(one.in, reader_of(static_cast<size_t>(reduction)));
    remove(merge, found, *gone, -1);
  }

  /// Adds the op whose result the merge stores: it reads an operand, or a node that is found already.
  bool find_stored(const Merge& merge, MergeMatch& found) const {
    const int8_t read = merge.nodes[static_cast<size_t>(merge.stored)].in[0];
    const auto readers = readers_.find(read >= 0 ? found.operands[static_cast<size_t>(read)]
                                                 : op(found.ops[static_cast<size_t>(-1 - read)]).out);
    if (readers == readers_.end()) return false;
    for (const int reader : readers->second) {
      MergeMatch with = found;
      if (node_is(merge, merge.stored, reader, with)) {
        found = with;
        return true;
      }
    }
    return false;
  }

  /// Removes what is gone, but for the op that the merge took the place of.
  void remove(const Merge& merge, const MergeMatch& found, const Gone& gone, int but) {
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

}  // namespace triage::fused
