// Says only what the text shows: the condition compares a variable, and a branch takes the same variable, as it is, to
// an operation that has no finite derivative, or no finite value, for some numbers; or squares what the condition asks
// for NaN; or takes a softmax of a row that may be all -Inf.
#include "bindings/lua/rewriter/findings/unsafe_where.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/predicates.h"

namespace triage::lua::rewriter {
namespace {

using Names = std::set<std::string_view>;

/// How a condition compares a variable.
struct VariableComparison {
  bool equals = false;      // only with `==` and `~=`, which exclude single values
  bool may_be_nan = false;  // it asks for NaN or Inf
  bool is_derived = false;  // it compares what a local made of the variable
};
using Compared = std::map<const Variable*, VariableComparison>;

const auto& kSingular = *new Names{"log",     "log2",    "log10", "log1p", "sqrt",   "rsqrt",  "reciprocal", "exp",
                                   "exp2",    "expm1",   "acos",  "asin",  "arccos", "arcsin", "acosh",      "atanh",
                                   "arccosh", "arctanh", "logit", "sinh",  "cosh",   "lgamma", "digamma"};
/// Of these, what is finite at any finite number that a condition excludes by itself.
const auto& kOverflowing = *new Names{"exp", "exp2", "expm1", "sinh", "cosh"};
/// Of these, where all of a row is equal or 0.
const auto& kSingularReductions = *new Names{"norm", "std"};
const auto& kAsksForNan = *new Names{"isfinite", "isnan", "isinf"};
const auto& kSameOrder = *new Names{"abs", "neg", "square"};
const auto& kSoftmax = *new Names{"softmax", "log_softmax", "logsumexp"};
const auto& kEquals = *new Names{"eq", "ne", "not_equal"};
const auto& kCompares = *new Names{"eq",
                                   "ne",
                                   "lt",
                                   "le",
                                   "gt",
                                   "ge",
                                   "greater",
                                   "less",
                                   "isfinite",
                                   "isnan",
                                   "isinf",
                                   "not_equal",
                                   "greater_equal",
                                   "less_equal"};
constexpr std::string_view torch_prefix = "torch.";
constexpr size_t branches_of_where = 3;
constexpr int most_locals = 4;  // that stand for each other

/// The method, or the function of `torch`, that is called; empty where it is none.
std::string_view operation(const Expression& e, const std::string& path) {
  if (e.kind == ExpressionKind::MethodCall) return e.text;
  if (!path.starts_with(torch_prefix)) return {};
  return std::string_view(path).substr(torch_prefix.size());
}

/// Its i-th tensor: a method's first one is what it is called on.
const Expression* argument(const Expression& call, size_t i) {
  if (call.kind == ExpressionKind::MethodCall) {
    if (i == 0) return call.left;
    --i;
  }
  return i < call.items.size() ? call.items[i] : nullptr;
}

bool is_negative(const Expression& e) { return e.kind == ExpressionKind::Unary && e.op == Operator::Negate; }

/// An exponent with which 0, or a negative number, has no finite derivative.
bool is_singular_power(const Expression& exponent) {
  const Expression& number = is_negative(exponent) ? *exponent.left : exponent;
  if (number.kind == ExpressionKind::Integer) return is_negative(exponent);
  return number.kind == ExpressionKind::Number;
}

/// -math.huge, -1/0
bool is_minus_inf(const Expression& e) {
  if (e.kind == ExpressionKind::Parenthesized) return is_minus_inf(*e.left);
  if (is_negative(e))
    return e.left->kind == ExpressionKind::Index && e.left->right->kind == ExpressionKind::String &&
           (e.left->right->text == "huge" || e.left->right->text == "inf");
  return e.kind == ExpressionKind::Binary && e.op == Operator::Divide && is_negative(*e.left) &&
         e.right->kind == ExpressionKind::Integer && e.right->text == "0";
}

class UnsafeWhereFinder {
 public:
  explicit UnsafeWhereFinder(const Chunk& chunk) {
    for (const Statement& s : chunk.statements) {
      for (const Expression* const target : s.targets)
        if (target->kind == ExpressionKind::Name) reassigned_.insert(target->variable);
      for (size_t i = 0; i < s.variables.size() && i < s.values.size() && s.kind == StatementKind::Local; i++)
        values_.emplace(s.variables[i], s.values[i]);
    }
  }

