// What `triage check` says: patterns that run but are probably not meant. A finding must be right far more often than
// not; where a type would have to be guessed, nothing is said.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "bindings/lua/rewriter/findings/foreign.h"
#include "bindings/lua/rewriter/findings/lost_values.h"
#include "bindings/lua/rewriter/findings/missing_results.h"
#include "bindings/lua/rewriter/findings/mixed_codes.h"
#include "bindings/lua/rewriter/findings/mixing.h"
#include "bindings/lua/rewriter/findings/unrepaired.h"
#include "bindings/lua/rewriter/findings/unsafe_where.h"
#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/natural_edits.h"
#include "bindings/lua/rewriter/predicates.h"
#include "bindings/lua/rewriter/rewriter.h"
#include "bindings/lua/rewriter/syntax/parser.h"

namespace triage::lua::rewriter {
namespace {

bool is_method(const Expression& e, std::string_view name) {
  return e.kind == ExpressionKind::MethodCall && e.text == name;
}
bool continues_chain(const Expression& e) { return is_method(e, "ELIF") || is_method(e, "ELSE"); }

/// The name under which an expression calls something: "torch.gather", or a method's "gather"; empty when it is no
/// call.
std::string callee(const Expression& e) { return e.kind == ExpressionKind::MethodCall ? e.text : called_global(e); }

constexpr const char* kFlagsArithmetic =
    "arithmetic on flags: they are packed codes, not numbers; combine them with err.merge(f1, f2), add to them "
    "with push(f, code, loc)";

bool is_arithmetic(const Expression& e) {
  const bool binary = e.kind == ExpressionKind::Binary && e.op < Operator::Concat;
  return binary || (e.kind == ExpressionKind::Unary && (e.op == Operator::Negate || e.op == Operator::BitNot));
}

/// Directly, or as the default in `f or err.new(z)`.
bool gives_flags(const Expression& e, int result) {
  const Expression* value = &e;
  while (value->kind == ExpressionKind::Binary && value->op == Operator::Or) value = value->right;
  return flags_result(called_global(*value)) == result;
}

bool is_update_of(const Variable& variable, const Expression& value) {
  if (!is_arithmetic(value)) return false;
  const auto is_it = [&](const Expression* e) {
    return e && e->kind == ExpressionKind::Name && e->variable == &variable;
  };
  return is_it(value.left) || is_it(value.right);
}

/// `push(f, 1, "x") + 0` is an error, which says nothing of its variable.
bool is_arithmetic_on_new_flags(const Expression& value) {
  return is_arithmetic(value) && (gives_flags(*value.left, 0) || (value.right && gives_flags(*value.right, 0)));
}

/// Is what stands to its left a condition too?
bool wraps_condition(const Expression& e) {
  return is_logical(e) || e.kind == ExpressionKind::Parenthesized || e.op == Operator::Not;
}

/// A method of tensors that is no reading of a value.
bool gives_tensor(const Expression& e) {
  static const auto& reductions =
      *new std::set<std::string>{"sum", "mean", "std", "amax", "amin", "norm", "prod", "var", "abs"};
  return e.kind == ExpressionKind::MethodCall && reductions.count(e.text);
}

bool looks_like_mask(const Expression& whole) {
  for (const Expression* e = &whole;; e = e->left) {
    const std::string path = called_global(*e);
    if (path == "HAS" || path == "IS" || path.compare(0, 4, "err.") == 0) return true;
    if (is_comparison(*e)) return gives_tensor(*e->left) || gives_tensor(*e->right);
    if (is_logical(*e) && looks_like_mask(*e->right)) return true;
    if (!wraps_condition(*e))
      return e->kind == ExpressionKind::MethodCall && (e->text == "any" || e->text == "all" || e->text == "isnan");
  }
}

bool is_integer(const Expression& e, std::string_view text) {
  return e.kind == ExpressionKind::Integer && e.text == text;
}

std::string condition_per_sample(const std::string& name, const Expression& condition) {
  if (name == "HAS") return "err.is_err(f)";
  const std::string code = condition.items.empty() ? "" : global_path(*condition.items[0]);
  if (code == "err.NAN") return "err.has_nan(f)";
  if (code == "err.INF") return "err.has_inf(f)";
  return "err.has_code(f, " + (code.empty() ? "code" : code) + ")";
}

bool is_nonzero_literal(const Expression& e) {
  const bool number = e.kind == ExpressionKind::Number || e.kind == ExpressionKind::Integer;
  return number && e.text.find_first_of("123456789") != std::string::npos;
}

/// The expression that the i-th of several variables gets, and which of its results.
std::pair<const Expression*, int> value_for(const std::vector<Expression*>& values, size_t i) {
  if (values.empty()) return {nullptr, 0};
  if (i < values.size()) return {values[i], 0};
  return {values.back(), static_cast<int>(i - values.size() + 1)};
}

class FindingsChecker {
 public:
  explicit FindingsChecker(const ParseOptions& options) : options_(options) {}

