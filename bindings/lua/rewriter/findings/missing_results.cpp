#include "bindings/lua/rewriter/findings/missing_results.h"

#include <algorithm>
#include <set>
#include <string>

#include "bindings/lua/rewriter/findings/vocabulary.h"

namespace triage::lua::rewriter {
namespace {

/// The function returns something, or ends in an error.
bool gives_results(const Block& block) {
  return std::any_of(block.statements.begin(), block.statements.end(), [](const Statement* s) {
    if (s->kind == StatementKind::Return && !s->values.empty()) return true;
    if (s->kind == StatementKind::Call && called_global(*s->values[0]) == "error") return true;
    return std::any_of(s->blocks.begin(), s->blocks.end(), [](const Block* inner) { return gives_results(*inner); });
  });
}

bool gives_nothing(const Expression& e) {
  return e.kind == ExpressionKind::Function && !gives_results(*e.function->body);
}

/// It calls what may raise: a function that is not of tensors or flags.
bool may_raise(const Block& block) {
  return std::any_of(block.statements.begin(), block.statements.end(), [](const Statement* s) {
    const auto raises = [](const Expression* e) {
      const std::string path = called_global(*e);
      return e->kind == ExpressionKind::Call && path.rfind("torch.", 0) != 0 && !is_functional(path);
    };
    return std::any_of(s->values.begin(), s->values.end(), raises) ||
           std::any_of(s->blocks.begin(), s->blocks.end(), [](const Block* inner) { return may_raise(*inner); });
  });
}

class MissingResultFinder {
 public:
  explicit MissingResultFinder(const Chunk& chunk) : chunk_(chunk) {
    for (const Statement& s : chunk.statements) targets_.insert(s.targets.begin(), s.targets.end());
  }

  std::vector<Warning> find() {
    for (const Expression& e : chunk_.expressions) {
      if (const Expression* const table = policy_table(e)) run_of(*table);
      const bool goes_on = e.kind == ExpressionKind::MethodCall && (e.text == "ELIF" || e.text == "ELSE");
      if ((called_global(e) == "IF" || goes_on) && !e.items.empty()) branch(*e.items.back());
    }
    for (const Statement& s : chunk_.statements) fixed(s);
    if (!chunk_.main->body->statements.empty()) of_file(*chunk_.main->body->statements.back());
    return std::move(warnings_);
  }

 private:
  void run_of(const Expression& table) {
    const Expression* const run = field(table, "run");
    if (run && gives_nothing(*run))
      warn(*run, "`run` returns nothing, and each call would fail; end it with `return` and the outputs");
    const Expression* const tests = field(table, "tests");
    if (tests && tests->kind == ExpressionKind::Table)
      for (const Expression* const test : tests->items)
        if (test->kind == ExpressionKind::Table) check_of(*test);
  }

  /// `check = function(z) z:eq(y):all() end`
  void check_of(const Expression& test) {
    const Expression* const check = field(test, "check");
    if (check && gives_nothing(*check) && !may_raise(*check->function->body))
      warn(*check,
           "`check` returns nothing and raises nothing, so that this test always passes; end it with `return` and "
           "a condition");
  }

  /// `return function(x) x = x * 2 end`. (Of what calls or writes to fields, something else may be asked.)
  void of_file(const Statement& last) {
    if (last.kind != StatementKind::Return || last.values.size() != 1 || !gives_nothing(*last.values[0])) return;
    const Function& function = *last.values[0]->function;
    const bool assigns =
        std::all_of(function.body->statements.begin(), function.body->statements.end(), [](const auto* s) {
          const bool fields = std::any_of(s->targets.begin(), s->targets.end(), [](const Expression* target) {
            return target->kind != ExpressionKind::Name;
          });
          return s->kind == StatementKind::Local || (s->kind == StatementKind::Assign && !fields);
        });
    if (assigns && !function.parameters.empty())
      warn(*last.values[0], "this function returns nothing; end it with `return` and the outputs");
  }

  void branch(const Expression& given) {
    if (gives_nothing(given))
      warn(given,
           "this branch returns nothing, and IF gives what its branches return; what a branch assigns is there for all "
           "samples: write local y = IF(mask, function() return ... end):ELSE(function() return ... end)");
  }

  /// `local z = fix(x, f, "b")`, where `f` goes on.
  void fixed(const Statement& s) {
    const bool assigns = s.kind == StatementKind::Local || s.kind == StatementKind::Assign;
    if (!assigns || s.variables.size() + s.targets.size() != 1 || s.values.size() != 1) return;
    const Expression& call = *s.values[0];
    if (called_global(call) != "fix" || call.items.size() < 2) return;
    const Expression& flags = *call.items[1];
    if (flags.kind != ExpressionKind::Name || !flags.variable || !is_read_behind(*flags.variable, s.end)) return;
    warn(call, "fix returns the values and the flags, and '" + flags.text + "' stays as it was: write z, " +
                   flags.text + " = fix(...), or z, _ = fix(...) for the values alone");
  }

  bool is_read_behind(const Variable& variable, size_t place) const {
    return std::any_of(chunk_.expressions.begin(), chunk_.expressions.end(), [&](const Expression& e) {
      return e.kind == ExpressionKind::Name && e.variable == &variable && e.begin >= place && !targets_.count(&e);
    });
  }

  void warn(const Expression& at, const std::string& message) { warnings_.push_back({at.line, at.column, message}); }

  const Chunk& chunk_;
  std::set<const Expression*> targets_;
  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_missing_results(const Chunk& chunk) { return MissingResultFinder(chunk).find(); }

}  // namespace triage::lua::rewriter
