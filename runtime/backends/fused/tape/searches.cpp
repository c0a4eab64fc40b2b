// Loops that only ask whether a row holds something. What mostly holds nothing can be asked of many rows at once: the
// answers of all are known where there is nothing, and so are their bits, because these joins do not depend on the
// order of values.
#include <algorithm>
#include <set>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;

bool lies_in(const Steps& steps, int32_t slot, Home home, int32_t extent) {
  return slot < 0 || (steps.slot(slot).home == home && steps.slot(slot).extent == extent);
}

}  // namespace

std::set<int32_t> read_as_values(const Steps& steps) {
  std::set<int32_t> read;
  const auto add_op = [&](const Steps::Op& op) {
    read.insert(op.in.begin(), op.in.end());
    for (const Steps::TapeGuard& guard : op.guards) read.insert(guard.condition);
  };
  const auto add_reduction = [&](const Steps::Reduction& one) {
    read.insert(one.operand);
    read.insert(one.in.begin(), one.in.end());
  };
  for (const Steps::Level& level : steps.levels) {
    for (const Steps::Op& op : level.cells) add_op(op);
    for (const Steps::Op& op : level.after) add_op(op);
    for (const Steps::Classified& one : level.classified) read.insert(one.element);
    for (const Steps::Spread& one : level.spreads) read.insert(one.in);
    for (const Steps::SegmentReduction& one : level.segments) add_reduction(one.of);
    for (const Steps::Loop& loop : level.loops) {
      for (const Steps::Op& op : loop.ops) add_op(op);
      for (const Steps::Reduction& one : loop.reductions) add_reduction(one);
    }
  }
  for (const Steps::Transfer& one : steps.writes) read.insert(one.slot);
  return read;
}

void find_searches(Steps& steps) {
  if (steps.width > 1) return;
  const std::set<int32_t> read = read_as_values(steps);
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) {
      const auto of_caller = [&](int32_t slot) { return lies_in(steps, slot, Home::input, loop.extent); };
      const auto asks = [&](const Steps::Reduction& one) {
        const bool in_any_order =
            one.join == Join::any || (one.join == Join::largest && one.type == Type::i32 && !read.count(one.out));
        return in_any_order && lies_in(steps, one.stored, Home::output, loop.extent) &&
               (one.merged ? std::all_of(one.in.begin(), one.in.end(), of_caller) : of_caller(one.operand));
      };
      loop.searches = loop.direct && loop.ops.empty() && !loop.reductions.empty() &&
                      std::all_of(loop.reductions.begin(), loop.reductions.end(), asks);
    }
}

void find_rare_levels(Steps& steps) {
  for (Steps::Level& level : steps.levels) {
    std::vector<const Steps::Op*> ops;
    for (const Steps::Loop& loop : level.loops)
      for (const Steps::Op& op : loop.ops) ops.push_back(&op);
    const bool reduces = std::any_of(level.loops.begin(), level.loops.end(),
                                     [](const Steps::Loop& loop) { return !loop.reductions.empty(); });
    if (ops.empty() || reduces || !level.has_only_loops()) continue;
    for (const Steps::TapeGuard& guard : ops[0]->guards) {
      const auto has_it = [&](const Steps::Op* op) {
        return std::find(op->guards.begin(), op->guards.end(), guard) != op->guards.end();
      };
      if (!level.only && std::all_of(ops.begin(), ops.end(), has_it)) level.only = guard;
    }
  }
}

bool only_searches(const Steps& steps) {
  bool searches = false;
  for (const Steps::Level& level : steps.levels) {
    const bool all =
        std::all_of(level.loops.begin(), level.loops.end(), [](const Steps::Loop& loop) { return loop.searches; });
    if (!level.has_only_loops() || (!all && !level.only)) return false;
    searches |= all && !level.loops.empty();
  }
  return searches;
}

}  // namespace triage::fused