  std::vector<Warning> check(const Chunk& chunk, std::string_view source) {
    natural_ = is_natural(chunk, source);
    collect_facts(chunk);
    block(*chunk.main->body);
    return std::move(warnings_);
  }

 private:
  void warn(const Expression& at, const std::string& message) { warnings_.push_back({at.line, at.column, message}); }
  void warn_at_operator(const Expression& at, const std::string& message) {
    warnings_.push_back({at.op_line, at.op_column, message});
  }

  // --- what is known of variables before the walk

  void collect_facts(const Chunk& chunk) {
    for (const Statement& s : chunk.statements) {
      if (s.kind == StatementKind::LocalFunction) note_function(s.variables[0], s.function);
      for (size_t i = 0; i < s.variables.size() && s.kind == StatementKind::Local; i++)
        note_value(s.variables[i], value_for(s.values, i));
      for (size_t i = 0; i < s.variables.size() && i < s.values.size() && s.kind == StatementKind::Local; i++)
        declared_with_.emplace(s.variables[i], s.values[i]);
      for (const Expression* const target : s.targets)
        if (target->kind == ExpressionKind::Name) reassigned_.insert(target->variable);
      for (size_t i = 0; i < s.targets.size() && s.kind == StatementKind::Assign; i++)
        if (s.targets[i]->kind == ExpressionKind::Name) note_value(s.targets[i]->variable, value_for(s.values, i));
    }
    std::set<const Variable*> given_as_flags;
    for (const Expression& e : chunk.expressions) {
      const auto place = static_cast<size_t>(flags_argument(called_global(e)));  // -1: beyond all
      if (place < e.items.size()) given_as_flags.insert(e.items[place]->variable);
      if (const Function* const mapping = function_of_flags(e)) given_as_flags.insert(mapping->parameters[0]);
    }
    for (const Expression& e : chunk.expressions)
      numbers_in_graphs_ |= e.kind == ExpressionKind::String && e.text == "capture_scalar_outputs";
    for (const Expression& e : chunk.expressions)
      if (e.kind == ExpressionKind::Index && e.right->variable) indices_.insert(e.right->variable);
    for (const Function& function : chunk.functions)
      for (const Variable* const parameter : function.parameters)
        (given_as_flags.count(parameter) ? flags_ : other_).insert(parameter);
    for (const Expression& e : chunk.expressions)
      if (continues_chain(e) && e.left->kind == ExpressionKind::Name) continued_later_.insert(e.left->variable);
    for (const Statement* const s : chunk.main->body->statements)
      for (const Expression* const target : s->targets) main_globals_.insert(global_path(*target));
  }

  /// The function that `err.map_err_flags` calls with flags: where it stands there, or has a name of its own.
  const Function* function_of_flags(const Expression& e) const {
    if (called_global(e) != "err.map_err_flags" || e.items.size() < 2) return nullptr;
    const Expression& mapping = *e.items[1];
    const auto named = mapping.kind == ExpressionKind::Name ? functions_.find(mapping.variable) : functions_.end();
    const Function* const function = named != functions_.end() ? named->second : mapping.function;
    return function && !function->parameters.empty() ? function : nullptr;
  }

  void note_function(const Variable* variable, const Function* function) {
    const auto [known, fresh] = functions_.emplace(variable, function);
    if (!fresh) known->second = nullptr;  // one of several
  }

  void note_value(const Variable* variable, std::pair<const Expression*, int> value) {
    if (!variable || !value.first) return;              // a declaration without a value says nothing
    note_function(variable, value.first->function);     // null: another value
    if (is_update_of(*variable, *value.first)) return;  // nor does `f = f + 1`: the other values of `f` say what it is
    if (is_arithmetic_on_new_flags(*value.first)) return;
    (gives_flags(*value.first, value.second) ? flags_ : other_).insert(variable);
  }

  bool is_flags(const Expression& e) const {
    if (e.kind == ExpressionKind::Name) return e.variable && flags_.count(e.variable) && !other_.count(e.variable);
    return gives_flags(e, 0);
  }

  // --- statements

