// Selections by a condition that holds for a whole row: the row takes one operand or the other, so what the other one
// needs is not computed, and the values go straight to where they belong.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "runtime/backends/fused/tape/steps.h"

namespace triage::fused {
namespace {

using Home = Steps::TapeSlot::Home;
using How = Steps::OperandChoice::How;

class ChoicesOfLoop {
 public:
  ChoicesOfLoop(Steps& steps, Steps::Loop& loop) : steps_(steps), loop_(loop) {
    for (size_t i = 0; i < loop.ops.size(); ++i) {
      producers_[loop.ops[i].out] = i;
      for (size_t k = 0; k < loop.ops[i].in.size(); ++k)
        if (loop.ops[i].in[k] >= 0) uses_[loop.ops[i].in[k]].push_back({i, k});
    }
    for (const Steps::Reduction& one : loop.reductions) reduced_.insert(one.operand);
  }

  void run() {
    std::map<size_t, Steps::OperandChoice> choices;  // by op
    for (size_t i = loop_.ops.size(); i-- > 0;) {
      inherit_guards(loop_.ops[i]);
      if (is_choice(loop_.ops[i])) choices[i] = choice_of(loop_.ops[i]);
    }
    for (const auto& [op, choice] : choices) {
      const auto number = static_cast<int32_t>(steps_.choices.size());
      steps_.choices.push_back(choice);
      loop_.ops[op].choice = number;
      loop_.choices.push_back(number);
      if (is_forwarded(choice) && steps_.slot(choice.out).home == Home::row) steps_.slot(choice.out).choice = number;
    }
    for (const Steps::Op& op : loop_.ops) loop_.guarded |= op.choice >= 0 || !op.guards.empty();
    if (is_all_or_nothing()) loop_.only = loop_.ops[0].guards[0];
  }

 private:
  static constexpr size_t most_guards = 8;
  struct OperandUse {
    size_t op, operand;
  };
  bool is_all_or_nothing() const {
    const auto has_that_guard = [&](const Steps::Op& op) {
      return op.choice < 0 && op.guards.size() == 1 && op.guards == loop_.ops[0].guards;
    };
    return !loop_.ops.empty() && loop_.reductions.empty() &&
           std::all_of(loop_.ops.begin(), loop_.ops.end(), has_that_guard);
  }
  static bool is_choice(const Steps::Op& op) { return op.opcode == Opcode::pick && (op.single & 1); }
  static bool is_forwarded(const Steps::OperandChoice& choice) {
    return choice.how[0] == How::forward || choice.how[1] == How::forward;
  }

  Steps::OperandChoice choice_of(const Steps::Op& op) {
    Steps::OperandChoice choice{op.in[0], op.out, {How::run, How::run}, {op.in[2], op.in[1]}};
    const Home home = steps_.slot(op.out).home;
    const bool writes = home == Home::output || must_write_.count(op.out);
    for (const size_t which : {0, 1}) {
      const size_t operand = which ? 1 : 2;
      const int32_t from = choice.of[which];
      if (op.single >> operand & 1) continue;
      if (steps_.slot(from).home != Home::chunk) {
        const bool stays = steps_.slot(from).home != Home::output;
        if (!writes && stays) choice.how[which] = How::forward;
      } else if (home == Home::chunk && !writes) {
        choice.how[which] = How::forward;
      } else if (is_made_for(from) &&
                 op.guards.size() < most_guards) {  // it needs them all: other rows are another's there
        choice.how[which] = How::through;
        must_write_.insert(from);
      }
    }
    return choice;
  }
  /// Whether one operand of one op is all that reads it.
  bool is_made_for(int32_t slot) const {
    return producers_.count(slot) && uses_.at(slot).size() == 1 && !reduced_.count(slot);
  }

  /// The conditions under which all that read the result are needed, but no more of them than are soon looked at: each
  /// spares work. Only an op that writes through to another slot needs them for the values.
  void inherit_guards(Steps::Op& op) const {
    if (steps_.slot(op.out).home != Home::chunk || reduced_.count(op.out) || !uses_.count(op.out)) return;
    std::set<Steps::TapeGuard> common;
    bool first = true;
    for (const OperandUse& use : uses_.at(op.out)) {
      const Steps::Op& user = loop_.ops[use.op];
      std::set<Steps::TapeGuard> own(user.guards.begin(), user.guards.end());
      if (is_choice(user) && use.operand > 0) own.insert({user.in[0], use.operand == 1});
      if (first) common = own;
      std::set<Steps::TapeGuard> both;
      std::set_intersection(common.begin(), common.end(), own.begin(), own.end(), std::inserter(both, both.end()));
      common = both;
      first = false;
    }
    while (common.size() > most_guards) common.erase(std::prev(common.end()));
    common.insert(op.guards.begin(), op.guards.end());
    op.guards.assign(common.begin(), common.end());
  }

  Steps& steps_;
  Steps::Loop& loop_;
  std::map<int32_t, size_t> producers_;
  std::map<int32_t, std::vector<OperandUse>> uses_;
  std::set<int32_t> reduced_;
  std::set<int32_t> must_write_;
};

}  // namespace

void find_choices(Steps& steps) {
  if (steps.width > 1) return;
  for (Steps::Level& level : steps.levels)
    for (Steps::Loop& loop : level.loops) ChoicesOfLoop(steps, loop).run();
}

}  // namespace triage::fused
