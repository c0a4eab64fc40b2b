// Edits the source instead of printing the tree: comments, spacing and line ends stay, and no token changes its line.
// Names of plain Lua that messages show ("global 'x'") survive because the operands themselves are not touched.
#include <algorithm>
#include <optional>
#include <utility>

#include "bindings/lua/rewriter/edits.h"
#include "bindings/lua/rewriter/findings/global_names.h"
#include "bindings/lua/rewriter/natural_edits.h"
#include "bindings/lua/rewriter/predicates.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/chunk_name.h"
#include "bindings/lua/rewriter/syntax/operand_names.h"
#include "bindings/lua/rewriter/syntax/parser.h"

namespace triage::lua::rewriter {
namespace {

/// What becomes of a value. `x or y` as a value asks whether there is an x: a mask is tested, and a tensor of numbers
/// stands for itself, as does `x` of `c and x or y`; so does a variable in any condition.
enum class Use : uint8_t { Value, Present, Condition };

/// The truth test of a whole is moved down to those of its operands that can become its value.
Use use_of_left(const Expression& e, Use use) {
  if (e.kind == ExpressionKind::Binary && e.op == Operator::And) return Use::Condition;
  if (e.kind == ExpressionKind::Binary && e.op == Operator::Or) return use == Use::Value ? Use::Present : use;
  if (e.kind == ExpressionKind::Unary) return e.op == Operator::Not ? Use::Condition : Use::Value;
  return e.kind == ExpressionKind::Parenthesized ? use : Use::Value;
}

class Rewriter {
 public:
  Rewriter(std::string_view source, const ParseOptions& options)
      : source_(source), policy_(options.policy), work_(options.charge) {}

  std::string rewrite(const Chunk& chunk, std::string_view chunk_name) {
    if (is_natural(chunk, source_)) natural_.emplace(chunk, display_name(chunk_name), edits_, work_);
    function_body(*chunk.main);
    std::string text = "local ";
    for (const std::string& name : intrinsics()) text += name + ",";
    text.back() = '=';
    // _ENV stays the main function's first upvalue, where debug.setupvalue is used to look for it.
    text += "...;return function(...)if _ENV then end ";
    text.reserve(text.size() + 2 * source_.size());
    work_.settle();
    edits_.apply(source_, chunk.start, text);
    // On a line of its own: the last line may be a comment.
    return text + "\nend";
  }

 private:
  void function_body(const Function& function) {
    if (natural_) natural_->open_function();
    block(*function.body);
    if (!natural_) return;
    const std::string start = natural_->close_function();
    if (!start.empty()) edits_.before(function.body->statements[0]->begin, start);
  }

  void block(const Block& block) {
    if (natural_) natural_->open_block(block);
    for (const Statement* const s : block.statements) statement(*s);
    if (natural_) natural_->close_block();
  }

  void statement(const Statement& s) {
    work_.step();
    switch (s.kind) {
      case StatementKind::Assign:
        assignment(s);
        break;
      case StatementKind::Function:
        function_statement(s);
        break;
      case StatementKind::LocalFunction:
        function_body(*s.function);
        register_function(s, s.variables[0]->name);
        break;
      case StatementKind::If:
        for (size_t i = 0; i < s.values.size(); i++) expression(*s.values[i], Use::Condition, s.then_begins[i]);
        break;
      case StatementKind::While:
      case StatementKind::Repeat:
        expression(*s.values[0], Use::Condition);
        if (natural_) natural_->loop_operand(*s.values[0], s.kind == StatementKind::While ? "while" : "until");
        break;
      case StatementKind::NumericFor:
        for (const Expression* const value : s.values) plain(*value);
        if (natural_)
          for (const Expression* const value : s.values) natural_->loop_operand(*value, "for");
        break;
      default:
        for (const Expression* const value : s.values) expression(*value);
        if (natural_) natural_->leave(s);
        if (policy_) hold_what_closes(s);
        break;
    }
    natural_ ? natural_blocks(s) : blocks(s);
    if (s.kind == StatementKind::Return && s.values.size() == 1) keep_frame(*s.values[0]);
    // In `local t = {}` a `(` on the next line starts a statement; behind the call that `{}` becomes it would continue
    // it.
    if (source_[s.begin] == '(') edits_.before(s.begin, ";");
  }