  void block(const Block& block) {
    for (const Statement* const s : block.statements) statement(*s);
  }

  void statement(const Statement& s) {
    if (s.kind == StatementKind::Call) dropped_result(*s.values[0]);
    if (s.kind == StatementKind::NumericFor && options_.policy && depth_ > 0) loop_over_rows(s);
    for (const Expression* const target : s.targets) {
      if (target->kind == ExpressionKind::Name) {
        global_write(s, *target);
        kept_state(*target);
      } else {
        const Expression* root = target;
        while (root->kind == ExpressionKind::Index) root = root->left;
        if (root->kind == ExpressionKind::Name) kept_state(*root);
        expression(*target, false);
      }
    }
    for (const Expression* const value : s.values) {
      expression(*value, s.values.size() == 1 && is_continued(s));
    }
    if (s.kind == StatementKind::Return && arms_ > 0) warn_of_return(s);
    const bool chooses = natural_ && s.kind == StatementKind::If && asks_samples(s);
    arms_ += chooses, branches_ += chooses;
    for (const Block* const inner : s.blocks) block(*inner);
    arms_ -= chooses, branches_ -= chooses;
    if (s.function) function(*s.function);
  }

  /// Is a condition of the `if` a mask, as far as one can tell: made by err.*, HAS, IS, or compared with what a method
  /// gave?
  bool asks_samples(const Statement& s) {
    bool any = false;
    for (const Expression* const condition : s.values) {
      batch_condition(*condition);
      any |= looks_like_mask(*condition);
    }
    return any;
  }

  void warn_of_return(const Statement& s) {
    warnings_.push_back({s.line, s.column,
                         "`return` in a branch of an `if` on a mask is an error when it runs: every branch runs, each "
                         "for its own samples; assign to a variable in the branch and return it after the `if`"});
  }

  /// The one variable that the statement assigns is where a later statement goes on with `:ELSE(...)`.
  bool is_continued(const Statement& s) const {
    const Variable* variable = nullptr;
    if (s.kind == StatementKind::Local) variable = s.variables[0];
    if (s.kind == StatementKind::Assign) variable = s.targets[0]->variable;
    return variable && continued_later_.count(variable);
  }

  void function(const Function& function) {
    depth_++;
    const int around = std::exchange(arms_, 0);  // what it returns from is no branch
    block(*function.body);
    arms_ = around;
    depth_--;
  }

  void dropped_result(const Expression& call) {
    const std::string path = called_global(call);
    const bool of_torch = is_torch_computation(path);
    const bool of_tensor = call.kind == ExpressionKind::MethodCall && computes(call.text) &&
                           value_of_local(call.left)->kind != ExpressionKind::Table;
    if (of_torch || of_tensor)
      return warn(call, "the result of " + (of_torch ? path : "x:" + call.text) +
                            "(...) is dropped, and nothing else changes: tensors are values; write x = ...");
    if (!is_functional(path)) return;
    const std::string use = path == "fix"             ? "`z, f = fix(...)`"
                            : flags_result(path) == 0 ? "`f = " + path + "(...)`"
                                                      : "its result";
    warn(call, "the result of " + path +
                   "(...) is dropped, and nothing else changes: tensors and flags are values; use " + use);
  }

  void global_write(const Statement& s, const Expression& name) {
    if (name.variable || reported_globals_.count(name.text)) return;
    const bool at_top = depth_ == 0;
    const bool intended = !options_.policy && (at_top || main_globals_.count(name.text));
    if (intended) return;
    reported_globals_.insert(name.text);
    const std::string declare = s.kind == StatementKind::Function ? "local function " : "local ";
    warn(name, "'" + name.text + "' is written as a global variable; declare it with `" + declare + name.text + "`" +
                   (at_top ? "" : ". A policy that writes globals cannot become one graph"));
  }

  /// `count = count + 1` in a function, of a local of the file: it is still there in the next call.
  void kept_state(const Expression& name) {
    const Variable* const variable = name.variable;
    if (!options_.policy || !variable || variable->owner->parent || name.levels_out == 0 || in_tests_ > 0) return;
    if (!reported_state_.insert(variable).second) return;
    warn(name, "'" + name.text +
                   "' keeps its value from one call to the next: a graph cannot repeat this write, so the script runs "
                   "on every call, and a reload or restart loses the value; keep it in a local of the function, or "
                   "declare it as state: state = { " +
                   name.text + " = { shape = {} } }, run = function(..., s) ... return ..., { " + name.text +
                   " = new } end");
  }

