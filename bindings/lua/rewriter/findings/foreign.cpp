#include "bindings/lua/rewriter/findings/foreign.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "bindings/lua/rewriter/findings/vocabulary.h"
#include "bindings/lua/rewriter/predicates.h"

namespace triage::lua::rewriter {
namespace {

/// Operators with two results, of values and of indices, and how many arguments a call of the method has at least that
/// gives both.
struct TwoResultOperator {
  std::string_view name;
  size_t arguments;
};
constexpr std::array kPairs = std::to_array<TwoResultOperator>({{"max", 1},
                                                                {"min", 1},
                                                                {"median", 1},
                                                                {"nanmedian", 1},
                                                                {"mode", 0},
                                                                {"sort", 0},
                                                                {"topk", 1},
                                                                {"kthvalue", 1},
                                                                {"cummax", 1},
                                                                {"cummin", 1}});
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

/// Arithmetic or a call: more likely a tensor than a dim.
bool is_computed(const Expression& e) {
  return e.kind == ExpressionKind::Binary || e.kind == ExpressionKind::Call || e.kind == ExpressionKind::MethodCall;
}

/// The call gives values and indices: `x:max(1)`, `torch.sort(x)`.
bool gives_pair(const Expression& e) {
  const bool method = e.kind == ExpressionKind::MethodCall;
  const std::string path = method ? "torch." + e.text : called_global(e);
  if (path.rfind("torch.", 0) != 0) return false;
  const size_t given = e.items.size() + (method ? 1 : 0);
  const bool may_compare = path == "torch.max" || path == "torch.min";
  if (may_compare && given == 2 && is_computed(*e.items.back())) return false;  // x:max(y) is by element
  for (const TwoResultOperator& pair : kPairs)
    if (path.compare(6, std::string::npos, pair.name) == 0) return given > pair.arguments;
  return false;
}

constexpr std::array<std::string_view, 6> kLists = {"chunk",        "split",        "unbind",
                                                    "tensor_split", "unsafe_chunk", "split_with_sizes"};
constexpr std::array<std::string_view, 5> kNumbers = {"numel", "nelement", "dim", "ndimension", "size"};

/// Methods that make numbers of a tensor, no mask.
constexpr std::array<std::string_view, 6> kReductions = {"sum", "mean", "prod", "std", "var", "count_nonzero"};

bool is_reduction(const Expression& e) { return e.kind == ExpressionKind::MethodCall && contains(kReductions, e.text); }

constexpr std::array<std::string_view, 8> kTypes = {"nil",   "number",   "string", "boolean",
                                                    "table", "function", "thread", "userdata"};
constexpr std::array<std::string_view, 8> kAsking = {"any",      "all",   "isnan",         "isinf",
                                                     "isfinite", "numel", "is_contiguous", "is_complex"};
constexpr std::array<std::string_view, 6> kComparingMethods = {"eq", "ne", "lt", "le", "gt", "ge"};

bool is_field(const Expression& e, std::string_view name) {
  return e.kind == ExpressionKind::Index && e.right->kind == ExpressionKind::String && e.right->text == name;
}

/// The call gives a list of tensors: `x:chunk(2)`, `torch.split(x, 2)`.
bool gives_list(const Expression& e) {
  if (e.kind == ExpressionKind::MethodCall) return contains(kLists, e.text);
  const std::string path = called_global(e);
  if (path == "torch.where") return e.items.size() == 1;
  return path.rfind("torch.", 0) == 0 && contains(kLists, last_part(path));
}

/// As far as the text tells, a number: `#x`, `x:numel()`, `x.ndim`, and what arithmetic makes of those and of literals.
bool is_number(const Expression& whole) {
  const auto is_literal = [](const Expression& e) {
    return e.kind == ExpressionKind::Integer || e.kind == ExpressionKind::Number;
  };
  const auto is_known = [](const Expression& e) {
    const bool method = e.kind == ExpressionKind::MethodCall && contains(kNumbers, e.text);
    return (e.kind == ExpressionKind::Unary && e.op == Operator::Length) || is_field(e, "ndim") ||
           (method && (e.text != "size" || e.items.size() == 1));
  };
  bool known = false;
  const Expression* e = &inside(whole);
  while (e->kind == ExpressionKind::Binary && e->op <= Operator::FloorDivide) {  // leans to the left without limit
    const Expression& right = inside(*e->right);
    if (!is_known(right) && !is_literal(right)) return false;
    known |= is_known(right);
    e = &inside(*e->left);
  }
  return is_known(*e) || (known && is_literal(*e));
}

/// `1, 2], [3, 4`: what a nested list of Python is as a text between `[[` and `]]`.
bool is_nested_list(std::string_view text) {
  return text.find_first_of("0123456789") != std::string_view::npos &&
         text.find_first_not_of("0123456789.,-+e[] \r\n\t") == std::string_view::npos;
}

std::string as_table(std::string text) {
  std::replace(text.begin(), text.end(), '[', '{');
  std::replace(text.begin(), text.end(), ']', '}');
  return "{{" + text + "}}";
}

class ForeignSyntaxFinder {
 public:
  ForeignSyntaxFinder(const Chunk& chunk, std::string_view source) : chunk_(chunk), source_(source) {
    for (const Statement& s : chunk.statements) {
      for (const Expression* const target : s.targets) {
        assigned_.insert(target->variable);
        if (target->kind == ExpressionKind::Index) ++names_[inside(*target->left).variable];  // it is no reading
      }
      if (s.kind == StatementKind::Local)
        for (size_t i = 0; i < std::min(s.variables.size(), s.values.size()); ++i) held_[s.variables[i]] = s.values[i];
    }
    for (const Expression& e : chunk.expressions) note_name(e);
    for (const Expression& e : chunk.expressions)
      if (e.bare_argument)
        calls_.insert(e.items[0]);
      else if (e.kind == ExpressionKind::Call || e.kind == ExpressionKind::MethodCall)
        arguments_.insert(e.items.begin(), e.items.end());
  }

