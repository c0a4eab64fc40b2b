// Edits the source instead of printing the tree: comments, spacing and line ends stay, and no token changes its line.
// Names of plain Lua that messages show ("global 'x'") survive because the operands themselves are not touched.
#include <algorithm>
#include <utility>

#include "bindings/lua/rewriter/edits.h"
#include "bindings/lua/rewriter/operand_names.h"
#include "bindings/lua/rewriter/parser.h"
#include "bindings/lua/rewriter/rewriter.h"

namespace triage::lua::rewriter {
namespace {

const char* comparison_intrinsic(Operator op) {
  switch (op) {
    case Operator::Less:
      return "__triage_lt(";
    case Operator::LessEqual:
      return "__triage_le(";
    case Operator::Greater:
      return "__triage_gt(";
    case Operator::GreaterEqual:
      return "__triage_ge(";
    case Operator::Equal:
      return "__triage_eq(";
    case Operator::NotEqual:
      return "__triage_ne(";
    default:
      return nullptr;
  }
}

bool is_logical(const Expression& e) {
  return e.kind == ExpressionKind::Binary && (e.op == Operator::And || e.op == Operator::Or);
}
bool is_concat(const Expression& e) { return e.kind == ExpressionKind::Binary && e.op == Operator::Concat; }

/// With nil, and with a string, nothing but Lua's own equality can come out: it stays as it is.
bool never_a_mask(const Expression& e) { return e.kind == ExpressionKind::Nil || e.kind == ExpressionKind::String; }

bool is_comparison(const Expression& e) {
  if (e.kind != ExpressionKind::Binary || !comparison_intrinsic(e.op)) return false;
  const bool equality = e.op == Operator::Equal || e.op == Operator::NotEqual;
  return !equality || (!never_a_mask(*e.left) && !never_a_mask(*e.right));
}

/// Does a truth test of this expression itself (not of its operands) need the runtime?
bool can_be_a_mask(const Expression& e) {
  switch (e.kind) {
    case ExpressionKind::Name:
    case ExpressionKind::Index:
    case ExpressionKind::Call:
    case ExpressionKind::MethodCall:
    case ExpressionKind::Varargs:
      return true;
    case ExpressionKind::Unary:
      return e.op != Operator::Not;
    case ExpressionKind::Binary:
      return e.op < Operator::Concat;  // comparisons test themselves
    default:
      return false;
  }
}

/// The truth test of a whole is moved down to those of its operands that can become its value.
bool tests_left(const Expression& e, bool tested) {
  if (is_logical(e)) return true;
  if (e.kind == ExpressionKind::Unary) return e.op == Operator::Not;
  return e.kind == ExpressionKind::Parenthesized && tested;
}

/// What intrinsics learn of their place: the column, and how many lines below the line of the call the operator stands.
std::string position(int call_line, int line, int column) {
  constexpr int kColumns = 65536;
  return std::to_string(std::min(column, kColumns - 1) + kColumns * std::max(line - call_line, 0));
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view source) : source_(source) {}

  std::string rewrite(const Chunk& chunk) {
    block(*chunk.main->body);
    std::string text = "local ";
    for (const std::string& name : intrinsics()) text += name + ",";
    text.back() = '=';
    // _ENV stays the main function's first upvalue, where debug.setupvalue is used to look for it.
    text += "...;return function(...)if _ENV then end ";
    text.reserve(text.size() + 2 * source_.size());
    edits_.apply(source_, chunk.start, text);
    // On a line of its own: the last line may be a comment.
    return text + "\nend";
  }

 private:
  void block(const Block& block) {
    for (const Statement* const s : block.statements) statement(*s);
  }

  void statement(const Statement& s) {
    switch (s.kind) {
      case StatementKind::Assign:
        assignment(s);
        break;
      case StatementKind::Function:
        function_statement(s);
        break;
      case StatementKind::LocalFunction:
        block(*s.function->body);
        register_function(s, s.variables[0]->name);
        break;
      case StatementKind::If:
        for (size_t i = 0; i < s.values.size(); i++) expression(*s.values[i], true, s.then_begins[i]);
        break;
      case StatementKind::While:
      case StatementKind::Repeat:
        expression(*s.values[0], true);
        break;
      case StatementKind::NumericFor:
        for (const Expression* const value : s.values) plain(*value);
        break;
      default:
        for (const Expression* const value : s.values) expression(*value, false);
        break;
    }
    for (const Block* const inner : s.blocks) block(*inner);
    if (s.kind == StatementKind::Return && s.values.size() == 1) keep_frame(*s.values[0]);
    // In `local t = {}` a `(` on the next line starts a statement; behind the call that `{}` becomes it would continue
    // it.
    if (source_[s.begin] == '(') edits_.before(s.begin, ";");
  }

  /// `return __triage_lt(...)` would be a tail call: the frame whose line errors name would be gone.
  void keep_frame(const Expression& value) {
    const bool becomes_call = is_comparison(value) || is_concat(value) || value.kind == ExpressionKind::Function ||
                              value.kind == ExpressionKind::Table;
    if (!becomes_call) return;
    edits_.before(value.begin, "(");
    edits_.after(value.end, ")");
  }