  void blocks(const Statement& s) {
    for (const Block* const inner : s.blocks) block(*inner);
  }

  void natural_blocks(const Statement& s) {
    const bool chooses = s.kind == StatementKind::If && chooses_samples(s);
    const bool loops = s.kind != StatementKind::If && s.kind != StatementKind::Do;
    if (chooses) natural_->open_if(s);
    if (loops) natural_->open_loop();
    blocks(s);
    if (loops) natural_->close_loop();
    if (chooses) natural_->close_if(s);
  }

  /// `return __triage_lt(...)` would be a tail call: the frame whose line errors name would be gone.
  void keep_frame(const Expression& value) {
    const bool becomes_call = is_comparison(value) || is_concat(value) || value.kind == ExpressionKind::Function ||
                              value.kind == ExpressionKind::Table ||
                              (natural_ && can_be_a_natural_mask(value) && !is_open(value));
    if (!becomes_call) return;
    edits_.before(value.begin, "(");
    edits_.after(value.end, ")");
  }

  // --- what is closed

  /// A policy closes nothing by itself: in the place of its values stand objects of the library (semantics/closing.h).
  void hold_what_closes(const Statement& s) {
    if (s.kind == StatementKind::GenericFor) {
      edits_.before(s.values.front()->begin, "__triage_iterate(");
      edits_.after(s.values.back()->end, ")");
    }
    if (s.kind != StatementKind::Local) return;
    for (const Variable* const variable : s.variables) {
      if (variable->attribute != Variable::Attribute::Close) continue;
      const size_t begin = variable->attribute_begin;
      edits_.replace(begin, begin + std::string_view("close").size(), "const");
      edits_.after(s.end, " local __triage_held<close> =__triage_close(" + variable->name + "," +
                              string_literal(variable->name) + ")");
    }
  }

  // --- writes

  void assignment(const Statement& s) {
    for (const Expression* const value : s.values) expression(*value);
    std::string announced;
    for (const Expression* const target : s.targets) {
      if (target->kind == ExpressionKind::Index) index_list(*target->right), key(*target->right);
      announce_write(s, *target, announced);
    }
    if (!announced.empty()) edits_.before(s.begin, announced);
    // What runs between the announcement and the write may look at the epoch, and has then seen the value that goes.
    if (writes_outside(s) && runs_code(s)) edits_.after(s.end, " __triage_touch();");
  }

  /// To anything but locals of its own that no other function shares.
  bool writes_outside(const Statement& s) const {
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
    function_body(*s.function);
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
    expression(table);
    edits_.before(table.begin, "__triage_write(");
    edits_.after(table.end, "," + position(table.line, table.line, table.column) + "," +
                                string_literal(operand_name(table)) +
                                (s.kind == StatementKind::Function ? ",true)" : ")"));
  }

  std::string write_to_variable(const Expression& name, int line) const {
    const bool is_own = name.variable && name.levels_out == 0;
    if (is_own) return name.variable->captured ? "__triage_touch();" : "";
    std::string call = "__triage_touch(" + string_literal(name.text) + "," + position(line, name.line, name.column);
    if (name.variable) call += "," + std::to_string(name.levels_out) + (natural_ ? natural_->chain_argument() : "");
    return call + ");";
  }

  // --- expressions

  /// What stands to the left of its neighbours, waiting to be edited.
  struct PendingExpression {
    const Expression* expression;
    Use use;
    size_t test_end;  // byte where its truth test ends; 0: where it ends itself
  };

