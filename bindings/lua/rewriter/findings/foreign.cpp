#include "bindings/lua/rewriter/findings/foreign.h"

#include <array>
#include <set>
#include <string>

#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/predicates.h"

namespace triage::lua::rewriter {
namespace {

/// Operators with two results, of values and of indices, and how many arguments a call of the method has at least that gives both.
struct Pair {
  std::string_view name;
  size_t arguments;
};
constexpr std::array<Pair, 10> kPairs = {Pair{"max", 1},    Pair{"min", 1},   Pair{"median", 1}, Pair{"nanmedian", 1},
                                         Pair{"mode", 0},   Pair{"sort", 0},  Pair{"topk", 1},   Pair{"kthvalue", 1},
                                         Pair{"cummax", 1}, Pair{"cummin", 1}};
constexpr std::array<std::string_view, 6> kPrefixes = {"f", "F", "r", "b", "rf", "fr"};

const Expression& inside(const Expression& e) {
  const Expression* inner = &e;
  while (inner->kind == ExpressionKind::Parenthesized) inner = inner->left;
  return *inner;
}

bool is_zero(const Expression& e) {
  const bool number = e.kind == ExpressionKind::Integer || e.kind == ExpressionKind::Number;
  return number && e.text.find_first_not_of("0.") == std::string::npos;
}

/// 0 for `[0]`, -1 for a negative index, 1 for all that is fine in a table of Lua.
int foreign_index(const Expression& index) {
  const Expression& e = inside(index);
  if (is_zero(e)) return 0;
  return e.kind == ExpressionKind::Unary && e.op == Operator::Negate && e.left->kind == ExpressionKind::Integer ? -1
                                                                                                                : 1;
}

/// The call gives values and indices: `x:max(1)`, `torch.sort(x)`.
bool gives_pair(const Expression& e) {
  const bool method = e.kind == ExpressionKind::MethodCall;
  const std::string path = method ? "torch." + e.text : called_global(e);
  if (path.rfind("torch.", 0) != 0) return false;
  const size_t given = e.items.size() + (method ? 1 : 0);
  for (const Pair& pair : kPairs)
    if (path.compare(6, std::string::npos, pair.name) == 0) return given > pair.arguments;
  return false;
}

class Finder {
 public:
  explicit Finder(const Chunk& chunk) : chunk_(chunk) {
    for (const Statement& s : chunk.statements)
      for (const Expression* const target : s.targets) assigned_.insert(target->variable);
  }

  std::vector<Warning> find() {
    for (const Expression& e : chunk_.expressions) {
      if (e.kind == ExpressionKind::Binary && is_comparison(e)) comparison(e);
      if (e.kind == ExpressionKind::Binary) text(e);
      if (e.kind == ExpressionKind::Index) index(e);
      if (e.kind == ExpressionKind::Call) call(e);
    }
    for (const Statement& s : chunk_.statements) mode(s);
    return std::move(warnings_);
  }

 private:
  void warn(int line, int column, const std::string& message) { warnings_.push_back({line, column, message}); }

  /// `0/0`, `-(0/0)`, or a local that holds it for good.
  bool is_nan(const Expression& expression) const {
    const Expression* e = &inside(expression);
    if (e->kind == ExpressionKind::Name && e->variable && e->variable->initial && !assigned_.count(e->variable))
      e = &inside(*e->variable->initial);
    while (e->kind == ExpressionKind::Unary && e->op == Operator::Negate) e = &inside(*e->left);
    return e->kind == ExpressionKind::Binary && e->op == Operator::Divide && is_zero(inside(*e->left)) &&
           is_zero(inside(*e->right));
  }

  void comparison(const Expression& e) {
    if (!is_nan(*e.left) && !is_nan(*e.right)) return;
    const bool always = e.op == Operator::NotEqual;
    warn(e.op_line, e.op_column,
         std::string("a comparison with NaN is ") + (always ? "always true" : "never true") +
             ", for each element of a tensor too; write x:isnan() to find NaN");
  }

  void text(const Expression& e) {
    const auto is_text = [](const Expression& side) {
      return side.kind == ExpressionKind::String && side.text.find_first_of("0123456789") == std::string::npos;
    };
    if (e.op == Operator::Add && (is_text(*e.left) || is_text(*e.right)))
      warn(e.op_line, e.op_column, "+ adds numbers in Lua; texts are joined with ..");
    if (e.op == Operator::Modulo && e.left->kind == ExpressionKind::String)
      warn(e.op_line, e.op_column, "Lua writes string.format(\"%d\", n) for \"%d\" % n");
  }

  void index(const Expression& e) {
    const Expression& object = *e.left;
    const int at = foreign_index(*e.right);
    const bool is_field = object.kind == ExpressionKind::Index && object.right->kind == ExpressionKind::String;
    const bool is_shape = is_field && object.right->text == "shape";
    const bool is_size = object.kind == ExpressionKind::MethodCall && object.text == "size" && object.items.empty();
    if ((is_shape || is_size) && at < 1)
      warn(e.op_line, e.op_column,
           "shape is a list of Lua, which counts from 1, so that this is nil; write x:size(" +
               std::string(at == 0 ? "0" : "-1") + "), whose dims count from 0" +
               (at == 0 ? ", or x.shape[1]" : " and from the end"));
    if (!gives_pair(object)) return;
    const bool named =
        e.right->kind == ExpressionKind::String && (e.right->text == "values" || e.right->text == "indices");
    const bool numbered = at == 0 || (e.right->kind == ExpressionKind::Integer && e.right->text == "1");
    if (named || numbered)
      warn(e.op_line, e.op_column,
           "a call that gives values and indices returns both: local values, indices = " +
               std::string(object.kind == ExpressionKind::MethodCall ? "x:" + object.text : called_global(object)) +
               "(...)" + (named ? "" : "; for a row of the values put the call in parentheses"));
  }

  void call(const Expression& e) {
    const Expression& callee = *e.left;
    if (callee.kind == ExpressionKind::Index && callee.right->kind == ExpressionKind::String &&
        callee.right->text == "shape")
      warn(e.op_line, e.op_column, "shape is a list; write x:size(dim)");
    const bool prefix = callee.kind == ExpressionKind::Name && callee.variable && contains(kPrefixes, callee.text);
    if (!prefix || !e.bare_argument || e.items[0]->kind != ExpressionKind::String || callee.end != e.items[0]->begin)
      return;
    warn(e.line, e.column,
         callee.text + "\"...\" calls the variable '" + callee.text +
             "'; Lua writes string.format(\"%g\", x), or \"x = \" .. x, for a text with values");
  }

  /// `torch.no_grad()` whose result is no variable that closes.
  void mode(const Statement& s) {
    if (s.kind != StatementKind::Call && s.kind != StatementKind::Local) return;
    for (size_t i = 0; i < s.values.size(); i++) {
      const std::string path = called_global(*s.values[i]);
      const bool closes = i < s.variables.size() && s.variables[i]->attribute == Variable::Attribute::Close;
      if (closes || (path != "torch.no_grad" && path != "torch.enable_grad") || !s.values[i]->items.empty()) continue;
      warn(
          s.line, s.column,
          path +
              "() holds for the rest of a block in a variable that closes, and otherwise nobody says until when; write "
              "`local _ <close> = " +
              path + "()`, or " + path + "(function() ... end)");
    }
  }

  const Chunk& chunk_;
  std::set<const Variable*> assigned_;
  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_foreign(const Chunk& chunk) { return Finder(chunk).find(); }

}  // namespace triage::lua::rewriter