  // --- writes

  void assignment(const Statement& s) {
    for (const Expression* const value : s.values) expression(*value, false);
    std::string announced;
    for (const Expression* const target : s.targets) {
      if (target->kind == ExpressionKind::Index) plain(*target->right);
      announce_write(s, *target, announced);
    }
    if (!announced.empty()) edits_.before(s.begin, announced);
    // What runs between the announcement and the write may look at the epoch, and has then seen the value that goes.
    if (writes_outside(s) && runs_code(s)) edits_.after(s.end, " __triage_touch();");
  }

  /// To anything but locals of its own that no other function shares.
  static bool writes_outside(const Statement& s) {
    return std::any_of(s.targets.begin(), s.targets.end(), [&](const Expression* target) {
      return target->kind == ExpressionKind::Index || !write_to_variable(*target, s.line).empty();
    });
  }

  /// Could an assignment call anything before it writes? Plain values, new functions and variables do not.
  static bool runs_code(const Statement& s) {
    const auto calls = [](const Expression* e) { return e->kind > ExpressionKind::Name; };
    return std::any_of(s.values.begin(), s.values.end(), calls) ||
           std::any_of(s.targets.begin(), s.targets.end(), [&](const Expression* target) {
             return target->kind == ExpressionKind::Index &&
                    (calls(target->right) || (s.targets.size() > 1 && calls(target->left)));
           });
  }

  void function_statement(const Statement& s) {
    const Expression& target = *s.targets[0];
    block(*s.function->body);
    if (target.kind == ExpressionKind::Name) {
      register_function(s, target.text);
    } else {
      make_assignment(s);
    }
    std::string announced;
    announce_write(s, target, announced);
    if (!announced.empty()) edits_.before(s.begin, announced);
  }

  void register_function(const Statement& s, const std::string& name) {
    edits_.after(s.end, " __triage_fn(" + name + "," + std::to_string(s.function->id) + ");");
  }

  /// `function a.b:c(...) ... end` as `a.b.c = __triage_fn(function(self, ...) ... end, id)`.
  void make_assignment(const Statement& s) {
    const Function& function = *s.function;
    edits_.replace(function.keyword_begin, function.keyword_begin + std::string_view("function").size(), " ");
    if (s.method_colon) {
      edits_.replace(s.method_colon, s.method_colon + 1, ".");
      edits_.after(function.parameters_begin, function.has_parameters ? "self," : "self");
    }
    edits_.after(s.targets[0]->end, " = __triage_fn(function");
    edits_.after(s.end, "," + std::to_string(function.id) + ")");
  }

  /// Adds to `announced` the calls that go in front of the statement. Where the table is not simply a variable it is
  /// wrapped in place instead, so that it is evaluated once.
  void announce_write(const Statement& s, const Expression& target, std::string& announced) {
    if (target.kind == ExpressionKind::Name) {
      announced += write_to_variable(target, s.line);
      return;
    }
    const Expression& table = *target.left;
    if (table.kind == ExpressionKind::Name) {
      const std::string call = "__triage_write(" + table.text + ",";
      if (announced.find(call) == std::string::npos)
        announced += call + position(s.line, table.line, table.column) + ");";
      return;
    }
    expression(table, false);
    edits_.before(table.begin, "__triage_write(");
    edits_.after(table.end, "," + position(table.line, table.line, table.column) + "," +
                                string_literal(operand_name(table)) +
                                (s.kind == StatementKind::Function ? ",true)" : ")"));
  }

  static std::string write_to_variable(const Expression& name, int line) {
    const bool is_own = name.variable && name.levels_out == 0;
    if (is_own) return name.variable->captured ? "__triage_touch();" : "";
    std::string call = "__triage_touch(" + string_literal(name.text) + "," + position(line, name.line, name.column);
    if (name.variable) call += "," + std::to_string(name.levels_out);
    return call + ");";
  }

  // --- expressions

  /// What stands to the left of its neighbours, waiting to be edited.
  struct Operand {
    const Expression* expression;
    bool tested;      // the value is a condition
    size_t test_end;  // byte where its truth test ends; 0: where it ends itself
  };

  void expression(const Expression& whole, bool tested, size_t test_end = 0) {
    std::vector<Operand> spine;  // leans to the left without limit: no recursion
    for (Operand next{&whole, tested, test_end}; next.expression; next = left_operand(next)) spine.push_back(next);
    for (auto operand = spine.rbegin(); operand != spine.rend(); ++operand) {
      rest_of(*operand->expression, operand->tested);
      if (operand->tested && can_be_a_mask(*operand->expression)) test(*operand);
    }
  }

  static Operand left_operand(const Operand& outer) {
    const Expression& e = *outer.expression;
    // Lua reads the fields of a left operand when it has read what comes behind, and reports errors on that line.
    const size_t test_end = is_logical(e) ? e.op_begin : e.kind == ExpressionKind::Parenthesized ? e.end - 1 : 0;
    return {e.left, tests_left(e, outer.tested), test_end};
  }

