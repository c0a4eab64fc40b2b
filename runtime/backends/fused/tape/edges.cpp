// Reductions that ask the same floats for a NaN, an Inf, or a value beyond a bound: their edges (support/edges.h) tell
// all of it. Where an op of the loop makes the floats, it finds the edges of a block of rows by the way.
#include <algorithm>
#include <map>
#include <set>

#include "runtime/backends/fused/tape/merges.h"
#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;

/// The step that does what the op does, and watches; null where there is none.
WatchedStep watched_step(const Steps::Op& op, Watching what) {
  if (op.type != Type::f32 || op.choice >= 0 || !op.guards.empty()) return nullptr;
  if (op.opcode != Opcode::literal) return primitives().watched(op.opcode, op.single, what);
  for (size_t merge = 0; merge < merges.size(); ++merge)
    if (primitives().merged(merge, Type::f32) == op.step) return primitives().watched_merge(merge, what);
  return nullptr;
}

class EdgesOfLoop {
 public:
  struct SlotFacts {
    std::set<int32_t> read;    // read_as_values
    std::set<int32_t> chosen;  // may lie in the place of others
    std::set<int64_t> zeros;   // where numbers lie that stand in the graph and are 0
  };
  EdgesOfLoop(Steps& steps, Steps::Loop& loop, const SlotFacts& known) : steps_(steps), loop_(loop), known_(known) {}

  void run() {
    std::map<int32_t, std::vector<Steps::Reduction*>> asked;  // by what they ask
    for (Steps::Reduction& one : loop_.reductions)
      if (steps_.width == 1 && can_be_told(one)) asked[one.in[0]].push_back(&one);
    for (auto& [values, reductions] : asked) tell(values, reductions);
    const auto joins = [](const Steps::Reduction& one) { return one.edges < 0; };
    const auto passes = [](const Steps::EdgeReduction& one) { return one.lanes < 0; };
    loop_.passes = static_cast<size_t>(std::count_if(loop_.reductions.begin(), loop_.reductions.end(), joins) +
                                       std::count_if(loop_.edges.begin(), loop_.edges.end(), passes));
  }

 private:
  bool can_be_told(Steps::Reduction& one) const {
    if (one.merge < 0) return false;
    const auto question = question_of(merges[static_cast<size_t>(one.merge)]);
    if (!question) return false;
    one.question = *question;
    one.bounds = {one.in[1], one.in[2]};
    return std::all_of(one.bounds.begin(), one.bounds.end(), [&](int32_t bound) {
      return bound < 0 || steps_.slot(bound).home == Home::number;  // the same for all rows
    });
  }

  void tell(int32_t values, std::vector<Steps::Reduction*>& reductions) {
    const auto stores = [](const Steps::Reduction* one) { return one->stored >= 0; };
    const auto first = std::find_if(reductions.begin(), reductions.end(), stores);
    const int32_t stored =
        first == reductions.end() ? -1 : (*first)->stored;  // one copy: who stores elsewhere asks by itself
    std::erase_if(reductions, [&](const Steps::Reduction* one) { return stores(one) && one->stored != stored; });
    Steps::Op* const op = stored < 0 ? watching_op(values, reductions) : nullptr;
    if (!op && reductions.size() < 2) return;
    Steps::EdgeReduction edges{values, stored, {}};
    for (int32_t& total : edges.totals) total = cell();
    if (op) {
      edges.watching = least_to_watch(*op, reductions);
      op->watched = watched_step(*op, edges.watching);
      op->lanes = edges.lanes = steps_.lanes++;
    }
    for (Steps::Reduction* const one : reductions) {
      one->edges = static_cast<int32_t>(loop_.edges.size());
      edges.line = std::max(edges.line, one->line);
    }
    loop_.edges.push_back(edges);
  }

  /// The op that makes the values of every row, which stay where they are until the level ends.
  Steps::Op* watching_op(int32_t values, const std::vector<Steps::Reduction*>& reductions) const {
    const Steps::TapeSlot& slot = steps_.slot(values);
    if ((slot.home != Home::output && slot.home != Home::row) || slot.choice >= 0 || known_.chosen.count(values) ||
        loop_.only)
      return nullptr;
    for (const Steps::Reduction* const one : reductions)
      if (one->question == EdgeQuestion::magnitude && known_.read.count(one->out)) return nullptr;
    const auto makes = [&](const Steps::Op& op) { return op.out == values; };
    const auto op = std::find_if(loop_.ops.begin(), loop_.ops.end(), makes);
    if (op == loop_.ops.end() || std::any_of(op + 1, loop_.ops.end(), makes)) return nullptr;
    return watched_step(*op, Watching::edges) ? &*op : nullptr;
  }

  /// The step that takes least of those that tell all that is asked, of values that are as they should be.
  Watching least_to_watch(const Steps::Op& op, const std::vector<Steps::Reduction*>& reductions) const {
    bool from_zero = false, bounded = false;
    for (const Steps::Reduction* const one : reductions) {
      const bool below = one->question == EdgeQuestion::below || one->question == EdgeQuestion::outside;
      from_zero |= below && known_.zeros.count(steps_.slot(one->bounds[0]).offset);
      bounded |= below || one->question == EdgeQuestion::above;
    }
    const Watching least = from_zero ? Watching::far_edge : bounded ? Watching::edges : Watching::finite;
    return watched_step(op, least) ? least : Watching::edges;
  }

  int32_t cell() {
    constexpr int32_t size = 4;
    const int64_t offset = steps_.cell_bytes;
    steps_.cell_bytes += whole_lines(size * Steps::rows_at_once);
    steps_.slots.push_back({Home::cell, size, 0, -1, offset});
    return static_cast<int32_t>(steps_.slots.size() - 1);
  }

  Steps& steps_;
  Steps::Loop& loop_;
  const SlotFacts& known_;
};

}  // namespace

void find_edges(Steps& steps) {
  EdgesOfLoop::SlotFacts known{read_as_values(steps), {}, {}};
  for (const Steps::OperandChoice& one : steps.choices) known.chosen.insert({one.out, one.of[0], one.of[1]});
  for (const auto& [offset, bytes] : steps.literals)
    if (std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; })) known.zeros.insert(offset);
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) EdgesOfLoop(steps, loop, known).run();
}

}  // namespace triage::fused