  /// `for i = 0, z:size(0) - 1 do ... z[i] ...`: the loop bound is the number of rows, and the variable is their index.
  void loop_over_rows(const Statement& s) {
    if (s.values.size() < 2) return;
    const Expression* const rows = counted_rows(*s.values[1]);
    if (!rows || value_of_local(rows)->kind == ExpressionKind::Table || !indices_.count(s.variables[0])) return;
    warnings_.push_back({s.line, s.column,
                         "a loop over the rows of '" + rows->text +
                             "': a graph holds every turn of it, so each batch size needs a graph of its own, and each "
                             "row costs a call of each operation; work on the whole batch at once (masks, torch.where, "
                             "IF)"});
  }

  /// The tensor whose rows are counted: `z` of `z:size(0) - 1`, `z.shape[1]` or `#z - 1`, also where locals hold these.
  /// (`#z` alone may be the length of a table.)
  const Expression* counted_rows(const Expression& given) const {
    const Expression* bound = value_of_local(&given);
    const bool less_one =
        bound->kind == ExpressionKind::Binary && bound->op == Operator::Subtract && is_integer(*bound->right, "1");
    if (less_one) bound = value_of_local(bound->left);
    const auto name = [](const Expression* e) { return e && e->kind == ExpressionKind::Name ? e : nullptr; };
    if (is_method(*bound, "size") && bound->items.size() == 1 && is_integer(*bound->items[0], "0"))
      return name(bound->left);
    if (less_one && bound->kind == ExpressionKind::Unary && bound->op == Operator::Length) return name(bound->left);
    if (bound->kind != ExpressionKind::Index || !is_integer(*bound->right, "1")) return nullptr;
    const Expression& shape = *bound->left;
    const bool is_shape = shape.kind == ExpressionKind::Index && shape.right->kind == ExpressionKind::String &&
                          shape.right->text == "shape";
    return is_shape ? name(shape.left) : nullptr;
  }

  /// What a local was declared with, where nothing else is assigned to it.
  const Expression* value_of_local(const Expression* e) const {
    if (e->kind != ExpressionKind::Name || reassigned_.count(e->variable)) return e;
    const auto value = declared_with_.find(e->variable);
    return value == declared_with_.end() ? e : value->second;
  }

  /// `z:item()`: a number of one call's data.
  void reads_value(const Expression& e) {
    if (!options_.policy || depth_ == 0 || !is_method(e, "item") || !e.items.empty() || in_tests_ > 0 ||
        numbers_in_graphs_)
      return;
    warn_at_operator(e,
                     "item() takes a number out of a tensor: the call waits for it, and the graph breaks here; keep it "
                     "a tensor (operations take 0-dim tensors for numbers)");
  }

  // --- expressions

  void expression(const Expression& whole, bool chain_goes_on) {
    const Expression* above = nullptr;  // the node that has `e` on its left
    for (const Expression* e = &whole; e; above = e, e = e->left) {
      node(*e);
      const bool unfinished = !above || !continues_chain(*above);
      if (is_chain_start(*e) && unfinished && !chain_goes_on) unfinished_chain(*e);
      if (is_method(*e, "ELIF") && unfinished && !chain_goes_on) unfinished_chain(*e);
    }
  }

  static bool is_chain_start(const Expression& e) { return called_global(e) == "IF"; }

  void unfinished_chain(const Expression& e) {
    warn(e,
         "an IF chain without ELSE has no value, and is an error when it runs; end it with `:ELSE(function() return "
         "... end)`");
  }

  /// All of an expression but its left part.
  void node(const Expression& e) {
    switch (e.kind) {
      case ExpressionKind::Function:
        function(*e.function);
        break;
      case ExpressionKind::Binary:
        arithmetic(e);
        expression(*e.right, false);
        break;
      case ExpressionKind::Unary:
        arithmetic(e);
        break;
      case ExpressionKind::Index:
        expression(*e.right, false);
        break;
      case ExpressionKind::Table:
        for (size_t i = 0; i < e.items.size(); i++) {
          const bool tests = e.keys[i] == "tests";  // what compares results may read them
          in_tests_ += tests;
          expression(*e.items[i], false);
          in_tests_ -= tests;
        }
        break;
      case ExpressionKind::Call:
      case ExpressionKind::MethodCall:
        call(e);
        break;
      default:
        break;
    }
  }