  std::vector<Warning> find() {
    for (const Expression& e : chunk_.expressions) {
      decrement(e);
      if (e.kind == ExpressionKind::Binary && is_comparison(e)) comparison(e);
      if (e.kind == ExpressionKind::String) nested_list(e);
      if (is_logical(e)) condition(*e.left);
      if (e.op == Operator::Or) choice(e);
      if (e.kind == ExpressionKind::Unary && e.op == Operator::Not) condition(*e.left);
      if (e.op >= Operator::Equal && e.op <= Operator::GreaterEqual) negated(e);
      if (e.op == Operator::Equal || e.op == Operator::NotEqual) never_equal(e);
      if (e.kind == ExpressionKind::Binary) text(e);
      if (e.kind == ExpressionKind::Index) index(e);
      if (e.kind == ExpressionKind::Call || e.kind == ExpressionKind::MethodCall) call(e);
    }
    for (const Statement& s : chunk_.statements) {
      mode(s);
      loop(s);
      unpacking(s);
      const bool tests =
          s.kind == StatementKind::If || s.kind == StatementKind::While || s.kind == StatementKind::Repeat;
      for (const Expression* const value : s.values)
        if (tests) condition(*value);
    }
    return std::move(warnings_);
  }

 private:
  /// How often a variable stands in the text, and how often to be indexed or measured: elsewhere it may be changed.
  void note_name(const Expression& e) {
    if (e.kind == ExpressionKind::Name && e.variable) ++names_[e.variable];
    const bool reads = e.kind == ExpressionKind::Index || (e.kind == ExpressionKind::Unary && e.op == Operator::Length);
    if (reads && e.left->kind == ExpressionKind::Name) ++reads_[e.left->variable];
  }

  void warn(int line, int column, const std::string& message) { warnings_.push_back({line, column, message}); }

  /// What a local holds for good, else the expression itself.
  const Expression& held(const Expression& expression) const {
    const Expression& e = inside(expression);
    const auto found = e.kind == ExpressionKind::Name && e.variable ? held_.find(e.variable) : held_.end();
    return found != held_.end() && !assigned_.count(e.variable) ? inside(*found->second) : e;
  }

  /// What the path begins with is a table of the script: `info.dtype`, `spec.device.type`.
  bool is_of_own_table(const Expression& expression) const {
    constexpr int most_fields = 8;  // each link of a chain asks, and chains have no limit
    const Expression* e = &inside(expression);
    for (int fields = 0; fields < most_fields && e->kind == ExpressionKind::Index; ++fields) e = &inside(*e->left);
    return held(*e).kind == ExpressionKind::Table;
  }

  /// `0/0`, `-(0/0)`, or a local that holds it for good.
  bool is_nan(const Expression& expression) const {
    const Expression* e = &held(expression);
    while (e->kind == ExpressionKind::Unary && e->op == Operator::Negate) e = &inside(*e->left);
    return e->kind == ExpressionKind::Binary && e->op == Operator::Divide && is_zero(inside(*e->left)) &&
           is_zero(inside(*e->right));
  }

