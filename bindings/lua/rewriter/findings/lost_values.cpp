#include "bindings/lua/rewriter/findings/lost_values.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "bindings/lua/rewriter/findings/vocabulary.h"

namespace triage::lua::rewriter {
namespace {

bool makes_flags(const Expression& e) {
  const std::string path = called_global(e);
  return flags_result(path) == 0 && path != "err.new" && path != "err.new_t";
}

/// A call that only gives its result.
bool only_computes(const Expression& e) {
  const std::string path = called_global(e);
  const bool method = e.kind == ExpressionKind::MethodCall && computes(e.text);
  return method || is_functional(path) || is_torch_computation(path);
}

bool may_give_several(const Expression& e) {
  return e.kind == ExpressionKind::Call || e.kind == ExpressionKind::MethodCall || e.kind == ExpressionKind::Varargs;
}

class LostValuesFinder {
 public:
  explicit LostValuesFinder(const Chunk& chunk) : chunk_(chunk) {
    std::set<const Expression*> targets;
    for (const Statement& s : chunk.statements)
      for (const Expression* const target : s.targets) {
        targets.insert(target);
        assigned_.insert(target->variable);
      }
    for (const Expression& e : chunk.expressions)
      if (e.kind == ExpressionKind::Name && e.variable && !targets.count(&e)) reads_[e.variable].insert(e.begin);
    for (const Variable& variable : chunk.variables) by_name_[variable.name].push_back(&variable);
  }

  std::vector<Warning> find() {
    for (const Block& block : chunk_.blocks) replaced_flags(block);
    for (const Statement& s : chunk_.statements)
      if (s.kind == StatementKind::Local) {
        unread(s);
        never_assigned(s);
      }
    return std::move(warnings_);
  }

 private:
  bool is_read(const Variable* variable) const { return reads_.count(variable) != 0; }
  bool is_read_between(const Variable* variable, size_t begin, size_t end) const {
    const auto found = reads_.find(variable);
    if (found == reads_.end()) return false;
    const auto next = found->second.lower_bound(begin);
    return next != found->second.end() && *next < end;
  }

  /// `f = flag_nan(x, "a")`, then `f = flag_inf(x, "b")`.
  void replaced_flags(const Block& block) {
    std::map<const Variable*, const Statement*> written;  // the last statement that gave a variable flags
    for (const Statement* const s : block.statements) {
      const bool one = s->values.size() == 1 && s->variables.size() + s->targets.size() == 1;
      const bool writes = one && (s->kind == StatementKind::Local || s->kind == StatementKind::Assign);
      const Variable* const variable = !writes              ? nullptr
                                       : s->targets.empty() ? s->variables[0]
                                                            : s->targets[0]->variable;
      if (!variable || variable->captured || !makes_flags(*s->values[0])) continue;
      const auto before = written.find(variable);
      if (before != written.end() && !is_read_between(variable, before->second->end, s->end))
        warn(*s->values[0], "the flags that '" + variable->name + "' has from line " +
                                std::to_string(before->second->line) + " are lost, for nobody has read them: write " +
                                variable->name + " = err.merge(" + variable->name +
                                ", ...), or give the call these flags as its last argument");
      written[variable] = s;
    }
  }

  void unread(const Statement& s) {
    const auto is_lost = [&](const Variable* variable) {
      return !is_read(variable) && variable->name[0] != '_' && variable->attribute == Variable::Attribute::Regular;
    };
    for (const Variable* const variable : s.variables)
      if (is_lost(variable) && !s.values.empty())
        if (hides_what_is_read(*variable, s))
          return warn(s, "this '" + variable->name + "' is a variable of its own, which nobody reads, and not the '" +
                             variable->name + "' of before, which stays as it was: remove `local`");
    if (s.values.size() != 1 || !only_computes(*s.values[0])) return;
    if (std::all_of(s.variables.begin(), s.variables.end(), is_lost))
      warn(s, "nobody reads '" + s.variables[0]->name +
                  "', and nothing else changes: tensors and flags are values; return what was computed, or remove it");
  }

  /// There is another variable of that name, declared before, that is read behind the statement.
  bool hides_what_is_read(const Variable& variable, const Statement& s) const {
    constexpr int most = 8;  // each variable of the name asks, and there may be many
    const std::vector<const Variable*>& same = by_name_.at(variable.name);
    const auto behind = std::partition_point(same.begin(), same.end(),
                                             [&](const Variable* other) { return other->declared < s.begin; });
    const auto first = behind - same.begin() > most ? behind - most : same.begin();
    return std::any_of(first, behind, [&](const Variable* other) {
      return other->owner == variable.owner && is_read_between(other, s.end, std::string::npos);
    });
  }

  /// `local a, b = 1`, where `b` is read.
  void never_assigned(const Statement& s) {
    if (!s.values.empty() && may_give_several(*s.values.back())) return;
    for (size_t i = s.values.size(); i < s.variables.size(); ++i)
      if (is_read(s.variables[i]) && !assigned_.count(s.variables[i]))
        return warn(s, "'" + s.variables[i]->name +
                           "' is always nil: there is no value for it, and nothing is assigned "
                           "to it later");
  }

  void warn(const Expression& at, const std::string& message) { warnings_.push_back({at.line, at.column, message}); }
  void warn(const Statement& at, const std::string& message) { warnings_.push_back({at.line, at.column, message}); }

  const Chunk& chunk_;
  std::set<const Variable*> assigned_;
  std::map<const Variable*, std::set<size_t>> reads_;  // bytes
  std::map<std::string, std::vector<const Variable*>> by_name_;
  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_lost_values(const Chunk& chunk) { return LostValuesFinder(chunk).find(); }

}  // namespace triage::lua::rewriter