  std::vector<Warning> find(const Chunk& chunk) {
    for (const Expression& e : chunk.expressions) look(e);
    return std::move(warnings_);
  }

 private:
  void look(const Expression& e) {
    const std::string path = called_global(e);
    const bool method = e.kind == ExpressionKind::MethodCall && e.text == "where" && e.items.size() == 2;
    const bool call = path == "torch.where" && e.items.size() == branches_of_where;
    if (!method && !call) return;
    Compared compared;
    compared_in(*(e.items[0]), compared, most_locals);
    for (const Expression* const branch : {method ? e.left : e.items[1], e.items.back()}) {
      const std::string found = singular_in(*branch, compared, most_locals);
      if (!found.empty()) return warn(e, found);
    }
  }

  void warn(const Expression& e, const std::string& operation) {
    const bool method = e.kind == ExpressionKind::MethodCall;
    warnings_.push_back(
        {method ? e.op_line : e.line, method ? e.op_column : e.column,
         "torch.where computes both branches, also backwards: " + operation +
             " of what the condition keeps from it gives 0 * inf, NaN in the gradient. WHERE(mask, function() return "
             "... end, other), "
             "IF or `if` in natural Lua send back only what is chosen; without gradients, nothing is wrong"});
  }

  const Expression* value_of(const Expression& e) const {
    if (e.kind != ExpressionKind::Name || !e.variable || reassigned_.count(e.variable)) return nullptr;
    const auto value = values_.find(e.variable);
    return value == values_.end() ? nullptr : value->second;
  }

  /// The variables that a condition compares as they are.
  void compared_in(const Expression& e, Compared& compared, int locals) const {
    if (const Expression* value = value_of(e); value && locals > 0) return compared_in(*value, compared, locals - 1);
    const auto note = [&](const Expression* operand, bool equals, bool may_be_nan = false) {
      while (operand && operand->kind == ExpressionKind::Parenthesized) operand = operand->left;
      const std::string inner = operand ? called_global(*operand) : "";
      if (operand && kSameOrder.count(operation(*operand, inner))) operand = argument(*operand, 0);
      if (!operand || operand->kind != ExpressionKind::Name || !operand->variable) return;
      VariableComparison& known =
          compared.try_emplace(operand->variable, VariableComparison{equals, false, true}).first->second;
      known.equals = equals && (known.equals || known.is_derived);
      known.is_derived = false;
      known.may_be_nan = known.may_be_nan || may_be_nan;
      if (const Expression* const value = value_of(*operand)) note_origins(*value, compared, most_locals);
    };
    const std::string path = called_global(e);
    const std::string_view name = operation(e, path);
    if (kCompares.count(name)) {
      for (size_t i = 0; i < 2; ++i) note(argument(e, i), kEquals.count(name) != 0, kAsksForNan.count(name) != 0);
    } else if (e.kind == ExpressionKind::Binary && e.op >= Operator::Equal && e.op <= Operator::GreaterEqual) {
      const bool equals = e.op == Operator::Equal || e.op == Operator::NotEqual;
      note(e.left, equals), note(e.right, equals);
    } else if (e.kind == ExpressionKind::Binary || e.kind == ExpressionKind::Unary ||
               e.kind == ExpressionKind::Parenthesized) {
      if (e.left) compared_in(*e.left, compared, locals);
      if (e.right) compared_in(*e.right, compared, locals);
    }
  }

  /// The variables that a compared local was made of.
  void note_origins(const Expression& e, Compared& compared, int locals) const {
    if (e.kind == ExpressionKind::Name && e.variable) {
      const bool fresh = compared.try_emplace(e.variable, VariableComparison{true, false, true}).second;
      const Expression* const value = fresh && locals > 0 ? value_of(e) : nullptr;
      if (value) note_origins(*value, compared, locals - 1);
      return;
    }
    if (e.kind == ExpressionKind::Function || e.kind == ExpressionKind::Table) return;
    if (e.left) note_origins(*e.left, compared, locals);
    for (const Expression* const item : e.items) note_origins(*item, compared, locals);
  }

  /// Whether the value of `e` may be NaN where the condition asked for it.
  bool may_be_nan(const Expression* e, const Compared& compared, int locals) const {
    if (!e || locals == 0) return false;
    if (e->kind == ExpressionKind::Name) {
      const auto known = compared.find(e->variable);
      if (known != compared.end()) return known->second.may_be_nan;
      return may_be_nan(value_of(*e), compared, locals - 1);
    }
    if (e->kind == ExpressionKind::Parenthesized || e->kind == ExpressionKind::Unary)
      return may_be_nan(e->left, compared, locals);
    return e->kind == ExpressionKind::Binary &&
           (may_be_nan(e->left, compared, locals) || may_be_nan(e->right, compared, locals));
  }