  static constexpr const char* kNeverNan = ", for each element of a tensor too; write x:isnan() to find NaN";

  static bool is_literal(const Expression& e) {
    return e.kind == ExpressionKind::Integer || e.kind == ExpressionKind::Number || e.kind == ExpressionKind::String;
  }

  /// `not x == 4`, `not n > 2`.
  void negated(const Expression& e) {
    const Expression &left = *e.left, &right = inside(*e.right);
    if (left.kind != ExpressionKind::Unary || left.op != Operator::Not) return;
    const bool by_order = e.op != Operator::Equal && e.op != Operator::NotEqual;
    if (is_literal(right) || right.kind == ExpressionKind::Nil)
      warn(left.line, left.column,
           std::string("`not` binds more tightly than a comparison: write ") +
               (by_order ? "not (x > y)" : "x ~= y, or not (x == y)"));
  }

  /// `a and false or b`, `n == 3 or 4`.
  void choice(const Expression& e) {
    const Expression& left = inside(*e.left);
    const bool chooses = left.kind == ExpressionKind::Binary && left.op == Operator::And;
    if (chooses && (left.right->kind == ExpressionKind::False || left.right->kind == ExpressionKind::Nil))
      warn(e.op_line, e.op_column,
           "`a and false or b` is always b, for `or` skips what is false: write `if a then`, or `not a and b`");
    if (left.op == Operator::Equal && is_literal(*e.right) && is_literal(inside(*left.right)))
      warn(e.op_line, e.op_column, "a literal alone is true, so that this always holds: write n == 3 or n == 4");
  }

  /// `x.shape == 3`, `x.dtype == "float32"`, `type(x) == "Tensor"`.
  void never_equal(const Expression& e) {
    const Expression &left = *e.left, &right = inside(*e.right);
    if (gives_sizes(left) && is_literal(right))
      warn(e.op_line, e.op_column,
           "a list of sizes equals no number and no text; write x:size(0) == 3, or #x.shape == 3");
    if (right.kind != ExpressionKind::String) return;
    const bool of_sizes =
        left.kind == ExpressionKind::Index && left.right->kind == ExpressionKind::Integer && gives_sizes(*left.left);
    if (of_sizes || is_number(left))
      warn(e.op_line, e.op_column, "a number equals no text: write the number without quotes");
    if (is_field(inside(left), "dtype") && !is_of_own_table(left))
      warn(e.op_line, e.op_column,
           "a dtype is no text, and differs from each; write x.dtype == torch." + std::string(last_part(right.text)));
    if (called_global(inside(left)) == "type" && !contains(kTypes, right.text))
      warn(e.op_line, e.op_column,
           "`type` never gives \"" + right.text +
               "\"; write torch.is_tensor(x) for a tensor, type(x) == \"number\" for a number");
  }

  void comparison(const Expression& e) {
    if (is_chained(e))
      warn(e.op_line, e.op_column,
           "a chain of comparisons compares the result of the first one; for tensors write " + unchained(e, source_) +
               ", for plain values `and` in the place of &");
    if (is_nan(*e.left) == is_nan(*e.right)) return;  // of both sides: n ~= n asks for NaN
    const bool always = e.op == Operator::NotEqual;
    warn(e.op_line, e.op_column,
         std::string("a comparison with NaN is ") + (always ? "always true" : "never true") + kNeverNan);
  }

  void condition(const Expression& e) {
    const Expression &here = inside(e), &value = held(e);
    const bool names_method = here.kind == ExpressionKind::Index && here.right->kind == ExpressionKind::String &&
                              contains(kAsking, here.right->text);
    if (names_method && here.left->kind == ExpressionKind::Name && !is_of_own_table(here))
      warn(here.op_line, here.op_column,
           "this is a function, so that the condition always holds; call it: x:" + here.right->text + "()");
    const bool is_item = value.kind == ExpressionKind::MethodCall && value.text == "item";
    if (is_number(value) || (is_item && is_reduction(inside(*value.left))))
      warn(here.line, here.column,
           "a number alone is no condition: 0 is true in Lua, so that this always holds; write n ~= 0");
    else if (here.kind == ExpressionKind::Name && is_reduction(value))
      warn(here.line, here.column,
           "a variable alone asks whether there is a value, so that this always holds: '" + here.text +
               "' is a tensor of numbers; write " + here.text + " > 0");
  }