  void test(const Operand& operand) {
    const Expression& e = *operand.expression;
    edits_.before(e.begin, "__triage_test(");
    edits_.after(operand.test_end ? operand.test_end : e.end, "," + position(e.line, e.line, e.column) + ")");
  }

  /// All of an expression but its left part.
  void rest_of(const Expression& e, bool tested) {
    switch (e.kind) {
      case ExpressionKind::Function:
        function_expression(e);
        break;
      case ExpressionKind::Table:
        table(e);
        break;
      case ExpressionKind::Index:
        plain(*e.right);
        break;
      case ExpressionKind::Call:
      case ExpressionKind::MethodCall:
        call(e);
        break;
      case ExpressionKind::Binary:
        binary(e, tested);
        break;
      default:
        break;
    }
  }

  void binary(const Expression& e, bool tested) {
    if (is_concat(e)) {
      concat(e);
      return;
    }
    expression(*e.right, is_logical(e) && tested);
    if (!is_comparison(e)) return;
    edits_.before(e.begin, comparison_intrinsic(e.op));
    edits_.replace(e.op_begin, e.op_end, ",");
    // Lua reports a failed comparison on the line where its right side ends.
    edits_.after(e.end, "," + position(e.line, e.end_line, e.op_column) + (tested ? ",true)" : ")"));
  }

  /// `a .. b .. c` is one call: long chains neither nest nor build every partial string.
  void concat(const Expression& e) {
    const Expression* last = &e;
    std::string names = culprit_name(*e.left);
    for (;; last = last->right) {
      edits_.replace(last->op_begin, last->op_end, ",");
      const Expression& next = is_concat(*last->right) ? *last->right->left : *last->right;
      expression(next, false);
      names += "\n" + culprit_name(next);
      if (!is_concat(*last->right)) break;
    }
    const bool any_named = names.find_first_not_of('\n') != std::string::npos;
    edits_.before(e.begin, "__triage_concat(");
    edits_.after(e.end, "," + position(e.line, last->op_line, last->op_column) + "," +
                            string_literal(any_named ? names : "") + ")");
  }

  /// A string never makes a concatenation fail: it needs no name.
  static std::string culprit_name(const Expression& operand) {
    return operand.kind == ExpressionKind::String ? "" : operand_name(operand);
  }

  void call(const Expression& e) {
    for (const Expression* const argument : e.items) expression(*argument, false);
    if (!e.bare_argument || e.items[0]->kind != ExpressionKind::Table) return;
    edits_.before(e.items[0]->begin, "(");
    edits_.after(e.items[0]->end, ")");
  }

  void table(const Expression& e) {
    for (const Expression* const item : e.items) is_key(*item) ? plain(*item) : expression(*item, false);
    edits_.before(e.begin, "__triage_table(");
    edits_.after(e.end, ")");
  }

  /// Does `[` stand in front of the item, as in `{[key] = value}`?
  bool is_key(const Expression& item) const {
    const size_t before = source_.find_last_not_of(" \t\r\n", item.begin - 1);
    return before != std::string_view::npos && source_[before] == '[';
  }

  /// An expression whose value Lua takes itself, as a bound or a key.
  void plain(const Expression& e) {
    expression(e, false);
    if (!can_be_a_number(e)) return;
    edits_.before(e.begin, "__triage_plain(");
    edits_.after(e.end, ")");
  }

  static bool can_be_a_number(const Expression& e) {
    switch (e.kind) {
      case ExpressionKind::Name:
      case ExpressionKind::Index:
      case ExpressionKind::Call:
      case ExpressionKind::MethodCall:
      case ExpressionKind::Varargs:
      case ExpressionKind::Parenthesized:
        return true;
      case ExpressionKind::Unary:
        return e.op == Operator::Length || (e.op == Operator::Negate && can_be_a_number(*e.left));
      case ExpressionKind::Binary:
        return !is_concat(e) && !is_comparison(e);
      default:
        return false;
    }
  }

  void function_expression(const Expression& e) {
    block(*e.function->body);
    edits_.before(e.begin, "__triage_fn(");
    edits_.after(e.end, "," + std::to_string(e.function->id) + ")");
  }

  std::string_view source_;
  Edits edits_;
};

}  // namespace

const std::vector<std::string>& intrinsics() {
  static const std::vector<std::string> names = {"__triage_lt",   "__triage_le",    "__triage_gt",    "__triage_ge",
                                                 "__triage_eq",   "__triage_ne",    "__triage_test",  "__triage_concat",
                                                 "__triage_fn",   "__triage_touch", "__triage_write", "__triage_table",
                                                 "__triage_plain"};
  return names;
}

std::string rewrite(std::string_view source, std::string_view chunk_name, const Options& options) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, options);
  return Rewriter(source).rewrite(*chunk);
}

}  // namespace triage::lua::rewriter