  /// A row that a mask leaves nothing of.
  bool may_be_all_minus_inf(const Expression* e, int locals) const {
    if (const Expression* value = e ? value_of(*e) : nullptr; value && locals > 0)
      return may_be_all_minus_inf(value, locals - 1);
    if (!e) return false;
    const std::string path = called_global(*e);
    const std::string_view name = operation(*e, path);
    return (name == "where" || name == "masked_fill") &&
           std::any_of(e->items.begin(), e->items.end(), [](const Expression* item) { return is_minus_inf(*item); });
  }

  /// What becomes NaN backwards where a value is NaN, or a row -Inf, though nothing comes back to it.
  std::string spoiled_in(const Expression& e, std::string_view name, const Compared& compared) const {
    if (kSoftmax.count(name) && may_be_all_minus_inf(argument(e, 0), most_locals)) return "`" + std::string(name) + "`";
    if ((name == "square" || name == "pow") && may_be_nan(argument(e, 0), compared, most_locals))
      return "`" + std::string(name) + "`";
    const bool is_power = e.kind == ExpressionKind::Binary && e.op == Operator::Power;
    return is_power && may_be_nan(e.left, compared, most_locals) ? "a power" : "";
  }

  static bool is_one(const Expression* e, const Compared& compared, bool by_order = false) {
    while (e && e->kind == ExpressionKind::Parenthesized) e = e->left;
    if (!e || e->kind != ExpressionKind::Name) return false;
    const auto known = compared.find(e->variable);
    return known != compared.end() && !known->second.is_derived && !(by_order && known->second.equals);
  }

  /// How the message names an operation in `e` that takes one of these variables; empty where there is none.
  std::string singular_in(const Expression& e, const Compared& compared, int locals) const {
    if (const Expression* value = value_of(e); value && locals > 0 && !compared.count(e.variable))
      return singular_in(*value, compared, locals - 1);
    const std::string path = called_global(e);
    const std::string_view name = operation(e, path);
    if (std::string spoiled = spoiled_in(e, name, compared); !spoiled.empty()) return spoiled;
    if (kSingularReductions.count(name) && argument(e, 0) && argument(e, 0)->kind == ExpressionKind::Name &&
        compared.count(argument(e, 0)->variable))
      return "`" + std::string(name) + "`";
    if (kSingular.count(name) && is_one(argument(e, 0), compared, kOverflowing.count(name) != 0))
      return "`" + std::string(name) + "`";
    if (name == "atan2" && (is_one(argument(e, 0), compared) || is_one(argument(e, 1), compared))) return "`atan2`";
    const bool divides = name == "div" || name == "divide" || name == "true_divide";
    if (divides && is_one(argument(e, 1), compared)) return "a division";
    const Expression* exponent = name == "pow" ? argument(e, 1) : nullptr;
    if (exponent && is_singular_power(*exponent) && is_one(argument(e, 0), compared)) return "`pow`";
    if (e.kind == ExpressionKind::Binary) {
      if (e.op == Operator::Divide && is_one(e.right, compared)) return "a division";
      if (e.op == Operator::Power && is_singular_power(*e.right) && is_one(e.left, compared)) return "a power";
    }
    if (name == "where" || path == "WHERE" || path == "IF" || name == "detach") return "";
    return singular_below(e, compared, locals);
  }

  std::string singular_below(const Expression& e, const Compared& compared, int locals) const {
    std::string found;
    const auto search = [&](const Expression* part) {
      if (part && found.empty() && part->kind != ExpressionKind::Function) found = singular_in(*part, compared, locals);
    };
    if (e.kind == ExpressionKind::Table || e.kind == ExpressionKind::Index) return found;
    search(e.left), search(e.right);
    for (const Expression* const item : e.items) search(item);
    return found;
  }

  std::set<const Variable*> reassigned_;
  std::map<const Variable*, const Expression*> values_;  // that locals are declared with
  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_unsafe_where(const Chunk& chunk) { return UnsafeWhereFinder(chunk).find(chunk); }

}  // namespace triage::lua::rewriter