  void call(const Expression& e) {
    const std::string name = callee(e);
    if ((name == "IF" || name == "ELIF") && !e.items.empty()) batch_condition(*e.items[0]);
    if (branches_ > 0 && raises_on_bad_values(name)) {
      const std::string message =
          name +
          " raises on bad values, and this function runs for every row, the bad ones included; repair its "
          "input first (fix, err.take_ok_p, clamp)";
      e.kind == ExpressionKind::MethodCall ? warn_at_operator(e, message) : warn(e, message);
    }
    reads_value(e);
    computation(e);
    const bool enters = runs_for_every_row(name);
    for (const Expression* const argument : e.items) {
      const bool branch = enters && argument->kind == ExpressionKind::Function;
      branches_ += branch;
      expression(*argument, false);
      branches_ -= branch;
    }
  }

  /// `IF(IS(..), ...)`: one truth value where one per sample was probably meant.
  void batch_condition(const Expression& whole) {
    const Expression* e = &whole;
    for (; wraps_condition(*e); e = e->left)
      if (is_logical(*e)) batch_condition(*e->right);
    const Expression& condition = *e;
    const std::string name = called_global(condition);
    if (name == "NOT" || name == "AND" || name == "OR")
      for (const Expression* const part : condition.items) batch_condition(*part);
    if (name != "IS" && name != "HAS") return;
    warn(condition, (natural_ ? "`if` " + name + "(...)" : "IF(" + name + "(...))") +
                        " decides for the whole batch: one bad sample changes all samples. To decide per sample use " +
                        condition_per_sample(name, condition));
  }

  /// `f:sum()` and `torch.add(f, 1)`.
  void computation(const Expression& e) {
    const std::string name = callee(e);
    if (e.kind == ExpressionKind::MethodCall) {
      if (computes(name) && is_flags(*e.left)) warn_at_operator(e, kFlagsArithmetic);
    } else if (is_torch_computation(name)) {
      for (const Expression* const argument : e.items)
        if (is_flags(*argument)) return warn(e, kFlagsArithmetic);
    }
  }

  void arithmetic(const Expression& e) {
    if (!is_arithmetic(e)) return;
    for (const Expression* const operand : {e.left, e.right})
      if (operand && is_flags(*operand)) warn_at_operator(e, kFlagsArithmetic);
    if (e.op == Operator::FloorDivide && branches_ > 0 && !is_nonzero_literal(*e.right))
      warn_at_operator(
          e,
          "// raises when an integer is divided by zero, and this function runs for every row; make the divisor "
          "nonzero first (clamp, torch.where)");
  }

  ParseOptions options_;
  std::vector<Warning> warnings_;
  std::set<const Variable*> flags_, other_;                     // what variables were ever assigned
  std::map<const Variable*, const Expression*> declared_with_;  // of locals
  std::set<const Variable*> reassigned_;
  std::map<const Variable*, const Function*> functions_;  // that variables stand for; null where that is not known
  std::set<const Variable*> continued_later_;             // `local c = IF(...)`, then `c:ELSE(...)`
  std::set<std::string> main_globals_;                    // what the main function assigns
  std::set<std::string> reported_globals_;
  std::set<const Variable*> reported_state_;
  std::set<const Variable*> indices_;  // of `z[i]`
  bool numbers_in_graphs_ = false;     // the file sets triage.config.capture_scalar_outputs
  bool natural_ = false;
  int in_tests_ = 0;  // in the field `tests` of a policy
  int depth_ = 0;     // of functions
  int branches_ = 0;  // functions, and branches of natural Lua, that run for every row
  int arms_ = 0;      // the latter, in the function itself
};

}  // namespace

std::vector<Warning> check(std::string_view source, std::string_view chunk_name, const ParseOptions& options) {
  const std::unique_ptr<Chunk> chunk = parse(source, chunk_name, options);
  std::vector<Warning> warnings = FindingsChecker(options).check(*chunk, source);
  for (Warning& warning : find_unrepaired(*chunk)) warnings.push_back(std::move(warning));
  for (Warning& warning : find_unsafe_where(*chunk)) warnings.push_back(std::move(warning));
  for (Warning& warning : find_foreign(*chunk, source)) warnings.push_back(std::move(warning));
  for (Warning& warning : find_missing_results(*chunk)) warnings.push_back(std::move(warning));
  for (Warning& warning : find_mixing(*chunk, options.policy)) warnings.push_back(std::move(warning));
  for (Warning& warning : find_mixed_codes(*chunk)) warnings.push_back(std::move(warning));
  for (Warning& warning : find_lost_values(*chunk)) warnings.push_back(std::move(warning));
  std::stable_sort(warnings.begin(), warnings.end(), [](const Warning& a, const Warning& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return warnings;
}

}  // namespace triage::lua::rewriter