  void expression(const Expression& whole, Use use = Use::Value, size_t test_end = 0) {
    std::vector<PendingExpression> spine;  // leans to the left without limit: no recursion
    for (PendingExpression next{&whole, use, test_end}; next.expression; next = left_operand(next))
      spine.push_back(next);
    work_.step(spine.size());
    for (auto operand = spine.rbegin(); operand != spine.rend(); ++operand) {
      const bool whole_of_chain =
          operand + 1 == spine.rend() || !is_chain((operand + 1)->expression, operand->expression);
      rest_of(*operand->expression, operand->use, whole_of_chain);
      if (natural_) continue;  // a condition is a value like others
      if (operand->use != Use::Value && can_be_a_mask(*operand->expression)) test(*operand);
    }
  }

  /// `a and b` in `a and b and c`.
  static bool is_chain(const Expression* outer, const Expression* left) {
    return is_logical(*outer) && is_logical(*left) && outer->op == left->op;
  }

  static PendingExpression left_operand(const PendingExpression& outer) {
    const Expression& e = *outer.expression;
    // Lua reads the fields of a left operand when it has read what comes behind, and reports errors on that line.
    const size_t test_end = is_logical(e) ? e.op_begin : e.kind == ExpressionKind::Parenthesized ? e.end - 1 : 0;
    return {e.left, use_of_left(e, outer.use), test_end};
  }

  void test(const PendingExpression& operand) {
    const Expression& e = *operand.expression;
    const bool is_read = operand.use == Use::Condition && !names_value(e);
    edits_.before(e.begin, "__triage_test(");
    edits_.after(operand.test_end ? operand.test_end : e.end,
                 "," + position(e.line, e.line, e.column) + (is_read ? ",true)" : ")"));
  }

  /// A variable or a field, which Lua asks whether there is a value: `if w.grad then`.
  static bool names_value(const Expression& e) {
    if (e.kind == ExpressionKind::Parenthesized) return names_value(*e.left);
    return e.kind == ExpressionKind::Name || e.kind == ExpressionKind::Index;
  }

  /// All of an expression but its left part.
  void rest_of(const Expression& e, Use use, bool whole_of_chain) {
    switch (e.kind) {
      case ExpressionKind::Function:
        function_expression(e);
        break;
      case ExpressionKind::Table:
        table(e);
        break;
      case ExpressionKind::Index:
        // A tensor takes a number that only a replay knows. Reading a variable twice changes nothing.
        index_list(*e.right);
        plain(*e.right, variable(*e.left));
        break;
      case ExpressionKind::Call:
      case ExpressionKind::MethodCall:
        call(e);
        break;
      case ExpressionKind::Binary:
        binary(e, use);
        if (natural_ && is_logical(e) && whole_of_chain) natural_->logical_chain(e, use == Use::Condition);
        break;
      case ExpressionKind::Unary:
        if (natural_ && e.op == Operator::Not) natural_->negation(e);
        break;
      default:
        break;
    }
  }

  void binary(const Expression& e, Use use) {
    if (is_concat(e)) {
      concat(e);
      return;
    }
    expression(*e.right, is_logical(e) ? use : Use::Value);
    if (!is_comparison(e)) return;
    const bool is_tested = use != Use::Value && !natural_;
    std::string more = is_tested ? ",true" : "";
    const bool compares_sizes =
        (e.op == Operator::Equal || e.op == Operator::NotEqual) && (gives_sizes(*e.left) || gives_sizes(*e.right));
    if (is_chained(e) || compares_sizes) more = is_tested ? ",true," : ",false,";
    if (is_chained(e))
      more += string_literal(unchained(e, source_));
    else if (compares_sizes)
      more += "true";
    edits_.before(e.begin, comparison_intrinsic(e.op));
    edits_.replace(e.op_begin, e.op_end, ",");
    // Lua reports a failed comparison on the line where its right side ends.
    edits_.after(e.end, "," + position(e.line, e.end_line, e.op_column) + more + ")");
  }