  void nested_list(const Expression& e) {
    const bool is_list = arguments_.count(&e) || e.text.find('[') != std::string::npos;
    if (!is_list || source_.substr(e.begin, 2) != "[[" || !is_nested_list(e.text) || calls_.count(&e)) return;
    warn(e.line, e.column, "[[...]] is a text in Lua; a list of lists is a table of tables: write " + as_table(e.text));
  }

  /// `for x in {1, 2} do`, `for i in 0, 2 do`.
  void loop(const Statement& s) {
    if (s.kind != StatementKind::GenericFor) return;
    const Expression& first = inside(*s.values[0]);
    if (first.kind == ExpressionKind::Table) {
      const bool named =
          std::any_of(first.keys.begin(), first.keys.end(), [](const auto& key) { return !key.empty(); });
      warn(s.line, s.column,
           named ? "`for` needs what walks over a table; write `for key, value in pairs(t) do`"
                 : "`for` needs what walks over a list; write `for i, x in ipairs({1, 2}) do`");
    } else if (first.kind == ExpressionKind::Integer) {
      warn(s.line, s.column, "a range of numbers has no `in`: write `for i = 0, 2 do`, which includes its end");
    } else if (gives_sizes(first)) {
      warn(s.line, s.column, "`for` needs what walks over a list; write `for i, size in ipairs(x.shape) do`");
    }
  }

  /// `local n, d = z.shape`.
  void unpacking(const Statement& s) {
    const size_t targets = s.kind == StatementKind::Local    ? s.variables.size()
                           : s.kind == StatementKind::Assign ? s.targets.size()
                                                             : 0;
    if (targets < 2 || s.values.size() != 1 || !gives_sizes(*s.values[0])) return;
    const Expression& value = *s.values[0];
    warn(value.line, value.column,
         "a list of sizes is one value, and the variables behind the first one get nil; write table.unpack(" +
             std::string(source_.substr(value.begin, value.end - value.begin)) + ")");
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
    if (is_of_own_table(*e.left)) return list_from_zero(e);
    const Expression& object = *e.left;
    const int at = foreign_index(*e.right);
    if (is_field(object, "device") && (is_field(e, "type") || is_field(e, "index")))
      warn(e.op_line, e.op_column,
           "a device is a text, and this is nil; write x.device == \"cpu\", x.device == \"cuda:0\", or "
           "x.device:match(\"^%a+\") for the type alone");
    if (e.right->kind == ExpressionKind::Table)
      for (size_t i = 0; i < e.right->items.size(); i++)
        if (e.right->items[i]->kind == ExpressionKind::Nil)
          warn(
              e.right->items[i]->line, e.right->items[i]->column,
              "a nil ends a list of indices; write \"new\" for a new axis, and torch.None for the open end of a range");
    of_local(e, at);
    if (gives_list(inside(object)) && at < 1)
      warn(e.op_line, e.op_column,
           "the call gives a list of Lua, which counts from 1, so that this is nil; write [1] "
           "for the first one");
    if (gives_sizes(object) && at < 1)
      warn(e.op_line, e.op_column,
           "shape is a list of Lua, which counts from 1, so that this is nil; write x:size(" +
               std::string(at == 0 ? "0" : "-1") + "), whose dims count from 0" +
               (at == 0 ? ", or x.shape[1]" : " and from the end"));
    const bool own_method = object.kind == ExpressionKind::MethodCall && is_of_own_table(*object.left);
    if (own_method || !gives_pair(object)) return;
    const bool named =
        e.right->kind == ExpressionKind::String && (e.right->text == "values" || e.right->text == "indices");
    const bool numbered = at == 0 || (e.right->kind == ExpressionKind::Integer && e.right->text == "1");
    if (named || numbered)
      warn(e.op_line, e.op_column,
           "a call that gives values and indices returns both: local values, indices = " +
               std::string(object.kind == ExpressionKind::MethodCall ? "x:" + object.text : called_global(object)) +
               "(...)" + (named ? "" : "; for a row of the values put the call in parentheses"));
  }

  /// `t[0]` of a list whose elements all stand in its text.
  void list_from_zero(const Expression& e) {
    const Expression& object = inside(*e.left);
    if (object.kind != ExpressionKind::Name || !object.variable || foreign_index(*e.right) != 0) return;
    constexpr size_t most_bytes = 1000;  // which each place that reads the list reads again
    const Expression& list = held(object);
    if (list.end - list.begin > most_bytes) return;
    const bool has_keys = source_.substr(list.begin, list.end - list.begin).find_first_of("[=") != std::string::npos;
    const auto used = names_.find(object.variable), read = reads_.find(object.variable);
    if (list.items.empty() || has_keys || read == reads_.end() || used->second != read->second) return;
    warn(e.op_line, e.op_column, "a list of Lua counts from 1, so that this is nil; write " + object.text + "[1]");
  }

