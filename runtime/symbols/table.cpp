#include "runtime/symbols/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "runtime/graph/evaluation/number_math.h"
#include "runtime/graph/evaluation/number_ops.h"
#include "runtime/graph/text/describe.h"
#include "runtime/symbols/range.h"

namespace triage::symbols {

using operators::Arithmetic;

namespace {

constexpr Number kLargestWhole = 4.6e18L;  // no size is larger, and few integers

std::string end_text(Number number, bool whole) {
  if (whole)
    return number >= kLargestWhole    ? "int_oo"
           : number <= -kLargestWhole ? "-int_oo"
                                      : fmt::format("{}", static_cast<int64_t>(number));
  if (number == Range::inf) return "oo";
  if (number == -Range::inf) return "-oo";
  std::string text = fmt::format("{}", static_cast<double>(number));
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

bool surely_less(const Range& a, const Range& b) { return a.has_max() && b.has_min() && a.max < b.min; }
bool surely_less_equal(const Range& a, const Range& b) { return a.has_max() && b.has_min() && a.max <= b.min; }

}  // namespace

std::optional<bool> decide(Relation relation, const Range& a, const Range& b) {
  const bool one = a.min == a.max && b.min == b.max && a.has_min() && a.has_max() && b.has_min() && b.has_max();
  switch (relation) {
    case Relation::less:
      if (surely_less(a, b)) return true;
      if (surely_less_equal(b, a)) return false;
      return std::nullopt;
    case Relation::less_equal:
      if (surely_less_equal(a, b)) return true;
      if (surely_less(b, a)) return false;
      return std::nullopt;
    case Relation::greater:
      return decide(Relation::less, b, a);
    case Relation::greater_equal:
      return decide(Relation::less_equal, b, a);
    case Relation::equal:
      if (one && a.min == b.min) return true;
      if (surely_less(a, b) || surely_less(b, a)) return false;
      return std::nullopt;
    case Relation::not_equal:
      if (const auto equal = decide(Relation::equal, a, b)) return !*equal;
      return std::nullopt;
  }
  return std::nullopt;
}

Range refined(const Range& a, Relation relation, const Range& b, bool whole) {
  const Number step = whole ? 1 : 0;  // between floats there is no next one worth the name
  switch (relation) {
    case Relation::less:
      return a & Range{-Range::inf, b.max - step};
    case Relation::less_equal:
      return a & Range{-Range::inf, b.max};
    case Relation::greater:
      return a & Range{b.min + step, Range::inf};
    case Relation::greater_equal:
      return a & Range{b.min, Range::inf};
    case Relation::equal:
      return a & b;
    case Relation::not_equal: {
      Range result = a;
      if (whole && b.min == b.max && result.min == b.min) result.min += 1;
      if (whole && b.min == b.max && result.max == b.min) result.max -= 1;
      return result;
    }
  }
  return a;
}

Relation swapped(Relation relation) {
  switch (relation) {
    case Relation::less:
      return Relation::greater;
    case Relation::less_equal:
      return Relation::greater_equal;
    case Relation::greater:
      return Relation::less;
    case Relation::greater_equal:
      return Relation::less_equal;
    default:
      return relation;
  }
}

Relation contrary(Relation relation) {
  switch (relation) {
    case Relation::less:
      return Relation::greater_equal;
    case Relation::less_equal:
      return Relation::greater;
    case Relation::greater:
      return Relation::less_equal;
    case Relation::greater_equal:
      return Relation::less;
    case Relation::equal:
      return Relation::not_equal;
    default:
      return Relation::equal;
  }
}

const char* sign(Relation relation) {
  static constexpr const char* signs[] = {"<", "<=", ">", ">=", "==", "!="};
  return signs[static_cast<size_t>(relation)];
}

std::string text(const Range& range, bool whole) {
  return fmt::format("VR[{}, {}]", end_text(range.min, whole), end_text(range.max, whole));
}

namespace {

constexpr Number kWrapsAt = 9223372036854775808.0L;  // where int64 arithmetic wraps around

std::optional<Relation> relation_of(Arithmetic op) {
  if (op < Arithmetic::less) return std::nullopt;
  static_assert(static_cast<int>(Arithmetic::not_equal) - static_cast<int>(Arithmetic::less) ==
                static_cast<int>(Relation::not_equal));
  return static_cast<Relation>(static_cast<int>(op) - static_cast<int>(Arithmetic::less));
}

SymbolicExpression constant(Number value, bool whole) {
  SymbolicExpression result;
  result.whole = whole;
  result.offset = value;
  result.text = whole ? fmt::format("{:.0f}", value) : graph::float_text(static_cast<double>(value));
  return result;
}

bool is_constant(const SymbolicExpression& e) { return e.kind == SymbolicExpression::Kind::number && e.scale == 0; }
bool is_symbol(const SymbolicExpression& e) { return e.scale == 1 && e.offset == 0; }

/// A number that is added to itself again and again would have a text of twice the length each time.
std::string shortened(std::string text) {
  constexpr size_t longest = 1000;
  if (text.size() <= longest) return text;
  text.resize(longest);
  return text + "...";
}

std::string factor(const SymbolicExpression& e) { return e.is_sum ? "(" + e.text + ")" : e.text; }

std::string text_of(Arithmetic op, const SymbolicExpression& a, const SymbolicExpression& b) {
  const bool sum = op == Arithmetic::add || op == Arithmetic::subtract;
  if (op == Arithmetic::multiply && is_constant(b) && !is_constant(a)) return text_of(op, b, a);
  if (op == Arithmetic::add && is_constant(b) && b.offset < 0)
    return shortened(fmt::format("{} - {}", a.text, constant(-b.offset, b.whole).text));
  return shortened(fmt::format("{}{}{}", sum ? a.text : factor(a),
                               sum                          ? fmt::format(" {} ", operators::sign(op))
                               : op == Arithmetic::multiply ? "*"
                                                            : fmt::format(" {} ", operators::sign(op)),
                               op == Arithmetic::add ? b.text : factor(b)));
}

/// Integers do not wrap around anywhere in the range.
bool fits_int64(const Range& range) { return range.min >= -kWrapsAt && range.max < kWrapsAt; }

Range product(const Range& a, const Range& b) {
  const Number corners[] = {a.min * b.min, a.min * b.max, a.max * b.min, a.max * b.max};
  for (const Number corner : corners)
    if (!std::isfinite(corner)) return {};
  return {*std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4)};
}

/// Of an operation on integers that is not linear.
Range whole_range(Arithmetic op, const Range& a, const Range& b) {
  Range result;
  const bool by_positive = b.min == b.max && b.min > 0;
  if (op == Arithmetic::add) result = {a.min + b.min, a.max + b.max};
  if (op == Arithmetic::subtract) result = {a.min - b.max, a.max - b.min};
  if (op == Arithmetic::multiply) result = product(a, b);
  if (op == Arithmetic::floor_divide && by_positive) result = {std::floor(a.min / b.min), std::floor(a.max / b.min)};
  if (op == Arithmetic::remainder && by_positive) result = {0, b.min - 1};
  if (op == Arithmetic::bit_and && b.min >= 0) result = {0, b.max};
  return fits_int64(result) ? result : Range{};
}

/// Of an operation on doubles neither of which is NaN: rounding keeps the order, so the ends of the result are among
/// the corners.
Range float_range(Arithmetic op, const Range& a, const Range& b) {
  const bool known = a.has_min() && a.has_max() && b.has_min() && b.has_max();
  if (!known || (op == Arithmetic::divide && b.min <= 0 && b.max >= 0)) return {};
  Range result{Range::inf, -Range::inf};
  for (const Number x : {a.min, a.max})
    for (const Number y : {b.min, b.max}) {
      const auto left = static_cast<double>(x), right = static_cast<double>(y);
      const double corner = op == Arithmetic::add        ? left + right
                            : op == Arithmetic::subtract ? left - right
                            : op == Arithmetic::multiply ? left * right
                            : op == Arithmetic::divide   ? left / right
                                                         : HUGE_VAL;
      if (!std::isfinite(corner)) return {};
      result.min = std::min<Number>(result.min, corner);
      result.max = std::max<Number>(result.max, corner);
    }
  return result;
}

/// Of whole numbers as doubles.
Range rounded(const Range& whole) { return {static_cast<double>(whole.min), static_cast<double>(whole.max)}; }

}  // namespace

SymbolTable::SymbolTable(SizeName size_of) : size_of_(std::move(size_of)) {}

size_t SymbolTable::symbol(const std::string& name, bool whole, const Range& range, const graph::Value* value) {
  const auto [known, fresh] = by_name_.emplace(name, symbols_.size());
  if (fresh) symbols_.push_back({name, whole, range, value, false});
  return known->second;
}

SymbolicExpression SymbolTable::of_symbol(size_t index) const {
  SymbolicExpression result;
  result.whole = symbols_[index].whole;
  result.text = symbols_[index].name;
  result.symbol = index;
  result.scale = 1;
  return result;
}

SymbolicExpression SymbolTable::opaque(std::string text, bool whole, bool is_sum, const Range& range) {
  symbols_.push_back({text, whole, range, nullptr, true});
  SymbolicExpression result = of_symbol(symbols_.size() - 1);
  result.is_sum = is_sum;
  return result;
}

void SymbolTable::add_size(const std::string& name, const Range& range) { symbol(name, true, range, nullptr); }

Range SymbolTable::range(const SymbolicExpression& e) const {
  if (e.scale == 0) return {e.offset, e.offset};
  const Range& own = symbols_[e.symbol].range;
  const Range scaled =
      e.scale > 0 ? Range{own.min * e.scale, own.max * e.scale} : Range{own.max * e.scale, own.min * e.scale};
  return {scaled.min + e.offset, scaled.max + e.offset};
}

const SymbolicExpression* SymbolTable::find(const graph::Value* value) const {
  auto found = expressions_.find(value);
  return found == expressions_.end() ? nullptr : &found->second;
}

std::optional<SymbolicExpression> SymbolTable::read(const graph::Operand& operand) const {
  if (const graph::Value* value = operand.value()) {
    const SymbolicExpression* known = find(value);
    return known ? std::optional(*known) : std::nullopt;
  }
  const c10::IValue* number = operand.constant();
  if (number && number->isInt()) return constant(static_cast<Number>(number->toInt()), true);
  if (number && number->isDouble()) return constant(static_cast<Number>(number->toDouble()), false);
  return std::nullopt;
}

void SymbolTable::add_item(const graph::Node& node) {
  const graph::Value* value = node.results.front();
  const bool whole = value->meta && value->meta->dtype == at::kLong;
  expressions_[value] = of_symbol(symbol("u" + std::to_string(items_++), whole, {}, value));
}

void SymbolTable::add_size_of(const graph::Node& node) {
  const auto read = graph::size_read(node);
  if (!size_of_ || !read) return;
  const std::string name = size_of_(read->of, read->dim);
  int64_t number = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  const bool known = error == std::errc() && end == name.data() + name.size();
  const Range sizes{0, kLargestSize};
  SymbolicExpression& size = expressions_[node.results.front()];
  if (known)
    size = constant(static_cast<Number>(number), true);
  else if (graph::is_identifier(name))
    size = of_symbol(symbol(name, true, sizes, nullptr));
  else
    size = opaque(name == "?" ? graph::describe(*read->of) + fmt::format(".size({})", read->dim) : name, true, true,
                  sizes);
}

void SymbolTable::visit(const graph::Node& node) {
  if (graph::item_of(node)) return add_item(node);
  if (graph::size_read(node)) return add_size_of(node);
  if (graph::is_assertion(node)) {
    if (const graph::Value* condition = node.operands[0].value()) assume(condition);
    return;
  }
  const Arithmetic op = graph::arithmetic_of(node);
  if (node.results.size() != 1 || node.operands.empty()) return;
  const std::optional<SymbolicExpression> a = read(node.operands[0]);
  if (!a || !node.operands[0].value() || a->kind != SymbolicExpression::Kind::number) return;
  const graph::Value* result = node.results.front();
  if (graph::math_of(node)) return add_math(node, *a);
  if (op == Arithmetic::negate) {
    expressions_[result] = arithmetic(Arithmetic::multiply, constant(-1, a->whole), *a);
    expressions_[result].text = shortened("-" + factor(*a));
  } else if (node.op.operator_name().name == "aten::to" && result->meta && result->meta->dtype == at::kDouble &&
             a->whole) {
    expressions_[result] = opaque(a->text, false, a->is_sum, rounded(range(*a)));
  } else if (node.operands.size() > 1) {
    const std::optional<SymbolicExpression> b = read(node.operands[1]);
    if (!b || b->kind != SymbolicExpression::Kind::number) return;
    if (const auto relation = relation_of(op)) {
      SymbolicExpression truth;
      truth.kind = SymbolicExpression::Kind::truth;
      truth.text = fmt::format("{} {} {}", a->text, sign(*relation), b->text);
      truth.relation = *relation;
      truth.sides = {*a, *b};
      expressions_[result] = std::move(truth);
    } else if (op == Arithmetic::subtract_from) {
      expressions_[result] = arithmetic(Arithmetic::subtract, *b, *a);
    } else if (op >= Arithmetic::add && op <= Arithmetic::bit_xor) {
      expressions_[result] = arithmetic(op, *a, *b);
    } else if (op == Arithmetic::largest || op == Arithmetic::smallest) {
      const bool most = op == Arithmetic::largest;
      const Range x = range(*a), y = range(*b);
      const Range chosen = most ? Range{std::max(x.min, y.min), std::max(x.max, y.max)}
                                : Range{std::min(x.min, y.min), std::min(x.max, y.max)};
      const std::string text = shortened(fmt::format("{}({}, {})", operators::sign(op), a->text, b->text));
      expressions_[result] = opaque(text, a->whole && b->whole, false, a->whole && b->whole ? chosen : Range{});
    }
  }
}

/// "sqrt(s0)", "s0 ^ 0.5".
void SymbolTable::add_math(const graph::Node& node, const SymbolicExpression& a) {
  const graph::MathFunction& function = *graph::math_of(node);
  std::string text = fmt::format("{}({})", function.name, a.text);
  if (function.binary) {
    const std::optional<SymbolicExpression> b = read(node.operands[2]);
    if (!b || b->kind != SymbolicExpression::Kind::number) return;
    text = function.name == "pow" ? fmt::format("{} ^ {}", factor(a), factor(*b))
                                  : fmt::format("{}({}, {})", function.name, a.text, b->text);
  }
  const Range from = a.whole ? rounded(range(a)) : range(a);
  Range to;
  if (function.rises && from.has_min() && from.has_max())
    to = {function.unary(static_cast<double>(from.min)), function.unary(static_cast<double>(from.max))};
  if (std::isnan(to.min) || std::isnan(to.max)) to = {};
  expressions_[node.results.front()] = opaque(shortened(text), function.whole, false, to);
}

/// scale * symbol + offset, where it is that and no integer wraps around on the way. Floats round: of them only what is
/// exact.
std::optional<SymbolicExpression> SymbolTable::linear(Arithmetic op, const SymbolicExpression& a,
                                                      const SymbolicExpression& b) const {
  if (!a.whole || !b.whole) return std::nullopt;
  SymbolicExpression result;
  const bool same = a.scale == 0 || b.scale == 0 || a.symbol == b.symbol;
  result.symbol = a.scale != 0 ? a.symbol : b.symbol;
  if (op == Arithmetic::multiply && (is_constant(a) || is_constant(b))) {
    const Number by = is_constant(a) ? a.offset : b.offset;
    const SymbolicExpression& of = is_constant(a) ? b : a;
    result.scale = of.scale * by;
    result.offset = of.offset * by;
  } else if ((op == Arithmetic::add || op == Arithmetic::subtract) && same) {
    const Number turn = op == Arithmetic::add ? 1 : -1;
    result.scale = a.scale + turn * b.scale;
    result.offset = a.offset + turn * b.offset;
  } else {
    return std::nullopt;
  }
  return fits_int64(range(result)) ? std::optional(result) : std::nullopt;
}

SymbolicExpression SymbolTable::arithmetic(Arithmetic op, const SymbolicExpression& a, const SymbolicExpression& b) {
  const bool whole = a.whole && b.whole && op != Arithmetic::divide;
  const std::string text = text_of(op, a, b);
  const bool is_sum =
      op == Arithmetic::add || op == Arithmetic::subtract || (op >= Arithmetic::bit_and && op <= Arithmetic::bit_xor);
  if (auto known = linear(op, a, b)) {
    known->whole = whole;
    known->text = is_symbol(*known)   ? symbols_[known->symbol].name
                  : known->scale == 0 ? constant(known->offset, true).text
                                      : text;
    known->is_sum = is_sum && !is_symbol(*known) && known->scale != 0;
    return *known;
  }
  const Range x = range(a), y = range(b);
  return opaque(text, whole, is_sum,
                whole ? whole_range(op, x, y) : float_range(op, a.whole ? rounded(x) : x, b.whole ? rounded(y) : y));
}

std::optional<bool> SymbolTable::decide(const graph::Value* condition) const {
  const SymbolicExpression* truth = find(condition);
  if (!truth || truth->kind != SymbolicExpression::Kind::truth) return std::nullopt;
  const SymbolicExpression &a = truth->sides[0], &b = truth->sides[1];
  if (a.scale == b.scale && a.symbol == b.symbol && a.whole && b.whole)  // the symbol cancels out
    return symbols::decide(truth->relation, {a.offset, a.offset}, {b.offset, b.offset});
  return symbols::decide(truth->relation, range(a), range(b));
}

void SymbolTable::assume(const graph::Value* condition, bool truth) {
  const SymbolicExpression* comparison = find(condition);
  if (!comparison || comparison->kind != SymbolicExpression::Kind::truth) return;
  const SymbolicExpression &a = comparison->sides[0], &b = comparison->sides[1];
  if (!truth && !(a.whole && b.whole)) return;  // NaN is neither less nor not less
  const Relation relation = truth ? comparison->relation : contrary(comparison->relation);
  refine(a, relation, b);
  refine(b, swapped(relation), a);
}

/// scale * symbol + offset `relation` other, solved for the symbol.
void SymbolTable::refine(const SymbolicExpression& side, Relation relation, const SymbolicExpression& other) {
  if (side.scale == 0 || (other.scale != 0 && other.symbol == side.symbol)) return;
  Range bound = range(other);
  bound = {(bound.min - side.offset) / side.scale, (bound.max - side.offset) / side.scale};
  if (side.scale < 0) {
    std::swap(bound.min, bound.max);
    relation = swapped(relation);
  }
  Symbol& symbol = symbols_[side.symbol];
  const bool exact = side.scale == 1 || side.scale == -1;
  if (!exact && (relation == Relation::equal || relation == Relation::not_equal)) return;
  Range found = refined(symbol.range, relation, bound, symbol.whole && exact);
  if (symbol.whole) found = {std::ceil(found.min), std::floor(found.max)};
  symbol.range = found;
}

}  // namespace triage::symbols