  /// `a .. b .. c` is one call: long chains neither nest nor build every partial string.
  void concat(const Expression& e) {
    const Expression* last = &e;
    std::string names = culprit_name(*e.left);
    for (;; last = last->right) {
      edits_.replace(last->op_begin, last->op_end, ",");
      const Expression& next = is_concat(*last->right) ? *last->right->left : *last->right;
      expression(next);
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
    for (const Expression* const argument : e.items) expression(*argument);
    if (!e.bare_argument || e.items[0]->kind != ExpressionKind::Table) return;
    edits_.before(e.items[0]->begin, "(");
    edits_.after(e.items[0]->end, ")");
  }

  void table(const Expression& e) {
    for (const Expression* const item : e.items) is_key(*item) ? key(*item) : expression(*item);
    edits_.before(e.begin, "__triage_table(");
    edits_.after(e.end, ")");
  }

  /// A list ends where a nil is, so that `z[{":", nil}]` would be `z[{":"}]`. No list as a key finds anything in a
  /// table.
  void index_list(const Expression& e, int depth = 0) {
    if (e.kind != ExpressionKind::Table) return;
    for (size_t i = 0; i < e.items.size(); i++) {
      const Expression& item = *e.items[i];
      if (is_none(item) && (depth == 0 || i + 1 == e.items.size()))  // in a range it is an open end
        edits_.replace(item.begin, item.end, "__triage_none(" + position(item.line, item.line, item.column) + ")");
      else
        index_list(item, depth + 1);
    }
  }

  /// Does `[` stand in front of the item, as in `{[key] = value}`?
  bool is_key(const Expression& item) const {
    const size_t before = source_.find_last_not_of(" \t\r\n", item.begin - 1);
    return before != std::string_view::npos && source_[before] == '[';
  }

  /// The name of a variable; empty for other expressions.
  std::string_view variable(const Expression& e) const {
    return e.kind == ExpressionKind::Name ? source_.substr(e.begin, e.end - e.begin) : std::string_view();
  }

  /// An expression whose value Lua takes itself, as a bound or as a key of `table`.
  void plain(const Expression& e, std::string_view table = {}) {
    expression(e);
    if (!can_be_a_number(e) && !is_comparison(e)) return;
    edits_.before(e.begin, "__triage_plain(");
    edits_.after(e.end, table.empty() ? ")" : "," + std::string(table) + ")");
  }

  /// A key that a table is written at. In a policy whatever it can be is looked at, but constants that are plain to
  /// see.
  void key(const Expression& e) {
    if (!policy_) return plain(e);
    expression(e);
    if (!can_be_a_number(e) && !is_comparison(e) && !is_concat(e) && !is_large_number(e)) return;
    edits_.before(e.begin, "__triage_key(");
    edits_.after(e.end, ")");
  }

  static bool is_large_number(const Expression& e) {
    constexpr size_t few_digits = 6;
    return e.kind == ExpressionKind::Number || (e.kind == ExpressionKind::Integer && e.text.size() > few_digits);
  }

  void function_expression(const Expression& e) {
    function_body(*e.function);
    edits_.before(e.begin, "__triage_fn(");
    edits_.after(e.end, "," + std::to_string(e.function->id) + ")");
  }

  std::string_view source_;
  bool policy_;
  Work work_;
  Edits edits_;
  std::optional<NaturalEdits> natural_;  // where the chunk is natural Lua
};

}  // namespace

const std::vector<std::string>& intrinsics() {
  static const auto& names = *new std::vector<std::string>{
#define TRIAGE_INTRINSIC(name, function) "__triage_" #name,
#include "bindings/lua/rewriter/intrinsics.inc"
#undef TRIAGE_INTRINSIC
  };
  return names;
}

std::string rewrite(std::string_view source, std::string_view chunk_name, const ParseOptions& options,
                    ChunkFacts* facts) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, options);
  if (facts) *facts = {is_natural(*chunk, source), global_names(*chunk)};
  return Rewriter(source, options).rewrite(*chunk, chunk_name);
}

}  // namespace triage::lua::rewriter