  /// `r[0]` beside `r[1]` of both results of `x:max(1)`.
  void of_local(const Expression& e, int at) {
    const Expression& object = inside(*e.left);
    if (object.kind != ExpressionKind::Name || !object.variable) return;
    const Expression& value = held(object);
    const bool is_one = e.right->kind == ExpressionKind::Integer && e.right->text == "1";
    if (!gives_pair(value) || (at != 0 && !is_one)) return;
    rows_of_pairs_.emplace(object.variable, is_one);
    if (rows_of_pairs_.count({object.variable, !is_one}))
      warn(e.op_line, e.op_column,
           "'" + object.text +
               "' holds the values alone, and this is one of their rows; a call that gives values and "
               "indices returns both: local values, indices = x:max(1)");
  }

  /// `n--1`: the rest of the line is a comment.
  void decrement(const Expression& e) {
    if (source_.substr(e.end, 2) != "--" || e.end + 2 >= source_.size() || !decrements_.insert(e.end).second) return;
    if (source_[e.end + 2] < '0' || source_[e.end + 2] > '9') return;
    warn(e.end_line, e.column,
         "-- begins a comment, so that the rest of this line is not read; write x - -1, or x + 1");
  }

  /// `x:eq(0/0)`, `IF(mask, a, b)`.
  void called_with(const Expression& e) {
    const std::string path = called_global(e);
    const bool method = e.kind == ExpressionKind::MethodCall;
    const std::string_view name = method ? std::string_view(e.text) : last_part(path);
    const bool compares = contains(kComparingMethods, name) && (method || path.rfind("torch.", 0) == 0);
    if (compares && !e.items.empty() && is_nan(*e.items.back()))
      warn(e.line, e.column,
           std::string("a comparison with NaN is ") + (name == "ne" ? "always true" : "never true") + kNeverNan);
    if ((name == "max" || name == "min") && (method || path.rfind("torch.", 0) == 0) && !e.items.empty() &&
        e.items.back()->kind == ExpressionKind::Number)
      warn(e.line, e.column,
           "this number is taken for a dim; write x:clamp({" + std::string(name == "max" ? "min" : "max") + " = " +
               e.items.back()->text + "}) to bound the elements");
    const Expression* const fallback = path == "fix" ? option(e, "fallback") : nullptr;
    if (fallback && fallback->function && !fallback->function->parameters.empty())
      warn(fallback->line, fallback->column,
           "a fallback is called without arguments, so that '" + fallback->function->parameters[0]->name +
               "' is nil; write function() ... end, or err.map_err(f, z, function(z) ... end) for what is made of the "
               "data");
    if (path == "IF" && e.items.size() > 2)
      warn(e.line, e.column, "IF takes a condition and a function; to choose between two values write WHERE(m, a, b)");
  }

  void call(const Expression& e) {
    const Expression& callee = *e.left;
    called_with(e);
    if (is_field(callee, "shape") || (e.kind == ExpressionKind::MethodCall && e.text == "shape"))
      warn(e.op_line, e.op_column, "shape is a list; write x:size(dim)");
    const bool on_own_line = e.kind == ExpressionKind::Call && e.bare_argument &&
                             e.items[0]->kind == ExpressionKind::String && e.items[0]->line > callee.end_line;
    if (on_own_line)
      warn(e.items[0]->line, e.items[0]->column,
           "a text in a line of its own calls the value in the line above it; a comment begins with --");
    if (e.kind != ExpressionKind::Call) return;
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
  const std::string_view source_;
  std::set<const Expression*> calls_, arguments_;  // the texts of `x[[0, 2]]`, and all in calls
  std::set<const Variable*> assigned_;
  std::map<const Variable*, size_t> names_, reads_;
  std::set<std::pair<const Variable*, bool>> rows_of_pairs_;  // that were read: r[0], and r[1]: true
  std::set<size_t> decrements_;                               // bytes of `--` that were looked at
  std::map<const Variable*, const Expression*> held_;         // the first value of each local
  std::vector<Warning> warnings_;
};

}  // namespace

std::vector<Warning> find_foreign(const Chunk& chunk, std::string_view source) {
  return ForeignSyntaxFinder(chunk, source).find();
}

}  // namespace triage::lua::rewriter
